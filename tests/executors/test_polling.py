"""Questions about what was accepted: when, by whom, and what their answers do."""

from threading import Barrier, Thread
from typing import Any

import pytest
from tests.executors.desk import Desk, Paid, Pay
from tests.executors.rows import Rows, claim, ended, intent, key_of, results

from refold.examples.order.graph import Charged
from refold.executors.executor import Call, Executor
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Heard, Status
from refold.executors.outcome import Accepted, Answer, CannotTell, Done, Undone
from refold.executors.truth import Queryable

pytestmark = pytest.mark.postgres
DONE = Done(Charged("receipt 1"))


def accepted(ledger: Ledger, number: int = 1, until_s: float = 600) -> Claimed:
    ledger.plan([intent(number, instance=f"o-{number}")], [])
    (found,) = claim(ledger)
    reference = f"bank-{number}"
    ledger.settle([ended(found, Status.IN_FLIGHT, reference=reference, until_s=until_s)])
    return found


def due(ledger: Ledger, poll_s: float = 0.0, most: int = 9) -> list[str]:
    found = ledger.poll("payments", "Charge", most, poll_s, hold_s=60)
    assert all(each.known is Status.IN_FLIGHT for each in found)
    return [each.key for each in found]


def test_only_what_was_accepted_is_asked_about(ledger: Ledger) -> None:
    first, second = accepted(ledger, 1), accepted(ledger, 2)
    ledger.answer(DONE, key=second.key)
    accepted(ledger, 3, until_s=-1)  # its deadline is over: its truth is learned as of any unknown
    ledger.plan([intent(4, instance="o-4"), intent(5, instance="o-5")], [])
    claim(ledger, most=1)  # one is called, one is planned
    assert due(ledger) == [first.key]


def test_a_first_question_waits_as_long_as_declared(ledger: Ledger) -> None:
    accepted(ledger)
    assert due(ledger, poll_s=3600) == []
    assert due(ledger) == [key_of(1)]


def test_who_asks_holds_the_row_until_it_is_said_when_to_ask_again(ledger: Ledger) -> None:
    found = accepted(ledger)
    assert due(ledger) == [key_of(1)]
    assert due(ledger) == []
    ledger.not_yet([(found, 3600.0)])
    assert due(ledger) == []
    ledger.not_yet([(found, 0.0)])
    assert due(ledger) == [key_of(1)]


def test_questions_put_off_no_deadline_and_use_up_no_attempt(ledger: Ledger, rows: Rows) -> None:
    found = accepted(ledger)
    names = ("lease_until", "attempt", "epoch", "attempts", "status")
    before = [rows.one()[name] for name in names]
    due(ledger)
    ledger.not_yet([(found, 3600.0)])
    assert [rows.one()[name] for name in names] == before


def test_a_row_whose_asker_died_is_asked_about_again(ledger: Ledger) -> None:
    accepted(ledger)
    assert len(ledger.poll("payments", "Charge", 9, 0.0, hold_s=-1.0)) == 1
    assert due(ledger) == [key_of(1)]


def test_two_processes_never_ask_about_one_action_at_the_same_time(
    ledger_dsn: str, ledger: Ledger
) -> None:
    other = Ledger(ledger_dsn, "x2")
    for number in range(1, 21):
        accepted(ledger, number)
    start, found = Barrier(2), list[str]()

    def ask(own: Ledger) -> None:
        start.wait()
        for _ in range(5):
            found.extend(due(own, most=3))

    threads = [Thread(target=ask, args=[each]) for each in (ledger, other)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    other.close()
    assert sorted(found) == sorted(key_of(number) for number in range(1, 21))


def test_a_callback_that_races_a_question_settles_once(ledger: Ledger, rows: Rows) -> None:
    found = accepted(ledger)
    assert due(ledger) == [key_of(1)]
    assert ledger.answer(DONE, target="payments", reference="bank-1") is Heard.SETTLED
    assert ledger.settle([ended(found)]).keys == frozenset()  # the question's answer, too late
    ledger.not_yet([(found, 0.0)])
    assert due(ledger) == []
    assert (rows.status(), rows.one()["contradicted"]) == ("succeeded", False)
    assert results(ledger) == [(key_of(1), 1, "succeeded")]


def test_a_question_that_races_a_callback_settles_once(ledger: Ledger, rows: Rows) -> None:
    found = accepted(ledger)
    due(ledger)
    assert ledger.settle([ended(found)]).keys == {key_of(1)}
    assert ledger.answer(DONE, target="payments", reference="bank-1") is Heard.KNOWN
    assert len(results(ledger)) == 1
    assert rows.status() == "succeeded"


def test_not_yet_leaves_a_row_alone_that_is_unknown_meanwhile(ledger: Ledger, rows: Rows) -> None:
    found = accepted(ledger, until_s=0.0)
    ledger.run_out("payments")
    ledger.not_yet([(found, 3600.0)])
    (asked,) = ledger.ask("payments", ["Charge"], 9, 1.0)
    assert (asked.key, rows.status()) == (key_of(1), "unknown")


class Bank:
    """Accepts payments, and says what became of them when it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[Answer | Exception] = []
        """What it says next; then that it is done."""

    def executor(self, deadline_s: float) -> Executor:
        executor = Executor("bank")

        def reconcile(command: Pay, call: Call) -> Any:
            self.asked.append(call.key)
            said = self.answers.pop(0) if self.answers else Done(Paid(reference="asked for"))
            if isinstance(said, Exception):
                raise said
            return said

        truth = Queryable(reconcile, 0.0, poll_s=0.1)

        @executor.action(Pay, truth=truth, deadline_s=0.5)
        def pay(command: Pay, call: Call) -> Accepted:
            return Accepted(f"tr-{call.instance}", deadline_s)

        return executor


@pytest.mark.kafka
def test_what_was_accepted_is_polled_until_it_is_done_and_never_becomes_unknown(
    desk: Desk,
) -> None:
    bank = Bank()
    bank.answers = [Undone(), CannotTell("it is open still"), ConnectionError("down"), Undone()]
    key = desk.send("i")
    with desk.running(bank.executor(deadline_s=600)) as service:
        (done,) = desk.until_heard(key, "succeeded")
        assert service.health.status.polled == 5
    assert done.event.reference == "asked for"
    assert bank.asked == [key] * 5


@pytest.mark.kafka
def test_two_processes_that_poll_and_a_callback_tell_the_workflow_once(desk: Desk) -> None:
    bank, ledger = Bank(), Ledger(desk.dsn, "callbacks")
    bank.answers = [Undone()] * 40
    keys = [desk.send(f"i{number}") for number in range(20)]
    with desk.running(bank.executor(600)), desk.running(bank.executor(600)):
        desk.until(lambda: not bank.answers, "all to be asked about")
        for number in range(20):
            ledger.answer(Done(Paid(reference="called back")), key=keys[number])
        for key in keys:
            desk.until_heard(key, "succeeded")
    ledger.close()
    rows = desk.sql("SELECT status, contradicted FROM workflow_action")
    assert rows == [("succeeded", False)] * 20
