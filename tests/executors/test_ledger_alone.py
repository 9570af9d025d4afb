"""The ledger around any call of any service: no graph, no Kafka, no second effect."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.executors.rows import Rows

from refold.examples.order.graph import Charged
from refold.executors.ledger import Ledger
from refold.executors.model import Heard
from refold.executors.outcome import CannotTell, Declined, Done, NotDone, Undone
from refold.executors.recording import Recording
from refold.executors.truth import ByKey, Local, Neither, Queryable, Then, Truth
from refold.schemas.errors import Code, RecordError, UsageError

pytestmark = pytest.mark.postgres
BY_KEY = ByKey(remembers_s=3_600)
KEY = "refund:4711"


class Bank:
    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.raising: BaseException | None = None

    def refund(self, amount: int, key: str) -> dict[str, Any]:
        self.effects[key] += 1
        if self.raising is not None:
            raise self.raising
        return {"receipt": f"r-{amount}"}


@pytest.fixture
def bank() -> Bank:
    return Bank()


def action(ledger: Ledger, truth: Truth = BY_KEY, **more: Any) -> Recording:
    values: dict[str, Any] = {"request": {"amount": 4800}, "instance": "o-1"}
    return ledger.action(KEY, action="Refund", target="bank", truth=truth, **values | more)


def refund(ledger: Ledger, bank: Bank, truth: Truth = BY_KEY, **more: Any) -> Any:
    with action(ledger, truth, **more) as call:
        call.run(bank.refund, 4800, key=call.key)
    return call.result


def row_of(rows: Rows) -> dict[str, Any]:
    found = rows.questions.show(KEY)
    assert found is not None
    return found


def forget_the_lease(rows: Rows) -> None:
    rows.sql("UPDATE refold_ledger.workflow_action SET lease_until = now() - interval '1 s'")


def make_older(rows: Rows) -> None:
    rows.sql(
        "UPDATE refold_ledger.workflow_action SET dispatched = dispatched - interval '1 h', "
        "first_sent = first_sent - interval '1 h'"
    )


def lose_an_answer(ledger: Ledger, bank: Bank, truth: Truth) -> None:
    bank.raising = ConnectionResetError("the line is dead")
    with pytest.raises(ConnectionResetError):
        refund(ledger, bank, truth)
    bank.raising = None


def test_a_second_run_gives_the_stored_result_without_the_call(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    assert refund(ledger, bank) == {"receipt": "r-4800"}
    assert refund(ledger, bank) == {"receipt": "r-4800"}
    assert bank.effects == {KEY: 1}
    row = row_of(rows)
    assert (row["status"], row["action"], row["system"], row["truth"]) == (
        "succeeded", "Refund", "bank", "by_key",
    )  # fmt: skip
    assert (row["request"], row["result"]) == ('{"amount":4800}', '{"receipt":"r-4800"}')
    assert ledger.results("payments", -1) == []


def test_the_intent_is_durable_before_the_body_runs(ledger: Ledger, rows: Rows) -> None:
    with action(ledger):
        assert row_of(rows)["status"] == "in_flight"


def test_a_body_without_run_counts_as_done_when_it_ends(ledger: Ledger, rows: Rows) -> None:
    with action(ledger) as call:
        assert not call.done
        call.result = 7
    assert row_of(rows)["status"] == "succeeded"
    with action(ledger) as call:
        assert (call.done, call.result) == (True, 7)
        with pytest.raises(UsageError, match="its body ran again") as raised:
            call.result = 8
        assert raised.value.code is Code.KEY_REUSED


@pytest.mark.parametrize(
    "error", [TimeoutError("no answer"), KeyError("x"), KeyboardInterrupt(), SystemExit(1)]
)
def test_an_exception_means_unknown(
    ledger: Ledger, rows: Rows, bank: Bank, error: BaseException
) -> None:
    bank.raising = error
    with pytest.raises(type(error)):
        refund(ledger, bank)
    assert row_of(rows)["status"] == "unknown"


def test_what_is_declared_not_done_or_declined_has_failed_and_is_tried_anew(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    for number, error in enumerate((NotDone("busy"), Declined(None, "no such order")), 1):
        bank.raising = error
        with pytest.raises(type(error)):
            refund(ledger, bank)
        row = row_of(rows)
        assert (row["status"], row["attempt"], row["reason"]) == ("failed", number, error.reason)
    bank.raising = None
    assert refund(ledger, bank) == {"receipt": "r-4800"}
    assert row_of(rows)["attempt"] == 3


def test_the_same_key_with_another_request_is_refused_and_kept(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    refund(ledger, bank)
    with pytest.raises(UsageError) as raised:
        refund(ledger, bank, request={"amount": 9})
    assert raised.value.code is Code.KEY_REUSED
    assert bank.effects == {KEY: 1}
    assert len(row_of(rows)["clash_list"]) == 1


def test_a_call_that_is_under_way_is_not_made_beside_it(ledger: Ledger, bank: Bank) -> None:
    with action(ledger):
        with pytest.raises(UsageError) as raised:
            refund(ledger, bank)
        assert raised.value.code is Code.UNSETTLED
    assert bank.effects == {}


def test_by_key_the_call_is_made_again_for_as_long_as_the_other_side_remembers(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    lose_an_answer(ledger, bank, BY_KEY)
    make_older(rows)
    with pytest.raises(UsageError, match="nobody can be asked"):
        refund(ledger, bank, ByKey(remembers_s=600))
    assert refund(ledger, bank, ByKey(remembers_s=7_200)) == {"receipt": "r-4800"}
    assert row_of(rows)["attempt"] == 1


def test_a_repeated_call_that_did_nothing_leaves_the_outcome_unknown(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    lose_an_answer(ledger, bank, BY_KEY)
    bank.raising = NotDone("busy")
    with pytest.raises(NotDone):
        refund(ledger, bank)
    assert row_of(rows)["status"] == "unknown"


def test_a_queryable_one_is_asked_and_not_called(ledger: Ledger, rows: Rows, bank: Bank) -> None:
    answers: list[Any] = [CannotTell("later"), OSError("down"), Undone(), Done({"receipt": "x"})]
    asked = []

    def reconcile(request: Any, call: Any) -> Any:
        asked.append((request, call.key))
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    truth = Queryable(reconcile, visible_after_s=30)
    lose_an_answer(ledger, bank, truth)
    for said in ("cannot tell: later", "in vain", "too early to count"):
        with pytest.raises(UsageError, match=said):
            refund(ledger, bank, truth)
    assert refund(ledger, bank, truth) == {"receipt": "x"}
    assert refund(ledger, bank, truth) == {"receipt": "x"}
    assert asked == [({"amount": 4800}, KEY)] * 4
    assert bank.effects == {KEY: 1}


def test_a_queryable_one_that_was_not_done_is_called_when_that_counts(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    truth = Queryable(lambda request, call: Undone(), visible_after_s=30)
    lose_an_answer(ledger, bank, truth)
    make_older(rows)
    assert refund(ledger, bank, truth) == {"receipt": "r-4800"}
    assert bank.effects == {KEY: 2}


def test_an_asynchronous_question_is_asked_too(ledger: Ledger, bank: Bank) -> None:
    async def reconcile(request: Any, call: Any) -> Done:
        return Done("yes")

    truth = Queryable(reconcile, visible_after_s=0)
    lose_an_answer(ledger, bank, truth)
    assert refund(ledger, bank, truth) == "yes"


def test_neither_stops_unless_it_declares_what_then(ledger: Ledger, rows: Rows, bank: Bank) -> None:
    lose_an_answer(ledger, bank, Neither())
    with pytest.raises(UsageError, match="nobody can be asked"):
        refund(ledger, bank, Neither())
    assert refund(ledger, bank, Neither(Then.ASSUME_DONE)) is None
    assert bank.effects == {KEY: 1}
    assert row_of(rows)["status"] == "succeeded"


def test_what_the_other_side_answers_later_is_the_result_of_the_next_run(
    ledger: Ledger, bank: Bank
) -> None:
    for number, event in enumerate((None, {"receipt": "r-7"}, Charged(receipt="r-7"))):
        bank.raising = ConnectionError()
        with pytest.raises(ConnectionError):
            refund(ledger, bank, Neither(), request={"number": number})
        assert ledger.answer(Done(event), key=KEY) is Heard.SETTLED
        told = None if event is None else {"receipt": "r-7"}
        assert refund(ledger, bank, Neither(), request={"number": number}) == told
        ledger.runner.run("", lambda c: c.execute("TRUNCATE refold_ledger.workflow_action CASCADE"))
    assert bank.effects[KEY] == 3


def test_neither_repeats_where_that_is_declared(ledger: Ledger, bank: Bank) -> None:
    lose_an_answer(ledger, bank, Neither())
    assert refund(ledger, bank, Neither(Then.REPEAT)) == {"receipt": "r-4800"}
    assert bank.effects == {KEY: 2}


def test_a_process_that_dies_in_the_body_leaves_an_unknown_when_its_lease_is_over(
    ledger: Ledger, rows: Rows, bank: Bank
) -> None:
    script = f"""
