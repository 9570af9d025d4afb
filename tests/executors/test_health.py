"""What an executor says of itself, and how it leaves alone who is down."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from threading import Event
from typing import Any

import pytest
from tests.executors.desk import Desk, Paid, Pay

from refold.executors.executor import Call, Executor
from refold.executors.health import StatusCollector
from refold.executors.ledger import Ledger
from refold.executors.outcome import Accepted, CannotTell, Declined, Done, Unavailable, Undone
from refold.executors.truth import Neither, Queryable
from refold.processors.endpoint import Endpoint
from refold.schemas.errors import Code, ServerError
from refold.testing.world import Manners
from refold.testing.world_server import WorldServer

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def fetched(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(port: int) -> dict[str, float]:
    lines = [each for each in fetched(port, "/metrics")[1].splitlines() if each[:1] != "#"]
    return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines)}


def test_a_system_that_is_down_is_left_alone_and_its_rows_wait_in_order(desk: Desk) -> None:
    down = True
    calls: list[str] = []
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither(), concurrency=1, system="the bank")
    def pay(command: Pay, call: Call) -> Paid:
        calls.append(call.key)
        if down:
            raise Unavailable("no route to the bank")
        return Paid(reference="r")

    keys = [desk.send(f"i{number}") for number in range(20)]
    with desk.running(executor) as service:
        desk.until(lambda: bool(service.health.status.gates), "the circuit to open")
        (gate,) = service.health.status.gates
        assert (gate.kind, gate.name) == ("system", "the bank")
        assert any("the bank is" in each for each in service.health.status.troubles(0.0))
        failed = len(calls)
        assert failed < 20
        down = False
        desk.until_all_done(keys[failed + 2 :])  # one or two may have tried while it was open
        desk.until(lambda: not service.health.status.gates, "the circuit to close")
    told = [desk.outcomes(key) for key in keys]
    assert told.count(["failed"]) <= failed + 2
    assert told[-1] == ["succeeded"]
    assert calls == keys


def test_the_endpoint_shows_what_is_unknown_and_who_is_down(desk: Desk) -> None:
    hang = Event()
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither(), deadline_s=30.0)
    def pay(command: Pay, call: Call) -> Paid:
        if command.amount == 0:
            raise TimeoutError
        hang.wait(60)
        return Paid(reference="r")

    unknown = desk.send("u", Pay(amount=0))
    with desk.running(executor, stuck_after_s=0.1) as service:
        endpoint = Endpoint(service.health, "127.0.0.1", 0, StatusCollector(service.health))
        endpoint.start()
        port = endpoint.port
        desk.until(lambda: fetched(port, "/readyz")[0] == 200, "it to be ready")
        desk.until_heard(unknown, "unknown")
        key = desk.send("i")
        desk.until_status(key, "in_flight")
        desk.until(
            lambda: (
                metrics(port)["refold_executor_unknown"] == 1
                and metrics(port)["refold_executor_in_flight"] == 1
            ),
            "one unknown and one in flight",
        )
        found = metrics(port)
        assert found["refold_executor_calls"] == 1
        assert found["refold_executor_stuck"] >= 1
        assert found["refold_executor_oldest_unknown_seconds"] > 0
        assert found["refold_executor_scanner_age_seconds"] < 30
        assert found['refold_executor_ends_total{action="Pay",status="unknown"}'] == 1
        status = json.loads(fetched(port, "/status")[1])
        assert status["standing"]["unknown"] == 1
        assert fetched(port, "/livez")[0] == 200
        hang.set()
        desk.until_heard(key, "succeeded")
        endpoint.close()
    assert desk.sql("SELECT count(*) FROM workflow_scanner") == [(1,)]


def test_a_scanner_that_stands_still_is_an_alarm(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither())
    def pay(command: Pay, call: Call) -> None: ...

    def away(*_: Any, **__: Any) -> Any:
        raise ServerError(Code.POSTGRES_AWAY, "it does not answer")

    monkeypatch.setattr(Ledger, "run_out", away)
    monkeypatch.setattr("refold.executors.health.SCANNER_S", 0.5)
    with desk.running(executor) as service:
        desk.until(
            lambda: any("scanned" in each for each in service.health.status.troubles(0.0)),
            "the alarm",
        )


def test_a_handler_that_blocks_the_event_loop_is_an_alarm(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refold.executors.health.OLD_S", 0.5)
    executor, free = Executor("bank"), Event()

    @executor.action(Pay, truth=Neither())
    async def pay(command: Pay, call: Call) -> None:
        free.wait(60)

    key = desk.send("i")
    with desk.running(executor) as service:
        desk.until(
            lambda: any("blocks" in each for each in service.health.status.troubles(0.0)),
            "the alarm",
        )
        assert service.health.status.age(0.0, 0.5)
        free.set()
        desk.until_heard(key, "succeeded")


def test_handlers_that_never_end_are_an_alarm(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refold.executors.dispatch.LATE_S", 0.1)
    executor, free = Executor("bank"), Event()

    @executor.action(Pay, truth=Neither(), deadline_s=0.2, concurrency=1)
    def pay(command: Pay, call: Call) -> None:
        free.wait(60)

    key = desk.send("i")
    with desk.running(executor) as service:
        desk.until(lambda: dict(service.health.status.hanging) == {"Pay": 1}, "the alarm")
        assert "1 handlers of Pay do not end" in service.health.status.troubles(0.0)
        free.set()
        desk.until_heard(key, "unknown", "succeeded")
        desk.until(lambda: not service.health.status.hanging, "the end")


def test_who_looks_for_calls_that_do_not_end_does_not_fail_in_silence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor("bank")

    @executor.action(Pay, truth=Neither(), deadline_s=0.2)
    async def pay(command: Pay, call: Call) -> None:
        await asyncio.sleep(0.5)

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("refold.executors.dispatch.overdue", broken)
    desk.send("i")
    with pytest.raises(ZeroDivisionError), desk.running(executor) as service:
        desk.until(lambda: service.health.stopping, "the process to end")


def accepting(answers: dict[str, Any]) -> Executor:
    executor = Executor("bank")

    def reconcile(command: Pay, call: Call) -> Any:
        return answers.get(call.key, Undone())

    @executor.action(Pay, truth=Queryable(reconcile, 0.0), deadline_s=0.3)
    def pay(command: Pay, call: Call) -> Accepted:
        return Accepted(f"tr-{call.instance}", deadline_s=command.amount / 10)

    return executor


def test_what_was_accepted_is_answered_by_its_reference(desk: Desk) -> None:
    key, other = desk.send("i", Pay(amount=6000)), desk.send("j", Pay(amount=6000))
    ledger = Ledger(desk.dsn, "callbacks")
    with desk.running(accepting({})) as service:
        desk.until(
            lambda: (
                desk.sql("SELECT count(*) FROM workflow_action WHERE reference <> ''") == [(2,)]
            ),
            "both to be accepted",
        )
        assert service.health.status.calls == 0  # it holds no slot
        ledger.answer(Done(Paid(reference="later")), target="bank", reference="tr-i")
        (done,) = desk.until_heard(key, "succeeded")
        ledger.answer(Done(Paid(reference="later")), target="bank", reference="tr-i")  # twice
        ledger.answer(Declined(Paid(reference="no")), key=other)
        desk.until_heard(other, "failed")
    ledger.close()
    assert done.event.reference == "later"
    assert desk.outcomes(key) == ["succeeded"]


def test_what_was_accepted_and_not_answered_in_time_is_asked_about(desk: Desk) -> None:
    answers: dict[str, Any] = {}
    key = desk.send("i", Pay(amount=1))
    answers[key] = CannotTell("not yet")
    with desk.running(accepting(answers)):
        desk.until_heard(key, "unknown")
        answers[key] = Done(Paid(reference="asked for"))
        desk.until_heard(key, "unknown", "succeeded")


@pytest.mark.crash
def test_several_processes_are_started_tended_and_stopped_by_one_command(desk: Desk) -> None:
    with WorldServer(desk.folder / "world.db", systems={"bank": Manners()}) as world:
        parent = desk.start("--processes", "2", WORLD=world.address)
        keys = [desk.send(f"i{number}") for number in range(10)]
        desk.until_all_done(keys)
        desk.until(
            lambda: desk.sql("SELECT count(DISTINCT worker) FROM workflow_scanner") == [(2,)],
            "two processes",
        )
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
