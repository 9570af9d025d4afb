"""`with ledger.action` when connections, threads, tasks and clocks do not behave."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier, Event
from typing import Any

import pytest
from tests.executors.rows import Rows
from tests.postgres.proxy import Rule, proxy

from refold.executors.ledger import Ledger
from refold.executors.outcome import NotDone, TooLate
from refold.executors.questions import Filter
from refold.executors.report import report
from refold.executors.truth import ByKey, Local, Neither, Queryable, Truth
from refold.schemas.errors import Code, UsageError

pytestmark = pytest.mark.postgres


def action(ledger: Ledger, truth: Truth | None = None, **more: Any) -> Any:
    values: dict[str, Any] = {
        "action": "Refund", "target": "bank", "request": {"amount": 1}, "truth": truth or Neither(),
    }  # fmt: skip
    return ledger.action(more.pop("key", "k"), **values | more)


def status(rows: Rows, key: str = "k") -> str:
    found = rows.questions.show(key)
    assert found is not None
    return str(found["status"])


def test_a_beginning_whose_answer_is_lost_has_begun(ledger_dsn: str, rows: Rows, cut: Rule) -> None:
    with proxy(ledger_dsn) as between, closing(Ledger(between.dsn, "x2")) as mine:
        between.rule = cut
        with action(mine) as call:
            assert between.cuts == 1
            call.run(lambda: 7)
    assert status(rows) == "succeeded"


def test_another_attempt_whose_answer_is_lost_has_begun(
    ledger: Ledger, ledger_dsn: str, rows: Rows, cut: Rule
) -> None:
    with pytest.raises(NotDone), action(ledger):
        raise NotDone("no")
    with proxy(ledger_dsn) as between, closing(Ledger(between.dsn, "x2")) as mine:
        with action(mine, key="other") as call:  # what is prepared is not cut
            call.run(lambda: 7)
        seen: list[bytes] = []

        def second(way: str, chunk: bytes) -> bool:
            if cut(way, chunk):
                seen.append(chunk)
            return len(seen) == 2  # the first COMMIT is of the look

        between.rule = second
        with action(mine) as call:
            assert between.cuts == 1
            assert call.attempt == 2
            call.run(lambda: 7)
    assert status(rows) == "succeeded"


def test_of_threads_that_begin_at_the_same_moment_one_calls(ledger: Ledger, rows: Rows) -> None:
    start, calls = Barrier(8), []

    def one(number: int) -> str:
        start.wait(30)
        try:
            with action(ledger) as call:
                call.run(lambda: calls.append(number))
        except UsageError as refused:
            return str(refused.code)
        return "done"

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(one, range(8)))
    assert len(calls) == 1
    assert set(said) <= {"done", "UNSETTLED"}
    assert status(rows) == "succeeded"


def test_of_threads_that_try_a_failed_one_again_one_calls(ledger: Ledger, rows: Rows) -> None:
    with pytest.raises(NotDone), action(ledger):
        raise NotDone("no")
    start, calls, go_on = Barrier(8), list[int](), Event()

    def held(number: int) -> None:
        calls.append(number)
        go_on.wait(30)

    def one(number: int) -> str:
        start.wait(30)
        try:
            with action(ledger) as call:
                call.run(held, number)
        except UsageError as refused:
            if refused.code == Code.UNSETTLED:
                go_on.set()
            return str(refused.code)
        return "done"

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(one, range(8)))
    assert len(calls) == 1
    assert set(said) <= {"done", "UNSETTLED"}


def test_a_body_that_was_held_up_past_its_deadline_does_not_send(
    ledger: Ledger, rows: Rows
) -> None:
    calls: list[int] = []
    with pytest.raises(TooLate), action(ledger, deadline_s=0.001) as call:  # noqa: PT012
        Event().wait(0.01)  # as if the process had been stopped
        call.run(lambda: calls.append(1))
    assert calls == []
    assert status(rows) == "failed"


@pytest.mark.parametrize("truth", [Neither(), Local()], ids=["neither", "local"])
def test_a_task_that_is_cancelled_before_it_began_leaves_nothing_open(
    ledger: Ledger, rows: Rows, truth: Truth
) -> None:
    async def scene() -> None:
        async def body() -> None:
            async with action(ledger, truth):
                raise AssertionError("it began")

        task = asyncio.ensure_future(body())
        await asyncio.sleep(0)  # it has asked for its beginning
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not rows.questions.find(Filter(instance="")) or status(rows) != "failed":
            await asyncio.sleep(0.02)  # another thread says so

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_process_that_died_is_seen_before_anybody_asks_for_its_key(
    ledger: Ledger, rows: Rows
) -> None:
    action(ledger, deadline_s=30.0).__enter__()  # and then it died
    assert rows.questions.find(Filter(status=odd("unknown"))) == []
    rows.sql("UPDATE refold_ledger.workflow_action SET lease_until = now() - interval '1 s'")
    (found,) = rows.questions.find(Filter(status=odd("unknown")))
    assert (found["key"], found["status"]) == ("k", "unknown")
    assert "died or hangs" in found["reason"]
    assert rows.questions.find(Filter(status=odd("in_flight"))) == []
    (line,) = report(rows.questions, Filter(), {}).lines
    assert (line.unknown, line.still_unknown, line.open) == (1, 1, 0)


def test_an_unknown_of_a_process_that_died_is_counted_after_it_was_cleared_up(
    ledger: Ledger, rows: Rows
) -> None:
    action(ledger, ByKey(remembers_s=100), deadline_s=30.0).__enter__()
    rows.sql("UPDATE refold_ledger.workflow_action SET lease_until = now() - interval '1 s'")
    with action(ledger, ByKey(remembers_s=100), deadline_s=30.0) as call:
        assert call.repeated
        call.run(lambda: 7)
    (line,) = report(rows.questions, Filter(), {}).lines
    assert (line.unknown, line.by_call, line.still_unknown) == (1, 1, 0)


class MuteError(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("mute")

    __repr__ = __str__


def test_an_exception_without_text_means_unknown_too(ledger: Ledger, rows: Rows) -> None:
    with pytest.raises(MuteError), action(ledger):
        raise MuteError
    assert status(rows) == "unknown"
    with pytest.raises(MuteError), action(ledger, Local(), key="l"):
        raise MuteError
    assert status(rows, "l") == "failed"


def odd(value: Any) -> Any:
    """Typed as whatever is wanted."""
    return value


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": ""}, {"key": "a\0b"}, {"key": "x" * 256}, {"key": "\ud800"}, {"key": odd(7)},
        {"action": "a\0"}, {"action": "x" * 10_000}, {"target": "\ud800"}, {"target": ""},
        {"instance": "a\0"}, {"instance": "x" * 10_000}, {"trace": "\0"},
        {"deadline_s": float("nan")}, {"deadline_s": float("inf")}, {"deadline_s": 1e300},
        {"deadline_s": -1}, {"truth": Queryable(lambda *_: None, float("nan"))},  # type: ignore[arg-type]
    ],
    ids=lambda each: ascii(each)[:40],
)  # fmt: skip
def test_what_no_ledger_can_hold_is_refused_before_anything_is_done(
    ledger: Ledger, rows: Rows, wrong: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        action(ledger, **wrong)
    assert rows.questions.find() == []
