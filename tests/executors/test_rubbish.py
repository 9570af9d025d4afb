"""Handlers and other sides that say what nobody can use: told, kept, and in nobody's way."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.executors.desk import Desk, Paid, Pay, PayDeclined

from refold.executors import dispatch
from refold.executors.executor import Call, Executor
from refold.executors.outcome import (
    Accepted,
    CannotTell,
    Declined,
    Done,
    Incurable,
    NotDone,
)
from refold.executors.truth import Local, Neither, Queryable
from refold.snapshots.sessions import Connection

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
NAN, INF = float("nan"), float("inf")


class MuteError(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("mute")

    __repr__ = __str__


def raiser(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def odd(value: Any) -> Any:
    """Typed as whatever is wanted."""
    return value


async def slept() -> None:
    await asyncio.sleep(0)


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "mute": (raiser(MuteError()), "unknown"),
    "mute reason": (raiser(NotDone(odd(MuteError()))), "failed"),
    "no reason": (raiser(Incurable("X", odd(None))), "failed"),
    "code of a number": (raiser(Incurable(odd(404), "x")), "failed"),
    "half a character": (raiser(Incurable("\ud800", "\ud800 \0")), "failed"),
    "code without end": (raiser(NotDone("x", code="c" * 10_000_000)), "failed"),
    "not a number": (raiser(NotDone("x", NAN)), "failed"),
    "later than ever": (raiser(NotDone("x", INF)), "failed"),
    "in the past": (raiser(NotDone("x", -1e300)), "failed"),
    "a text for a time": (raiser(NotDone("x", odd("5"))), "failed"),
    "declined with nothing": (raiser(Declined(None)), "failed"),
    "declined at length": (raiser(Declined(PayDeclined(reason="x" * 2_000_000))), "failed"),
    "NUL": (raiser(ValueError("\0\ud800")), "unknown"),
    "too large": (lambda: Paid(reference="x" * 2_000_000), "unknown"),
    "already, perhaps": (lambda: Done(Paid(reference="r"), already=odd("yes")), "succeeded"),
    "accepted nothing": (lambda: Accepted("", 60), "unknown"),
    "accepted a number": (lambda: Accepted(odd(7), 60), "unknown"),
    "accepted without end": (lambda: Accepted("x" * 10_000, 60), "unknown"),
    "accepted for ever": (lambda: Accepted("r", INF), "unknown"),
    "accepted, not a number": (lambda: Accepted("r", NAN), "unknown"),
    "accepted before": (lambda: Accepted("r", -1), "unknown"),
    "to be awaited": (slept, "unknown"),
    "a class": (lambda: Paid, "unknown"),
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_whatever_a_handler_gives_is_recorded_and_the_slot_comes_back(
    desk: Desk, asynchronous: bool
) -> None:
    executor = Executor("bank")

    def act(call: Call) -> Any:
        return ENDS[call.instance][0]() if call.instance in ENDS else Paid(reference="r")

    if asynchronous:

        @executor.action(Pay, truth=Neither(), concurrency=1)
        async def pay(command: Pay, call: Call) -> Any:
            return act(call)

    else:

        @executor.action(Pay, truth=Neither(), concurrency=1)
        def pay_now(command: Pay, call: Call) -> Any:
            return act(call)

    keys = {name: desk.send(name) for name in ENDS}
    with desk.running(executor):
        for name, (_, outcome) in ENDS.items():
            desk.until_heard(keys[name], outcome)
        desk.until_heard(desk.send("last"), "succeeded")


def test_deadlines_of_whole_and_of_broken_seconds_are_accepted_side_by_side(desk: Desk) -> None:
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither())
    async def pay(command: Pay, call: Call) -> Any:
        number = int(call.instance)
        if number % 3 == 0:
            return Accepted(f"r{number}", 60)
        return Accepted(f"r{number}", 60.5) if number % 3 == 1 else Paid(reference="r")

    keys = [desk.send(str(number)) for number in range(60)]
    with desk.running(executor):
        for number, key in enumerate(keys):
            if number % 3 == 2:
                desk.until_heard(key, "succeeded")
            else:
                desk.until(
                    lambda k=key: bool(  # type: ignore[misc]
                        desk.sql("SELECT key FROM workflow_reference WHERE key = %s", k)
                    ),
                    "the reference",
                )


def test_a_handler_that_is_asynchronous_by_another_way_is_awaited(desk: Desk) -> None:
    executor = Executor("bank")

    class Way:
        async def __call__(self, command: Pay, call: Call) -> Paid:
            await asyncio.sleep(0)
            return Paid(reference="awaited")

    executor.action(Pay, truth=Neither())(Way())
    with desk.running(executor):
        (told,) = desk.until_heard(desk.send("i"), "succeeded")
    assert told.event == Paid(reference="awaited")


ANSWERS: dict[str, Any] = {
    "mute": raiser(MuteError()),
    "nothing": lambda: None,
    "a mute value": MuteError,
    "a reason of a number": lambda: CannotTell(odd(7)),
    "an event that cannot be sent": lambda: Paid(reference="r"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_whatever_a_question_gives_the_next_one_is_asked(desk: Desk, name: str) -> None:
    asked: list[str] = []
    executor = Executor("bank")

    def reconcile(command: Pay, call: Call) -> Any:
        asked.append(call.key)
        return ANSWERS[name]() if len(asked) < 4 else Done(Paid(reference="r"))

    @executor.action(Pay, truth=Queryable(reconcile, visible_after_s=0.0), deadline_s=1.0)
    def pay(command: Pay, call: Call) -> Any:
        raise TimeoutError

    with desk.running(executor):
        desk.until_heard(desk.send("i"), "unknown", "succeeded")


def test_a_question_that_is_asynchronous_by_another_way_is_awaited(desk: Desk) -> None:
    executor = Executor("bank")

    async def reconcile(command: Pay, call: Call) -> Done:
        return Done(Paid(reference="asked"))

    def asking(command: Pay, call: Call) -> Any:
        return reconcile(command, call)

    @executor.action(Pay, truth=Queryable(asking, visible_after_s=0.0), deadline_s=1.0)
    def pay(command: Pay, call: Call) -> Any:
        raise TimeoutError

    with desk.running(executor):
        desk.until_heard(desk.send("i"), "unknown", "succeeded")


def test_a_question_that_will_not_be_cancelled_is_given_up(desk: Desk) -> None:
    asked: list[str] = []
    executor = Executor("bank")

    async def reconcile(command: Pay, call: Call) -> Any:
        asked.append(call.key)
        end = asyncio.get_running_loop().time() + (10.0 if len(asked) < 2 else 0.0)
        while asyncio.get_running_loop().time() < end:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue
        return Done(Paid(reference="r"))

    @executor.action(Pay, truth=Queryable(reconcile, visible_after_s=0.0), deadline_s=0.3)
    def pay(command: Pay, call: Call) -> Any:
        raise TimeoutError

    with desk.running(executor):
        desk.until_heard(desk.send("i"), "unknown", "succeeded")
    assert len(asked) > 1


def test_questions_that_never_end_do_not_take_every_thread(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "QUESTIONS_MOST", 4)
    executor = Executor("bank")
    asked: list[str] = []
    ends = threading.Event()

    def reconcile(command: Pay, call: Call) -> Any:
        asked.append(call.key)
        ends.wait(60)
        return Done(Paid(reference="r"))

    @executor.action(Pay, truth=Queryable(reconcile, visible_after_s=0.0), deadline_s=0.05)
    def pay(command: Pay, call: Call) -> Any:
        raise TimeoutError

    keys = [desk.send(f"i{number}") for number in range(8)]
    with desk.running(executor):
        desk.until(lambda: len(asked) == 4, "four to hang")
        desk.until(
            lambda: any("have not ended" in each for (each,) in desk.sql(
                "SELECT reason FROM workflow_action")), "the next one to be put off"
        )  # fmt: skip
        assert len(asked) == 4
        ends.set()
        desk.until_all_done(keys)


def swallow(connection: Connection) -> None:
    try:
        connection.execute("SELECT 1/0")
    except Exception:
        return


def broken_behind_a_commit(connection: Connection) -> None:
    connection.commit()
    connection.execute("SELECT 1/0")


LOCAL: dict[str, tuple[Callable[[Connection], Any], str, int]] = {
    # what the handler does → outcome, rows that stand afterwards (beside those of "commits")
    "commits": (lambda c: c.commit(), "unknown", 1),
    "commits and raises": (broken_behind_a_commit, "unknown", 1),
    "rolls back": (lambda c: c.rollback(), "unknown", 0),
    "swallows": (swallow, "failed", 0),
    "breaks what is looked at last": (
        lambda c: c.execute("INSERT INTO public.child VALUES ('nobody')"), "failed", 0,
    ),
    "mute": (lambda c: raiser(MuteError())(), "failed", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_handler_that_breaks_its_transaction_is_told_once(desk: Desk, name: str) -> None:
    act, outcome, left = LOCAL[name]
    calls: list[str] = []
    executor = Executor("bank")
    desk.sql("CREATE TABLE public.account (key text PRIMARY KEY)")
    desk.sql(
        "CREATE TABLE public.child (key text REFERENCES public.account"
        " DEFERRABLE INITIALLY DEFERRED)"
    )

    @executor.action(Pay, truth=Local(), deadline_s=0.5)
    def pay(command: Pay, call: Call, connection: Connection) -> Any:
        calls.append(call.instance)
        connection.execute("INSERT INTO public.account VALUES (%s)", [call.key])
        if call.instance == "i":
            act(connection)
        return Paid(reference="r")

    with desk.running(executor):
        key = desk.send("i")
        desk.until_heard(key, outcome)
        after = desk.send("after")
        desk.until_heard(after, "succeeded")
        assert desk.status(key) == outcome
    assert calls.count("i") == 1
    assert len(desk.sql("SELECT key FROM public.account WHERE key <> %s", after)) == left


def test_an_end_that_the_ledger_refuses_is_unknown_and_holds_up_no_other(desk: Desk) -> None:
    executor = Executor("bank")
    desk.sql(
        """CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'no such thing' USING ERRCODE = '22000'; END $$"""
    )
    desk.sql(
        """CREATE TRIGGER picky BEFORE UPDATE ON workflow_action FOR EACH ROW
           WHEN (NEW.instance_id = 'bad' AND NEW.status = 'succeeded') EXECUTE FUNCTION picky()"""
    )

    @executor.action(Pay, truth=Neither())
    async def pay(command: Pay, call: Call) -> Paid:
        return Paid(reference="r")

    keys = {name: desk.send(name) for name in ("i0", "i1", "bad", "i2", "i3")}
    with desk.running(executor) as service:
        for name, key in keys.items():
            desk.until_heard(key, "unknown" if name == "bad" else "succeeded")
        desk.until_heard(desk.send("i4"), "succeeded")
        assert service.health.status.away["ends of calls"] == ""
