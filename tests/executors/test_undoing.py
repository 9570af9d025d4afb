"""Compensations beside a real executor: nothing is undone that may still be done (P33)."""

from threading import Event
from typing import Any

import pytest
from tests.executors.desk import Desk, Paid, Pay, Repay

from refold.executors.executor import Call, Executor
from refold.executors.outcome import CannotTell, Done, Incurable
from refold.executors.truth import Neither, Queryable

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


class Bank:
    """Pays, repays, and says what became of a payment when it wants to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.lose = False
        self.refuse = False
        self.tell = Event()
        self.executor = Executor("bank")
        self.executor.action(Pay, truth=Queryable(self.reconcile, 0.0), deadline_s=0.5)(self.pay)
        self.executor.action(Repay, truth=Neither())(self.repay)

    def pay(self, command: Pay, call: Call) -> Paid:
        self.calls.append("pay")
        if self.refuse:
            raise Incurable("NO", "never")
        if self.lose:
            raise ConnectionResetError
        return Paid(reference="paid")

    def repay(self, command: Repay, call: Call) -> None:
        self.calls.append("repay")

    def reconcile(self, command: Pay, call: Call) -> Any:
        return Done(Paid(reference="paid")) if self.tell.is_set() else CannotTell()


def test_what_was_done_is_undone(desk: Desk) -> None:
    bank = Bank()
    key = desk.send("i")
    undo = desk.send("i", Repay(amount=1), undoes=key, event="e2")
    with desk.running(bank.executor):
        desk.until_heard(undo, "succeeded")
    assert bank.calls == ["pay", "repay"]


def test_what_never_came_is_never_called_and_needs_no_undoing(desk: Desk) -> None:
    bank = Bank()
    key = desk.key("i")
    undo = desk.send("i", Repay(amount=1), undoes=key, event="e2")
    with desk.running(bank.executor):
        (told,) = desk.until_heard(undo, "succeeded")
        assert told.type == "refold.succeeded"
        desk.send("i")  # late
        marker = desk.send("j")
        desk.until_heard(marker, "succeeded")
        assert desk.status(key) == "cancelled"
    assert bank.calls == ["pay"]  # the marker's


def test_what_certainly_was_not_done_needs_no_undoing(desk: Desk) -> None:
    bank = Bank()
    bank.refuse = True
    key = desk.send("i")
    undo = desk.send("i", Repay(amount=1), undoes=key, event="e2")
    with desk.running(bank.executor):
        desk.until_heard(undo, "succeeded")
    assert bank.calls == ["pay"]


def test_what_may_have_been_done_is_cleared_up_before_it_is_undone(desk: Desk) -> None:
    bank = Bank()
    bank.lose = True
    key = desk.send("i")
    undo = desk.send("i", Repay(amount=1), undoes=key, event="e2")
    with desk.running(bank.executor):
        desk.until_heard(key, "unknown")
        bank.lose = False
        marker = desk.send("j")
        desk.until_heard(marker, "succeeded")
        assert desk.status(undo) == "planned"
        assert "repay" not in bank.calls
        bank.tell.set()
        desk.until_heard(undo, "succeeded")
    assert [each.key for each in desk.once()][-2:] == [key, undo]
    assert bank.calls.count("repay") == 1
