"""What the handler of an undoing is told about what it undoes, the same whenever it is told."""

from typing import Any

import pytest
from tests.executors.desk import Desk, Paid, Pay, PayDeclined, Repay
from tests.executors.rows import claim, ended, intent, key_of, undoing

from refold.executors.calls import call_of
from refold.executors.executor import Call, Executor
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Status, Wanted
from refold.executors.outcome import CannotTell, Done, NotDone
from refold.executors.truth import ByKey, Neither, Queryable
from refold.executors.words import declared_done
from refold.schemas.codec import codec_of

pytestmark = pytest.mark.postgres
PAID = codec_of(Paid).encode(Paid(reference="r-7"))


def told(claimed: Claimed) -> Paid | None:
    executor = Executor("payments")
    executor.action(Pay, truth=Neither())(lambda *_: None)
    call = call_of(claimed, executor.actions["Pay"])
    assert call.undoes == (key_of(1) if claimed.direction == "compensate" else "")
    return call.forward_event(Paid)


def paid(ledger: Ledger) -> None:
    """A payment that is done, and its undoing planned."""
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    assert told(forward) is None
    ledger.settle([ended(forward, type="Paid", value=PAID)])
    ledger.plan([undoing()], [])


def test_an_undoing_knows_how_its_forward_action_was_answered(ledger: Ledger) -> None:
    paid(ledger)
    (found,) = claim(ledger)
    assert told(found) == Paid(reference="r-7")


def test_every_claim_and_question_of_any_process_tells_the_same(
    ledger_dsn: str, ledger: Ledger
) -> None:
    paid(ledger)
    (found,) = claim(ledger)
    ledger.settle([ended(found, Status.UNKNOWN)])
    other = Ledger(ledger_dsn, "x2")
    (asked,) = other.ask("payments", ["Refund"], 9, 0.0)
    (again,) = other.recall("payments", Wanted("Refund", 9, 60.0), 1e9)
    other.settle([ended(again, Status.FAILED)])
    other.plan([undoing(attempt=2)], [])
    (second,) = claim(other)
    other.settle([ended(second, Status.IN_FLIGHT, reference="bank-7", until_s=60)])
    (polled,) = other.poll("payments", "Refund", 9, 0.0, 60)
    other.close()
    assert [told(each) for each in (asked, again, second, polled)] == [Paid(reference="r-7")] * 4


def test_what_a_person_has_settled_has_no_event_of_the_users(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    ledger.settle([ended(forward, Status.UNKNOWN)])
    ledger.decide(forward.key, declared_done("seen at the bank"), "ann")
    ledger.plan([undoing()], [])
    (found,) = claim(ledger)
    assert found.forward_type == "refold.succeeded"
    assert told(found) is None


class Bank:
    """Pays, and repays at the second attempt, by the reference of what it undoes."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.told: list[Any] = []
        self.executor = Executor("bank")

        @self.executor.action(Pay, truth=ByKey(remembers_s=3600))
        def pay(command: Pay, call: Call) -> Paid:
            assert (call.undoes, call.forward_event(Paid)) == ("", None)
            return Paid(reference=f"r-{call.instance}")

        def reconcile(command: Repay, call: Call) -> Any:
            self._note(call)
            return Done() if len(self.told) > 2 else CannotTell()

        truth = Queryable(reconcile, 0.0)
        if asynchronous:

            @self.executor.action(Repay, truth=truth)
            async def repay(command: Repay, call: Call) -> None:
                self._repay(call)

        else:

            @self.executor.action(Repay, truth=truth)
            def repay_now(command: Repay, call: Call) -> None:
                self._repay(call)

    def _repay(self, call: Call) -> None:
        self._note(call)
        if call.attempt == 1:
            raise NotDone("busy")
        raise ConnectionResetError

    def _note(self, call: Call) -> None:
        assert call.forward_event(PayDeclined) is None
        self.told.append((call.undoes, call.forward_event(Paid)))


@pytest.mark.kafka
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_each_attempt_and_each_question_is_told_the_same_after_a_restart_too(
    desk: Desk, asynchronous: bool
) -> None:
    bank = Bank(asynchronous=asynchronous)
    key = desk.send("i")
    undo = desk.send("i", Repay(amount=1), undoes=key, event="e2")
    with desk.running(bank.executor):
        desk.until_heard(undo, "failed")
    desk.send("i", Repay(amount=1), undoes=key, event="e2", attempt=2)
    with desk.running(bank.executor):
        desk.until_heard(undo, "failed", "unknown", "succeeded")
    assert set(bank.told) == {(key, Paid(reference="r-i"))}
    assert len(bank.told) >= 3
