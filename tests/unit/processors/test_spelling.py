"""One declaration for several states is the long form, spelled out: `failed(ANY)`, `when=`."""

from collections.abc import Callable
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
    Trip,
    cancel_hotel,
    refund,
)

from refold import ANY, Command, Event, Late, StateGraph, failed, missed, start, succeeded, unknown
from refold.processors.draw import to_markdown, to_mermaid
from refold.schemas.errors import DefinitionError
from refold.testing.driver import Driver

Graph = StateGraph[Trip]


class Notify(Command):
    text: str


class Told(Event):
    pass


def base() -> Graph:
    """Hotel, payment, then a word; undone by hand of whoever declares how."""
    trip = StateGraph("trip", version=1, context=Trip, initial="new", tenant="acme")
    trip.command(
        BookHotel, target="world", answers=(HotelBooked, HotelFull), compensate=cancel_hotel
    )
    trip.command(Pay, target="world", answers=(Paid,), compensate=refund)
    trip.command(CancelHotel, target="world")
    trip.command(Refund, target="world")
    trip.on("new", Ordered, to="booking")
    trip.on("booking", HotelBooked, to="paying")
    trip.on("paying", Paid, to="telling")
    trip.on("telling", succeeded(Notify), to="done")
    trip.enter("booking", lambda trip, _: BookHotel(trip.price // 100))
    trip.enter("paying", lambda trip, _: Pay(trip.price))
    trip.enter("telling", lambda _, __: Notify("booked"))
    trip.pivot("telling")
    trip.final("done", late={ANY: Late.RECORD})
    trip.final("undone", late={ANY: Late.RECORD})
    return trip


def long(trip: Graph) -> None:
    trip.undo("undoing", to="undone")
    trip.on("booking", failed(BookHotel), to="undoing")
    trip.on("paying", failed(Pay), to="undoing")
    trip.on("booking", HotelFull, to="undoing")
    trip.on(("booking", "paying"), Cancelled, to="undoing")


def made(declare: Callable[[Graph], object]) -> Graph:
    trip = base()
    declare(trip)
    return trip


def leads(trip: Graph, to: str = "undoing") -> set[tuple[str, str]]:
    """What leads to a state: (state, event)."""
    return {
        (row.state, row.event)
        for row in trip.build().rows()
        if any(one.enters and one.target == to for one in row.transitions)
    }


def test_an_undoing_says_once_what_leads_to_it_from_every_undoable_state() -> None:
    short = made(
        lambda trip: trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
    )
    assert short.build().to_json() == made(long).build().to_json()
    assert short.build().fingerprint == made(long).build().fingerprint


def test_undoable_states_send_what_can_be_undone_and_come_before_the_pivot() -> None:
    short = made(lambda trip: trip.undo("undoing", to="undone", when=(Cancelled, HotelFull)))
    assert leads(short) == {
        ("booking", "Cancelled"), ("booking", "HotelFull"), ("paying", "Cancelled"),
    }  # fmt: skip


def test_the_states_can_be_named() -> None:
    def declare(trip: Graph) -> None:
        trip.undo("undoing", to="undone", when=Cancelled, during="paying")
        trip.on("booking", HotelFull, to="undone")

    assert leads(made(declare)) == {("paying", "Cancelled")}


def test_what_is_said_by_name_stands() -> None:
    def declare(trip: Graph) -> None:
        trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
        trip.on("booking", failed(BookHotel), to="undone")
        trip.defer("paying", Cancelled)

    assert leads(made(declare)) == {
        ("booking", "HotelFull"), ("booking", "Cancelled"), ("paying", "refold.failed:Pay"),
    }  # fmt: skip


def test_what_is_said_with_a_guard_comes_first() -> None:
    def declare(trip: Graph) -> None:
        trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
        trip.on("paying", Cancelled, to="done", guard=lambda trip, _: trip.price == 1)

    definition = made(declare).build()
    cell = definition.table["paying"]["Cancelled"]
    assert [one.target for one in cell.transitions] == ["done", "undoing"]


def test_what_was_done_is_undone_whatever_failed() -> None:
    driver = Driver(
        made(
            lambda trip: trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
        )
    )
    driver.send("t", Ordered(300))
    driver.done(driver.sent[-1], HotelBooked("12"))
    driver.failed(driver.sent[-1], retry=False)
    assert driver.state("t") == "undoing"
    assert driver.sent[-1].type == "CancelHotel"


def test_any_stands_for_each_action_of_a_state_with_reducer_and_guard() -> None:
    def doubted(trip: Trip, _: Event) -> Trip:
        return Trip(price=trip.price, doubts=trip.doubts + 1)

    def short(trip: Graph) -> None:
        long(trip)
        trip.on(("booking", "paying"), unknown(ANY), guard=lambda trip, _: trip.price > 0)(doubted)

    driver = Driver(made(short))
    driver.send("t", Ordered(300))
    assert "refold.unknown:BookHotel" in driver.workflow.latest.accepts("booking")
    assert "refold.unknown:Pay" in driver.workflow.latest.accepts("paying")
    (one,) = driver.workflow.latest.table["paying"]["refold.unknown:Pay"].transitions
    assert (one.reducer, one.guard is not None) == (doubted, True)


def test_what_a_state_joins_fails_when_the_join_cannot_be_reached() -> None:
    def declare(trip: Graph) -> None:
        trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
        trip.join("booking", BookHotel, to="paying")

    assert ("booking", "refold.missed:BookHotel") in leads(made(declare))
    assert ("booking", "refold.failed:BookHotel") not in leads(made(declare))

    def otherwise(trip: Graph) -> None:
        declare(trip)
        trip.on("booking", missed(BookHotel), to="undone")

    assert ("booking", "refold.missed:BookHotel") not in leads(made(otherwise))


def test_a_state_that_starts_a_child_that_can_be_cancelled_is_undoable() -> None:
    def declare(trip: Graph) -> None:
        trip.child("parcel", Ordered, cancel=lambda _, __: Cancelled())
        trip.on("new", Told, to="sending")
        trip.enter("sending", send=lambda _, __: start("parcel", "p", Ordered(1)))
        trip.on("sending", succeeded("parcel"), to="done")
        trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull))

    assert ("sending", "refold.failed:child:parcel") in leads(made(declare))


