"""An instance that a redrive takes to another version: nothing in it waits for what never comes."""

import dataclasses
from datetime import timedelta

from tests.unit.processors.trips import (
    BookHotel,
    CancelHotel,
    Cancelled,
    Paid,
    Pay,
    Trip,
    graph,
    last,
    paying,
)

from refold import ALL, Command, Event, Joined, StateGraph, failed
from refold.processors.triggers import rung
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

HOUR = 3_600_000


class Asked(Event):
    pass


def without(timer: str, version: int = 2) -> StateGraph[Trip]:
    """The graph without a timer of state `paying`."""
    made = graph(version)
    made.spec.timers = [one for one in made.spec.timers if one.name != timer]
    made.spec.rules = [one for one in made.spec.rules if one.event is not rung(timer)]
    return made


def parked(new: StateGraph[Trip], old: StateGraph[Trip] | None = None) -> Driver:
    """Trip `t` whose payment is on its way, parked by an event that version 1 cannot fold."""
    one = graph() if old is None else old
    one.on("paying", Asked)(broken)
    new.on("paying", Asked)
    made = Driver([one, new], tenant="acme", active=1)
    paying(made)
    made.pass_time(timedelta(minutes=10))
    made.send("t", Asked())
    assert made.instance("t").more.parked is not None
    made.pass_time(timedelta(minutes=20))
    return made


def broken(_: Trip, __: Asked) -> Trip:
    raise ValueError("broken")


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()
    made.check_replay()


def test_a_timer_of_the_new_version_alone_is_armed_as_of_when_the_state_was_entered() -> None:
    new = without("1h")
    new.after("paying", timedelta(hours=2), to="undoing")
    made = parked(new)
    entered = made.instance("t").since_ms
    assert made.redrive("t", version=2).verdict is Verdict.APPLIED
    (timer,) = made.instance("t").more.timers
    assert (timer.name, timer.due_ms) == ("2h", entered + 2 * HOUR)
    made.pass_time(timedelta(hours=2))
    assert made.state("t") == "undoing"
    checked(made)


def test_a_timer_that_is_over_already_rings_at_once() -> None:
    new = without("1h")
    new.after("paying", timedelta(minutes=1), to="undoing")
    made = parked(new)
    made.redrive("t", version=2)
    made.pass_time(timedelta(0))
    assert made.state("t") == "undoing"
    checked(made)


def test_a_timer_that_both_versions_have_goes_on_and_one_that_the_new_one_lacks_is_dead() -> None:
    made = parked(graph(2))
    (before,) = made.instance("t").more.timers
    made.redrive("t", version=2)
    assert made.instance("t").more.timers == (before,)
    checked(made)
    made = parked(without("1h"))
    made.redrive("t", version=2)
    assert made.instance("t").more.timers == ()
    checked(made)


def test_a_timer_that_rang_in_the_old_version_is_not_armed_again() -> None:
    old, new = graph(), graph(2)
    for one in (old, new):
        one.after("paying", timedelta(minutes=5))
    made = parked(new, old)
    made.redrive("t", version=2)
    assert [one.name for one in made.instance("t").more.timers] == ["1h"]
    checked(made)


def test_a_duration_that_cannot_be_told_refuses_the_redrive() -> None:
    new = without("1h")
    new.after("paying", lambda trip: timedelta(hours=1 // len(trip.receipt)), to="undoing")
    made = parked(new)
    step = made.redrive("t", version=2)
    assert step.reason is not None
    assert step.reason.code is Code.REDRIVE_REFUSED
    assert "the duration of timer 'deadline'" in step.reason.text
    checked(made)


def test_a_join_whose_branches_were_never_begun_refuses_the_redrive() -> None:
    new = graph(2)
    new.spec.rules = [one for one in new.spec.rules if one.event is not failed(Pay)]
    new.join("paying", Pay, to="confirming", need=ALL, otherwise="undoing")
    made = parked(new)
    step = made.redrive("t", version=2)
    assert step.reason is not None
    assert (
        "joins Pay in state 'paying', which was entered without such branches" in step.reason.text
    )
    checked(made)


def test_branches_that_the_new_version_does_not_join_are_forgotten() -> None:
    old = graph()
    old.spec.rules = [one for one in old.spec.rules if one.event is not failed(Pay)]
    old.join("paying", Pay, to="confirming", otherwise="undoing")(joined)
    made = parked(graph(2), old)
    assert made.instance("t").more.forks
    made.redrive("t", version=2)
    assert made.instance("t").more.forks == ()
    made.done(made.sent[1], Paid("r"))
    assert made.state("t") == "confirming"
    checked(made)


def joined(trip: Trip, _: Joined) -> Trip:
    return trip


def test_what_was_done_is_undone_where_it_was_done_whatever_the_new_version_says() -> None:
    new = graph(2)
    new.spec.commands = [dataclasses.replace(one, target="other") for one in new.spec.commands]
    made = parked(new)
    made.redrive("t", version=2)
    made.send("t", Cancelled())
    assert (last(made).type, last(made).target) == ("Refund", "world")
    made.done(last(made))
    assert (last(made).type, last(made).target) == ("CancelHotel", "world")
    made.done(last(made))
    assert made.state("t") == "undone"
    checked(made)


class Breakfast(Command):
    """`BookHotel` as version 2 writes it."""

    __avro_name__ = "BookHotel"

    nights: int
    breakfast: bool = False


def without_breakfast(trip: Trip, booked: Breakfast) -> CancelHotel:
    return CancelHotel(f"{trip.room} for {booked.nights}")


def test_what_an_older_version_asked_for_is_undone_whatever_its_command_looks_like_now() -> None:
    new = graph(2)
    new.spec.commands = [
        dataclasses.replace(one, type=Breakfast, compensate=without_breakfast)
        if one.type is BookHotel
        else one
        for one in new.spec.commands
    ]
    new.spec.entries = [one for one in new.spec.entries if one.state != "booking"]
    new.enter("booking", lambda trip, _: Breakfast(trip.price // 100))
    made = parked(new)
    made.learn(BookHotel)
    made.redrive("t", version=2)
    made.send("t", Cancelled())
    made.done(last(made))
    assert made.command(last(made)) == CancelHotel("12 for 3")
    checked(made)