import os
from refold.executors.ledger import Ledger
from refold.executors.truth import Neither
with Ledger({rows.dsn!r}, "dying").action({KEY!r}, action="Refund", target="bank",
        request={{"amount": 4800}}, truth=Neither(), instance="o-1"):
    os._exit(9)
"""
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, timeout=60, check=False)
    assert ended.returncode == 9
    with pytest.raises(UsageError, match="in_flight"):
        refund(ledger, bank, Neither())
    forget_the_lease(rows)
    with pytest.raises(UsageError, match="nobody can be asked"):
        refund(ledger, bank, Neither())
    assert row_of(rows)["status"] == "unknown"
    assert bank.effects == {}


@pytest.mark.parametrize("way", ["run", "result"])
def test_a_result_that_json_cannot_hold_is_done_all_the_same(
    ledger: Ledger, rows: Rows, way: str
) -> None:
    done = []

    def odd() -> object:
        done.append(1)
        return object()

    def once() -> None:
        with action(ledger) as call:
            if way == "run":
                call.run(odd)
            elif not call.done:
                call.result = odd()

    with pytest.raises(RecordError, match="is done, and its result") as raised:
        once()
    assert raised.value.code is Code.NOT_STORABLE
    once()
    assert len(done) == 1
    assert row_of(rows)["status"] == "succeeded"


def test_a_request_that_json_cannot_hold_is_refused_before_anything_is_done(
    ledger: Ledger, rows: Rows
) -> None:
    with pytest.raises(RecordError, match="the request"):
        action(ledger, request=object())

    def inner() -> None:
        with action(ledger):
            ledger.action("k", action="a", target="t", request=object(), truth=BY_KEY)

    with pytest.raises(RecordError, match="the request"):
        inner()
    assert row_of(rows)["status"] == "unknown"


@pytest.fixture
def shelf(rows: Rows) -> Iterator[None]:
    rows.sql("CREATE TABLE shelf (n int)")
    yield
    rows.sql("DROP TABLE shelf")


@pytest.mark.usefixtures("shelf")
def test_a_local_effect_commits_with_its_row(ledger: Ledger, rows: Rows) -> None:
    for _ in range(2):
        with action(ledger, Local()) as call:
            call.run(lambda: call.connection.execute("INSERT INTO shelf VALUES (1)").rowcount)
    assert call.result == 1
    assert rows.sql("SELECT n FROM shelf") == [(1,)]
    assert row_of(rows)["status"] == "succeeded"


@pytest.mark.usefixtures("shelf")
def test_a_local_effect_that_raises_is_taken_back_and_done_anew(ledger: Ledger, rows: Rows) -> None:
    def fail() -> None:
        with action(ledger, Local()) as call:
            call.connection.execute("INSERT INTO shelf VALUES (1)")
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fail()
    assert (rows.sql("SELECT n FROM shelf"), row_of(rows)["status"]) == ([], "failed")
    with action(ledger, Local()) as call:
        call.connection.execute("INSERT INTO shelf VALUES (2)")
    assert (rows.sql("SELECT n FROM shelf"), row_of(rows)["status"]) == ([(2,)], "succeeded")


@pytest.mark.usefixtures("shelf")
def test_a_local_one_whose_process_died_is_done_by_the_next(ledger: Ledger, rows: Rows) -> None:
    with action(ledger, Local()) as call:
        call._stack.close()  # the session ends before the commit
        call._connection = None
        call.done = True
    rows.sql("DELETE FROM shelf")
    forget_the_lease(rows)
    with action(ledger, Local()) as call:
        call.connection.execute("INSERT INTO shelf VALUES (3)")
    assert rows.sql("SELECT n FROM shelf") == [(3,)]


def test_only_a_local_one_has_a_connection(ledger: Ledger) -> None:
    with action(ledger) as call, pytest.raises(UsageError, match="only a Local one"):
        _ = call.connection


def test_it_works_beside_an_event_loop(ledger: Ledger, rows: Rows, bank: Bank) -> None:
    async def twice() -> list[Any]:
        found = []
        for _ in range(2):
            async with action(ledger) as call:
                if not call.done:
                    call.result = await asyncio.to_thread(bank.refund, 4800, call.key)
            found.append(call.result)
        return found

    assert asyncio.run(twice()) == [{"receipt": "r-4800"}] * 2
    assert bank.effects == {KEY: 1}


@pytest.mark.parametrize(
    "more", [{"truth": "by_key"}, {"deadline_s": 0}, {"truth": ByKey(remembers_s=1)}]
)
def test_a_declaration_that_cannot_be_kept_is_refused(ledger: Ledger, more: Any) -> None:
    with pytest.raises(UsageError) as raised:
        action(ledger, **more)
    assert raised.value.code is Code.BAD_SETTING