def test_a_command_that_nobody_follows_is_not_followed_for_it() -> None:
    def declare(trip: Graph) -> None:
        trip.enter("booking", lambda _, __: Told_())
        trip.command(Told_, target="world")
        trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull))

    assert {event for _, event in leads(made(declare))} == {
        "refold.failed:BookHotel", "refold.failed:Pay", "HotelFull",
    }  # fmt: skip


class Told_(Command):  # noqa: N801  # beside the event of that name
    pass


def test_pictures_and_tables_show_what_is_spelled_out() -> None:
    definition = made(
        lambda trip: trip.undo("undoing", to="undone", when=(failed(ANY), HotelFull, Cancelled))
    ).build()
    assert "failed(Pay)" in to_mermaid(definition)
    assert "ANY" not in to_mermaid(definition)
    header = to_markdown(definition).splitlines()[0]
    assert "failed(BookHotel)" in header
    assert "ANY" not in header


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda trip: trip.on("new", failed(ANY), to="undone"), "'new' has failed.ANY. and asks"),
        (lambda trip: trip.undo("undoing", to="undone", when="Cancelled"), "is no event type"),
        (lambda trip: trip.undo("undoing", to="undone", when=Pay), "Pay.* is no event type"),
        (lambda trip: trip.undo("undoing", to="undone", when=Cancelled, during=5), "state 5"),
        (lambda trip: trip.pivot("booking"), "no state before a pivot"),
        (lambda trip: trip.command(Notify, answers=(5,)), "5 among the answers of Notify"),
        (lambda trip: trip.enter("paying", 5), "send of state 'paying' is not a function"),
        (
            lambda trip: trip.undo("undoing", to="undone", when=HotelFull, during="paying"),
            "HotelFull in when= .* is about none of its states",
        ),
        (
            lambda trip: trip.undo("undoing", to="undone", when=Cancelled, during="bokking"),
            "names state 'bokking', which no transition has. Did you mean booking",
        ),
    ],
)
def test_a_short_form_that_stands_for_nothing_is_refused(
    declare: Callable[[Any], object], said: str
) -> None:
    trip = base()
    trip.on("booking", HotelFull, to="undone")
    if declare.__code__.co_names[0] != "undo":
        trip.undo("undoing", to="undone", when=Cancelled)
    declare(trip)
    with pytest.raises(DefinitionError, match=said):
        trip.build()
