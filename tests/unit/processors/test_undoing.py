"""Undoing: the last thing first, one at a time, once each, whatever triggers it (P24, P33)."""

import dataclasses
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
    Trip,
    driver,
    graph,
    last,
    paying,
    types,
)

from refold import Command, DefinitionError, Limits, RunStatus, failed
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.testing.driver import Driver


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()
    made.check_replay()


def confirmed(made: Driver) -> None:
    made.done(paying(made), Paid("r"))


def test_what_was_done_is_undone_in_reverse_order_each_after_the_one_before() -> None:
    made = driver()
    confirmed(made)
    made.send("t", Cancelled())
    assert types(made)[2:] == ["Refund"]
    assert made.status("t") is RunStatus.COMPENSATING
    made.done(last(made))
    assert types(made)[2:] == ["Refund", "CancelHotel"]
    assert codec_of(CancelHotel).decode(last(made).value) == CancelHotel("12")
    made.done(last(made))
    assert made.state("t") == "undone"
    assert made.status("t") is RunStatus.COMPENSATED
    checked(made)


def test_a_state_with_nothing_to_undo_goes_on_in_the_same_step() -> None:
    made = driver()
    made.send("t", Ordered(300))
    made.declined(last(made), HotelFull())
    assert made.state("t") == "undone"
    assert types(made) == ["BookHotel"]
    checked(made)


def test_what_is_still_on_its_way_is_asked_to_be_undone_first() -> None:
    made = driver()
    paying(made)
    made.send("t", Cancelled())
    assert types(made)[2:] == ["Refund"]
    made.done(last(made))  # the executor says: there was nothing to undo, or it is undone
    assert types(made)[2:] == ["Refund", "CancelHotel"]
    made.done(last(made))
    assert made.state("t") == "undone"
    assert made.instance("t").more.actions == ()
    checked(made)


def test_a_late_answer_of_what_is_being_undone_asks_for_no_second_undoing() -> None:
    made = driver()
    pay = paying(made)
    made.send("t", Cancelled())
    made.done(pay, Paid("late"))
    made.done(made.sent[2])
    made.done(last(made))
    assert types(made)[2:] == ["Refund", "CancelHotel"]
    assert made.state("t") == "undone"
    checked(made)


def test_an_action_that_waits_for_another_attempt_is_not_tried_again_to_be_undone() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    made.send("t", Cancelled())
    assert types(made)[2:] == ["CancelHotel"]
    made.pass_time(timedelta(hours=1))
    assert types(made).count("Pay") == 1
    checked(made)


def test_an_undoing_that_fails_is_tried_again_and_parks_when_it_fails_for_good() -> None:
    made = driver()
    made.send("t", Ordered(300))
    made.done(last(made), HotelBooked("12"))
    made.send("t", Cancelled())
    made.done(last(made))
    made.failed(last(made))
    made.pass_time(timedelta(seconds=6))
    assert (last(made).type, last(made).attempt) == ("CancelHotel", 2)
    step = made.failed(last(made), "GONE")
    assert step.reason is not None
    assert step.reason.code is Code.COMPENSATION_FAILED
    assert made.sent[0].key in step.reason.text
    assert made.status("t") is RunStatus.PARKED
    made.redrive("t")
    assert (last(made).type, last(made).attempt) == ("CancelHotel", 3)
    made.done(last(made))
    assert made.state("t") == "undone"
    checked(made)


def undoing_hotel(made: Driver) -> None:
    """Brings trip `t` to where nothing but the hotel's undoing is on its way."""
    made.send("t", Ordered(300))
    made.done(last(made), HotelBooked("12"))
    made.send("t", Cancelled())
    made.done(last(made))


def test_what_is_being_undone_is_not_tried_again() -> None:
    made = driver()
    pay = paying(made)
    made.send("t", Cancelled())
    made.failed(pay)  # curable, and its undoing is asked for already
    made.pass_time(timedelta(hours=1))
    assert types(made)[2:] == ["Refund"]
    made.done(last(made))
    made.done(last(made))
    assert made.state("t") == "undone"
    checked(made)


def test_an_undoing_that_the_other_side_refuses_parks_and_a_redrive_tries_it_once_more() -> None:
    made = driver()
    undoing_hotel(made)
    step = made.declined(last(made), HotelFull())
    assert step.reason is not None
    assert step.reason.code is Code.COMPENSATION_FAILED
    assert made.sent[0].key in step.reason.text
    assert types(made).count("CancelHotel") == 1
    made.redrive("t")
    assert (last(made).type, last(made).attempt) == ("CancelHotel", 2)
    made.done(last(made))
    assert made.state("t") == "undone"
    checked(made)


