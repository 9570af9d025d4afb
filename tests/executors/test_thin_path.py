"""Worker, executor and ledger on real servers: from an event to an effect and back to state."""

from collections import Counter
from threading import Thread
from typing import Any

import pytest
from tests.kafka.worker.stage import Stage

from refold.examples.order.graph import (
    Charge,
    Charged,
    ChargeDeclined,
    OrderPlaced,
    Reserve,
    Reserved,
)
from refold.executors.executor import Call, Executor
from refold.executors.migrate import migrate_ledger
from refold.executors.outcome import Declined, Done, Undone
from refold.executors.service import Service
from refold.executors.truth import Neither, Queryable, Truth
from refold.topics.settings import Kafka, Postgres, Settings

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


class Bank:
    """The outside world: journals every effect by its key."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.lose_answers = 0

    def charge(self, key: str) -> str:
        self.effects[key] += 1
        if self.lose_answers:
            self.lose_answers -= 1
            raise ConnectionResetError("the line is dead")
        return f"receipt of {key[-8:]}"


def executor_of(bank: Bank, truth: Truth) -> Executor:
    executor = Executor("order")

    @executor.action(Reserve, truth=Neither())
    async def reserve(command: Reserve, call: Call) -> Reserved:
        return Reserved()

    @executor.action(Charge, truth=truth, deadline_s=1.0)
    def charge(command: Charge, call: Call) -> Charged:
        if command.amount > 1000:
            raise Declined(ChargeDeclined("too much"))
        return Charged(bank.charge(call.key))

    return executor


def asking(bank: Bank) -> Queryable:
    def reconcile(command: Charge, call: Call) -> Any:
        return Done(Charged("asked for")) if bank.effects[call.key] else Undone()

    return Queryable(reconcile, visible_after_s=0.1)


class Running:
    """A service on a thread of its own."""

    def __init__(self, stage: Stage, executor: Executor, dsn: str) -> None:
        settings = Settings(
            namespace=stage.namespace,
            kafka=Kafka(bootstrap=stage.bootstrap),
            postgres=Postgres(dsn=dsn),
        )
        self.service = Service(settings, executor)
        self._thread = Thread(target=self.service.run, daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.service.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_a_command_is_done_once_and_its_result_moves_the_instance(one: Stage) -> None:
    migrate_ledger(one.dsn)
    bank = Bank()
    one.put(("o-1", "e1", OrderPlaced(("book",), 100)), ("o-2", "e2", OrderPlaced(("car",), 9999)))
    with (
        one.working(snapshot_max_age_s=0.05),
        Running(one, executor_of(bank, asking(bank)), one.dsn),
    ):
        one.until(lambda: one.states().get("o-1") == "done", "o-1 to be done")
        one.until(lambda: one.states().get("o-2") == "failed", "o-2 to be failed")
    assert list(bank.effects.values()) == [1]


def test_an_answer_that_is_lost_is_asked_for_and_never_called_again(one: Stage) -> None:
    migrate_ledger(one.dsn)
    bank = Bank()
    bank.lose_answers = 1
    one.put(("o-1", "e1", OrderPlaced(("book",), 100)))
    with (
        one.working(snapshot_max_age_s=0.05),
        Running(one, executor_of(bank, asking(bank)), one.dsn),
    ):
        one.until(lambda: one.states().get("o-1") == "done", "o-1 to be done")
    assert list(bank.effects.values()) == [1]
