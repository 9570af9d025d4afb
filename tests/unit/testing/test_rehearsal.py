"""An executor's handlers in memory: what they raise and return means what it means when it runs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.processors.trips import (
    BookHotel,
    CancelHotel,
    Cancelled,
    HotelBooked,
    HotelFull,
    Ordered,
    Paid,
    Pay,
    Refund,
    driver,
)

from refold.executors.executor import Call, Executor
from refold.executors.model import Status
from refold.executors.outcome import (
    Accepted,
    Declined,
    Done,
    Incurable,
    NotDone,
    Unauthorized,
    Undone,
)
from refold.executors.truth import ByKey, Local, Neither, Queryable, Then, Truth
from refold.schemas.errors import UsageError
from refold.testing.driver import Driver
from refold.testing.rehearsal import Rehearsal

Payment = Callable[[Pay, Call], Any]


def acting(
    pay: Payment, truth: Truth, hotel: Payment | None = None
) -> tuple[Driver, Rehearsal, list[str]]:
    """A trip whose payment goes so; and what was called, in order."""
    called: list[str] = []
    executor = Executor("world")

    def does(kind: type, truth: Truth, handler: Callable[[Any, Call], Any]) -> None:
        @executor.action(kind, truth=truth)
        def handle(command: Any, call: Call) -> Any:
            called.append(kind.__name__)
            return handler(command, call)

    does(BookHotel, Neither(), hotel or (lambda _, __: HotelBooked("12")))
    does(Pay, truth, pay)
    for kind in (CancelHotel, Refund):
        does(kind, Neither(), lambda _, __: None)
    made = driver()
    made.send("t", Ordered(300))
    return made, Rehearsal(made, executor), called


def lost(_: Any, __: Call) -> Any:
    raise ConnectionResetError


def lost_once() -> Payment:
    answers = iter([ConnectionResetError()])

    def pay(_: Pay, __: Call) -> Paid:
        for answer in answers:
            raise answer
        return Paid("r")

    return pay


def pay_status(made: Rehearsal) -> Status:
    (status,) = (each.status for each in made.rows.values() if each.send.type == "Pay")
    return status


def test_what_a_handler_returns_is_the_answer() -> None:
    made, run, called = acting(lambda _, __: Paid("r"), Neither())
    run.run()
    assert made.state("t") == "done"
    assert called == ["BookHotel", "Pay"]


def test_an_asynchronous_handler_acts_and_is_asked_too() -> None:
    executor = Executor("world")

    async def reconcile(_: Any, __: Any) -> Done:
        return Done(HotelBooked("12"))

    @executor.action(BookHotel, truth=Queryable(reconcile, visible_after_s=0))
    async def book(_: BookHotel, __: Call) -> HotelBooked:
        raise ConnectionResetError

    made = driver()
    made.send("t", Ordered(300))
    Rehearsal(made, executor).run(timedelta(minutes=1))
    assert made.state("t") == "paying"


def test_a_refusal_moves_the_graph_and_what_was_done_is_undone() -> None:
    def full(_: Any, __: Call) -> Any:
        raise Declined(HotelFull())

    made, run, called = acting(lambda _, __: Paid("r"), Neither(), full)
    run.run()
    assert made.state("t") == "undone"
    assert called == ["BookHotel"]


def test_what_certainly_did_nothing_is_tried_again_as_the_graph_says() -> None:
    def busy(_: Any, __: Call) -> Any:
        raise NotDone("busy")

    made, run, called = acting(busy, Neither())
    run.run()
    assert made.state("t") == "undone"
    assert called == ["BookHotel", "Pay", "Pay", "Pay", "CancelHotel"]


def test_what_no_attempt_can_cure_is_not_tried_again() -> None:
    def wrong(_: Any, __: Call) -> Any:
        raise Incurable("WRONG_AMOUNT")

    made, run, called = acting(wrong, Neither())
    run.run()
    assert made.state("t") == "undone"
    assert called.count("Pay") == 1


def test_an_unknown_outcome_under_a_key_is_called_again_with_the_same_key_and_attempt() -> None:
    made, run, called = acting(lost_once(), ByKey(remembers_s=3600))
    run.run()
    assert made.state("t") == "done"
    assert called.count("Pay") == 2
    assert made.instance("t").context.doubts == 1
    assert [send.attempt for send in made.sent if send.type == "Pay"] == [1]


def test_a_key_that_may_be_forgotten_is_not_called_again() -> None:
    made, run, called = acting(lost, ByKey(remembers_s=60))
    run.run(timedelta(minutes=50))
    (row,) = (each for each in run.rows.values() if each.stuck)
    assert row.send.type == "Pay"
    assert made.state("t") == "paying"
    calls = called.count("Pay")
    assert calls > 1
    run.run(timedelta(minutes=5))
    assert called.count("Pay") == calls


def test_not_done_counts_only_when_the_other_side_would_show_it() -> None:
    asked: list[int] = []

    def reconcile(_: Any, __: Any) -> Any:
        asked.append(made.now_ms)
        return Undone()

    made, run, called = acting(lost_once(), Queryable(reconcile, visible_after_s=20))
    begun_ms = made.now_ms
    run.run()
    assert made.state("t") == "done"
    assert called.count("Pay") == 2
    assert asked[-1] - begun_ms >= 30_000  # the deadline of 10 s, and 20 s more
    assert len(asked) > 1


@pytest.mark.parametrize(
    ("then", "calls", "status"),
    [
        (Then.STOP, 1, Status.UNKNOWN),
        (Then.REPEAT, 2, Status.SUCCEEDED),
        (Then.ASSUME_DONE, 1, Status.SUCCEEDED),
    ],
)
def test_what_nobody_can_be_asked_about_ends_as_declared(
    then: Then, calls: int, status: Status
) -> None:
    _, run, called = acting(lost_once(), Neither(then))
    run.run(timedelta(minutes=50))
    assert (called.count("Pay"), pay_status(run)) == (calls, status)


def test_what_is_accepted_is_asked_for_at_its_deadline_and_not_before() -> None:
    made, run, _ = acting(
        lambda _, __: Accepted("ref", 60), Queryable(lambda _, __: Done(Paid("r")), 0)
    )
    run.run(timedelta(seconds=59))
    assert made.state("t") == "paying"
    run.run(timedelta(seconds=61))
    assert made.state("t") == "confirming"


def test_what_is_accepted_is_asked_about_before_its_deadline_where_that_is_declared() -> None:
    asked: list[int] = []

    def reconcile(_: Any, __: Any) -> Any:
        asked.append((made.now_ms - begun_ms) // 1000)
        return Done(Paid("r")) if len(asked) == 4 else Undone()

    accepted, truth = Accepted("ref", 3600), Queryable(reconcile, 0, poll_s=20)
    made, run, called = acting(lambda _, __: accepted, truth)
    begun_ms = made.now_ms
    run.run()
    assert made.state("t") == "done"
    assert asked == [20, 40, 60, 80]
    assert called.count("Pay") == 1
    assert made.instance("t").context.doubts == 0


def test_what_is_polled_in_vain_is_unknown_at_its_deadline_as_without_polls() -> None:
    truth = Queryable(lambda _, __: Undone(), 0, poll_s=20)
    made, run, called = acting(lambda _, __: Accepted("ref", 60), truth)
    run.run(timedelta(seconds=59))
    assert made.instance("t").context.doubts == 0
    run.run(timedelta(minutes=1))
    assert made.instance("t").context.doubts == 1
    assert called.count("Pay") == 2  # it has not done it: tried again


def test_an_action_of_unknown_outcome_is_settled_before_it_is_undone() -> None:
    made, run, called = acting(lost_once(), Queryable(lambda _, __: Done(Paid("r")), 0))
    made.pass_ms(1)
    run.run(timedelta(milliseconds=50))
    assert made.state("t") == "paying"
    made.send("t", Cancelled())
    run.run()
    assert made.state("t") == "undone"
    assert called == ["BookHotel", "Pay", "Refund", "CancelHotel"]


def test_an_action_that_was_never_called_is_cancelled_and_has_nothing_to_undo() -> None:
    def shut(_: Any, __: Call) -> Any:
        raise Unauthorized("who are you?")

    made, run, called = acting(shut, Neither())
    run.run(timedelta(minutes=1))
    assert pay_status(run) is Status.PLANNED
    made.send("t", Cancelled())
    run.run()
    assert made.state("t") == "undone"
    assert pay_status(run) is Status.CANCELLED
    assert "Refund" not in called


def test_a_local_action_needs_a_real_ledger() -> None:
    executor = Executor("world")
    executor.action(BookHotel, truth=Local())(lambda _, __, ___: HotelBooked("12"))
    made = driver()
    made.send("t", Ordered(300))
    with pytest.raises(UsageError, match="BookHotel is Local"):
        Rehearsal(made, executor).run()