@pytest.mark.parametrize("how", ["refused", "failed"])
def test_a_graph_may_have_a_way_for_what_cannot_be_undone(how: str) -> None:
    one = graph()
    one.on("undoing", HotelFull, to="desk")
    one.on("undoing", failed(CancelHotel), to="desk")
    one.on("desk", Cancelled, to="undoing")
    made = Driver(one, tenant="acme")
    undoing_hotel(made)
    if how == "refused":
        made.declined(last(made), HotelFull())
    else:
        made.failed(last(made), retry=False)
    assert (made.state("t"), made.instance("t").more.actions) == ("desk", ())
    made.send("t", Cancelled())  # what the graph has taken as standing is not asked for again
    assert made.state("t") == "undone"
    assert types(made).count("CancelHotel") == 1
    checked(made)


def test_a_way_that_stays_where_it_undoes_is_none() -> None:
    one = graph()
    one.on("undoing", HotelFull)
    made = Driver(one, tenant="acme")
    undoing_hotel(made)
    step = made.declined(last(made), HotelFull())
    assert step.reason is not None
    assert step.reason.code is Code.COMPENSATION_FAILED
    checked(made)


def test_an_expectation_is_about_the_event_and_not_about_what_follows_from_it() -> None:
    one = graph()
    one.on("new", Cancelled, to="undoing")
    made = Driver(one, tenant="acme")
    made.send("t", Cancelled(), expected_state="new", expected_version=0)
    assert made.state("t") == "undone"  # nothing to undo: it goes on in the same step
    checked(made)


def test_an_undoing_that_fails_after_an_operators_end_is_shown_and_ended_again() -> None:
    made = driver()
    undoing_hotel(made)
    made.terminate("t")
    made.failed(last(made))
    assert made.status("t") is RunStatus.PARKED
    made.terminate("t", "a person has called the hotel")
    assert made.status("t") is RunStatus.TERMINATED
    assert (made.instance("t").more.parked, made.instance("t").more.actions) == (None, ())
    checked(made)


def test_an_operators_end_leaves_no_attempt_that_nobody_makes() -> None:
    made = driver()
    undoing_hotel(made)
    made.failed(last(made))
    assert made.status("t") is RunStatus.RETRYING
    made.terminate("t")
    assert (made.instance("t").more.actions, made.instance("t").more.timers) == ((), ())
    checked(made)


def test_what_was_done_before_a_pivot_stays_done() -> None:
    def one() -> Driver:
        made = graph()
        made.pivot("confirming")
        return Driver(made, tenant="acme")

    made = one()
    confirmed(made)
    made.send("t", Cancelled())
    assert made.state("t") == "undone"
    assert types(made)[2:] == []
    checked(made)


def test_two_folds_of_one_log_ask_for_the_same_undoings_under_the_same_keys() -> None:
    made = driver()
    confirmed(made)
    made.send("t", Cancelled())
    made.done(last(made))
    assert made.replay().keys() == made.keys()


def once_more(trip: Trip, _: BookHotel) -> CancelHotel:
    wanted: object = BookHotel(trip.price)
    return wanted  # type: ignore[return-value]


def test_an_undoing_that_would_do_the_thing_once_more_parks() -> None:
    one = graph()
    one.spec.commands = [
        dataclasses.replace(each, compensate=once_more) if each.type is BookHotel else each
        for each in one.spec.commands
    ]
    made = Driver(one, tenant="acme")
    made.send("t", Ordered(300))
    step = made.send("t", Cancelled())
    assert step.reason is not None
    assert "gave BookHotel, which is undone itself" in step.reason.text
    assert types(made) == ["BookHotel"]
    checked(made)


def test_an_undoing_that_is_too_large_parks() -> None:
    one = graph()
    one.spec.limits = Limits(command_bytes=100)
    made = Driver(one, tenant="acme")
    made.send("t", Ordered(300))
    made.done(last(made), HotelBooked("12" * 100))
    made.send("t", Cancelled())
    step = made.done(last(made))  # the payment's undoing; the hotel's names the room
    assert step.reason is not None
    assert step.reason.code is Code.COMMAND_TOO_LARGE
    checked(made)


def test_an_undoing_that_leads_back_to_itself_does_not_register() -> None:
    for ways in ((("undoing", "undoing"),), (("undoing", "again"), ("again", "undoing"))):
        made = graph()
        made.spec.undoing.clear()
        made.spec.rules = [rule for rule in made.spec.rules if rule.state != "undoing"]
        for state, to in ways:
            made.undo(state, to=to)
            made.on(state, HotelFull, to="undone")
        with pytest.raises(DefinitionError, match="for ever"):
            made.build()


class Elsewhere(Command):
    pass


def elsewhere(_: Trip, __: Command) -> Elsewhere:
    return Elsewhere()


def test_an_undoing_at_another_executor_does_not_register() -> None:
    made = graph()
    made.command(Elsewhere, target="other", compensate=None)
    spec = made.spec.commands[0]
    object.__setattr__(spec, "compensate", elsewhere)
    with pytest.raises(DefinitionError, match="another target"):
        made.build()
