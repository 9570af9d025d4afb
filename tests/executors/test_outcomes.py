"""What a handler says, raises or returns, and what becomes of the row and the workflow (B052)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.executors.desk import Desk, Paid, Pay, PayDeclined

from refold.executors.executor import Call, Executor
from refold.executors.outcome import Declined, Done, Incurable, NotDone, Unavailable, refused
from refold.executors.truth import ByKey, Neither

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def status(code: int, retry_after: str | None = None) -> Callable[[], Any]:
    return lambda: refused(code, "said the bank", retry_after)


def raiser(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


HANDLERS: dict[str, tuple[Callable[[], Any], str, str, dict[str, Any]]] = {
    # name: (what the handler does, row, outcome told, fields of the event)
    "event": (lambda: Paid(reference="r"), "succeeded", "succeeded", {"reference": "r"}),
    "nothing": (lambda: None, "succeeded", "succeeded", {"text": ""}),
    "already": (lambda: Done(Paid(reference="r"), already=True), "succeeded", "succeeded", {}),
    "declined": (
        raiser(Declined(PayDeclined(reason="no funds"))), "failed", "failed",
        {"reason": "no funds"},
    ),
    "not done": (
        raiser(NotDone("later", 2.5)), "failed", "failed",
        {"code": "NOT_DONE", "retry": True, "retry_after_ms": 2500},
    ),
    "down": (raiser(Unavailable("no")), "failed", "failed", {"code": "UNAVAILABLE", "retry": True}),
    "incurable": (
        raiser(Incurable("BAD_IBAN", "no such account")), "failed", "failed",
        {"code": "BAD_IBAN", "retry": False, "text": "no such account"},
    ),
    "400": (status(400), "failed", "failed", {"code": "HTTP_400", "retry": False}),
    "409": (status(409), "failed", "failed", {"code": "HTTP_409", "retry": False}),
    "422": (status(422), "failed", "failed", {"code": "HTTP_422", "retry": False}),
    "429": (
        status(429, "7"), "failed", "failed",
        {"code": "HTTP_429", "retry": True, "retry_after_ms": 7000},
    ),
    "503": (
        status(503, "2"), "failed", "failed",
        {"code": "HTTP_503", "retry": True, "retry_after_ms": 2000},
    ),
    "500": (status(500), "unknown", "unknown", {}),
    "502": (status(502), "unknown", "unknown", {}),
    "504": (status(504), "unknown", "unknown", {}),
    "ValueError": (raiser(ValueError("bug")), "unknown", "unknown", {"text": "ValueError: bug"}),
    "KeyError": (raiser(KeyError("x")), "unknown", "unknown", {}),
    "MemoryError": (raiser(MemoryError()), "unknown", "unknown", {"text": "MemoryError"}),
    "SystemExit": (raiser(SystemExit(1)), "unknown", "unknown", {}),
    "KeyboardInterrupt": (raiser(KeyboardInterrupt()), "unknown", "unknown", {}),
    "CancelledError": (raiser(asyncio.CancelledError()), "unknown", "unknown", {}),
    "ConnectionResetError": (raiser(ConnectionResetError("dead")), "unknown", "unknown", {}),
    "TimeoutError": (raiser(TimeoutError()), "unknown", "unknown", {}),
    "unencodable": (lambda: Paid(reference=7), "unknown", "unknown", {}),  # type: ignore[arg-type]
    "no event": (object, "unknown", "unknown", {}),
    "a command": (lambda: Pay(amount=1), "unknown", "unknown", {}),
}  # fmt: skip


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_every_end_of_a_call_is_recorded_and_told_once_and_the_process_survives(
    desk: Desk, asynchronous: bool
) -> None:
    calls: list[str] = []
    executor = Executor("bank")

    def act(call: Call) -> Any:
        calls.append(call.instance)
        return HANDLERS[call.instance][0]()

    if asynchronous:

        @executor.action(Pay, truth=Neither())
        async def pay(command: Pay, call: Call) -> Any:
            return act(call)

    else:

        @executor.action(Pay, truth=Neither())
        def pay_now(command: Pay, call: Call) -> Any:
            return act(call)

    keys = {name: desk.send(name) for name in HANDLERS}
    with desk.running(executor):
        for name, (_, row, outcome, fields) in HANDLERS.items():
            (told,) = desk.until_heard(keys[name], outcome)
            assert desk.status(keys[name]) == row, name
            assert told.attempt == 1
            assert told.source == "/refold/executor/bank"
            found = {field: getattr(told.event, field) for field in fields}
            assert found == fields, name
        key = desk.send("last, after all of them")  # the process still works
        HANDLERS["last, after all of them"] = HANDLERS["event"]
        try:
            desk.until_heard(key, "succeeded")
        finally:
            del HANDLERS["last, after all of them"]
    assert sorted(calls) == sorted([*HANDLERS, "last, after all of them"])


def test_what_is_done_and_cannot_be_told_is_not_called_again(desk: Desk) -> None:
    calls: list[str] = []
    executor = Executor("bank")

    @executor.action(Pay, truth=ByKey(remembers_s=3600), deadline_s=1.0)
    def pay(command: Pay, call: Call) -> Any:
        calls.append(call.instance)
        if call.instance == "good" and calls.count("good") < 4:
            raise TimeoutError  # repeated by its key, which shows that repetitions go on
        return Paid(reference="r") if call.instance == "good" else Paid(reference=None)  # type: ignore[arg-type]

    bad = desk.send("bad")
    with desk.running(executor):
        desk.until_heard(bad, "unknown")
        good = desk.send("good")
        desk.until_heard(good, "unknown", "succeeded")
        assert desk.status(bad) == "unknown"
    assert calls.count("bad") == 1
    assert (
        "cannot be sent" in desk.sql("SELECT reason FROM workflow_action WHERE key = %s", bad)[0][0]
    )


def test_who_is_not_let_in_pauses_that_action_and_uses_up_no_attempt(desk: Desk) -> None:
    locked = True
    calls: list[str] = []
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither(), concurrency=1)
    def pay(command: Pay, call: Call) -> Paid:
        calls.append(call.instance)
        if locked:
            refused(401, "bad token")
        return Paid(reference="r")

    keys = [desk.send(f"i{number}") for number in range(5)]
    with desk.running(executor) as service:
        desk.until(lambda: bool(service.health.status.gates), "the action to pause")
        (gate,) = service.health.status.gates
        assert (gate.kind, gate.name, gate.state) == ("action", "Pay", "open")
        assert "bad token" in gate.reason
        assert any("Pay is open" in each for each in service.health.status.troubles(0.0))
        desk.until(lambda: service.health.status.standing.planned == 5, "all rows to wait")
        assert len(calls) == 1
        assert desk.heard() == []
    locked = False
    with desk.running(executor):  # somebody has mended it
        for key in keys:
            (told,) = desk.until_heard(key, "succeeded")
            assert told.attempt == 1
    assert calls[1:] == ["i0", "i1", "i2", "i3", "i4"]  # in order
