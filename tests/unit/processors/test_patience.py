"""What undoes another command needs no declaration: it has its target, and patience."""

from datetime import timedelta

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
    Trip,
    cancel_hotel,
    refund,
)

from refold import ANY, Late, Retry, StateGraph, failed
from refold.processors.spec import PATIENT
from refold.schemas.errors import Code, DefinitionError
from refold.testing.driver import Driver

DAY_S = 86_400


def base(hotels: str = "hotels", **cancel: object) -> StateGraph[Trip]:
    """A trip; `cancel` declares `CancelHotel`, which is left alone without it."""
    trip = StateGraph("trip", version=1, context=Trip, initial="new", tenant="test")
    trip.command(
        BookHotel, target=hotels, answers=(HotelBooked, HotelFull), compensate=cancel_hotel
    )
    trip.command(Pay, target="bank", answers=(Paid,), compensate=refund)
    if cancel:
        trip.command(CancelHotel, **cancel)  # type: ignore[arg-type]
    trip.on("new", Ordered, to="booking")
    trip.on("booking", HotelBooked, to="paying")
    trip.on("paying", Paid, to="done")
    trip.enter("booking", lambda trip, _: BookHotel(trip.price // 100))
    trip.enter("paying", lambda trip, _: Pay(trip.price))
    trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
    trip.final("done", late={ANY: Late.RECORD})
    trip.final("undone", late={ANY: Late.RECORD})
    return trip


def cancelling(trip: StateGraph[Trip]) -> Driver:
    """A hotel was booked, and its undoing is on its way."""
    driver = Driver(trip)
    driver.send("t", Ordered(300))
    driver.done(driver.sent[-1], HotelBooked("12"))
    driver.send("t", Cancelled())
    driver.done(driver.sent[-1])  # the payment, which was on its way, is undone
    assert driver.sent[-1].type == "CancelHotel"
    return driver


def test_what_undoes_goes_where_that_went_which_it_undoes() -> None:
    definition = base().build()
    targets = {one.name: one.target for one in definition.commands.values()}
    assert targets == {
        "BookHotel": "hotels", "CancelHotel": "hotels", "Pay": "bank", "Refund": "bank",
    }  # fmt: skip
    assert cancelling(base()).sent[-1].target == "hotels"


def test_a_declared_target_that_is_another_one_is_refused() -> None:
    with pytest.raises(DefinitionError, match="CancelHotel undoes BookHotel and goes to another"):
        base(target="bank").build()


def test_one_undoing_for_commands_of_two_targets_is_refused() -> None:
    trip = base()
    trip.spec.commands[1] = trip.spec.commands[0].__class__(
        Pay, "bank", None, None, (Paid,), None, cancel_for_pay
    )
    with pytest.raises(DefinitionError, match="give each target a command of its own"):
        trip.build()


def cancel_for_pay(trip: Trip, _: Pay) -> CancelHotel:
    return CancelHotel(trip.room)


def test_an_undoing_without_a_retry_is_tried_for_three_days_and_then_parks() -> None:
    driver = cancelling(base())
    gaps: list[int] = []
    while True:
        said_ms = driver.now_ms
        step = driver.failed(driver.sent[-1])
        due_ms = driver.instance("t").more.due_ms
        if due_ms is None:
            break
        gaps.append((due_ms - said_ms) // 1000)
        driver.pass_time(timedelta(milliseconds=due_ms - driver.now_ms))
    assert step.reason is not None
    assert step.reason.code is Code.COMPENSATION_FAILED
    assert gaps[:4] == [1, 2, 4, 8]
    assert 1_800 <= max(gaps) < 2_000
    assert 2.9 * DAY_S < sum(gaps) < 3 * DAY_S


def test_an_undoing_that_declares_a_retry_has_that() -> None:
    driver = cancelling(base(retry=Retry(attempts=1)))
    driver.failed(driver.sent[-1])
    parked = driver.instance("t").more.parked
    assert parked is not None
    assert parked.code == Code.COMPENSATION_FAILED


def test_a_command_that_is_sent_forward_has_no_patience_by_itself() -> None:
    definition = base().build()
    assert definition.commands[Pay].retry is None
    assert definition.commands[Pay].undo_retry is None
    assert definition.commands[Refund].undo_retry == PATIENT


def test_patience_is_part_of_the_fingerprint_and_of_the_canonical_form() -> None:
    own = base(retry=Retry(attempts=3)).build()
    assert b'"undo_retry"' in base().build().to_json()
    assert own.to_json().count(b'"undo_retry"') == 1  # of the refund, which declares none
    assert own.fingerprint != base().build().fingerprint


def test_a_graph_in_which_an_undoing_may_be_tried_again_has_timers() -> None:
    assert base().build().timed
