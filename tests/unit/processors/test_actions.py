"""Open actions: what is asked for stays known until an executor says how it ended (P24, P30)."""

from datetime import timedelta

import pytest
from tests.unit.processors.trips import (
    BookHotel,
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

from refold import (
    ANY,
    Command,
    DefinitionError,
    Event,
    Late,
    Retry,
    RunStatus,
    StateGraph,
    failed,
    succeeded,
)
from refold.processors.entering import TIMER_MOST_S
from refold.processors.keys import compensate_key
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

HOUR = 3_600_000


class Forgotten(Event):
    pass


class Tell(Command):
    pass


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()
    made.check_replay()


def test_a_command_with_answers_is_an_open_action_until_its_answer_comes() -> None:
    made = driver()
    made.send("t", Ordered(300))
    (action,) = made.instance("t").more.actions
    assert (action.key, action.type, action.attempt, action.known) == (
        last(made).key, "BookHotel", 1, "",
    )  # fmt: skip
    made.done(last(made), HotelBooked("12"))
    (action,) = made.instance("t").more.actions
    assert action.type == "Pay"
    checked(made)


def test_an_answer_that_comes_twice_is_folded_once() -> None:
    made = driver()
    pay = paying(made)
    assert made.done(pay, Paid("r")).verdict is Verdict.APPLIED
    assert made.done(pay, Paid("r")).verdict is Verdict.DUPLICATE
    assert made.state("t") == "confirming"
    checked(made)


def test_an_answer_that_the_state_has_nothing_for_ends_its_action_all_the_same() -> None:
    made = driver()
    pay = paying(made)
    made.pass_time(timedelta(hours=2))
    assert made.state("t") == "undoing"
    step = made.done(pay, Paid("r"))
    assert step.verdict is Verdict.APPLIED
    assert pay.key not in [one.key for one in made.instance("t").more.actions]
    checked(made)


def test_an_unknown_outcome_is_on_record_and_may_move_the_graph() -> None:
    made = driver()
    pay = paying(made)
    made.unknown(pay)
    (action,) = made.instance("t").more.actions
    assert action.known == "unknown"
    assert made.instance("t").context.doubts == 1
    made.done(pay, Paid("r"))
    assert made.instance("t").more.actions == ()
    checked(made)


def test_a_failed_attempt_is_tried_again_under_the_same_key_when_its_timer_rings() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    assert made.status("t") is RunStatus.RETRYING
    assert last(made) is pay
    due = made.instance("t").more.due_ms
    made.pass_ms(9_000)
    assert types(made).count("Pay") == 1
    made.now_ms = due or 0
    (timer,) = [one for one in made.instance("t").more.timers if one.key]
    made.ring("t", timer)
    assert (last(made).key, last(made).attempt, last(made).value) == (pay.key, 2, pay.value)
    checked(made)


def test_retries_lie_further_and_further_apart_and_never_before_the_other_side_asks() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    first = _pause(made)
    _ring(made)
    made.failed(last(made))
    second = _pause(made)
    assert (first, second) == (10_000, 20_000)
    _ring(made)
    other = driver()
    made.failed(last(made))
    other.failed(paying(other), retry_after_ms=HOUR // 2)
    assert _pause(other) == HOUR // 2
    checked(made)
    checked(other)


def test_the_jitter_of_a_retry_is_derived_and_the_same_in_every_fold() -> None:
    pauses = set()
    for _ in range(3):
        made = driver(retry=Retry(attempts=3, first_s=10, jitter=0.5))
        made.failed(paying(made))
        pauses.add(_pause(made))
        checked(made)
    (pause,) = pauses
    assert 10_000 < pause < 15_000


def test_after_the_last_attempt_the_graph_goes_its_way_for_a_failure() -> None:
    made = driver()
    paying(made)
    for _ in range(2):
        made.failed(last(made))
        _ring(made)
    assert made.state("t") == "paying"
    made.failed(last(made))
    assert made.state("t") == "undoing"
    checked(made)


@pytest.mark.parametrize("how", ["incurable", "never", "elapsed"])
def test_what_no_attempt_can_cure_is_not_tried_again(how: str) -> None:
    retry = Retry(attempts=9, first_s=60, elapsed_s=30 if how == "elapsed" else None, never=("NO",))
    made = driver(retry=retry)
    pay = paying(made)
    made.failed(pay, "NO" if how == "never" else "BUSY", retry=how != "incurable")
    assert made.state("t") == "undoing"
    checked(made)


def test_a_failure_that_the_graph_has_no_way_for_parks_and_a_redrive_tries_once_more() -> None:
    made = driver()
    made.send("t", Ordered(300))
    book = last(made)
    step = made.failed(book, "BROKEN")
    assert step.reason is not None
    assert step.reason.code is Code.ACTION_FAILED
    made.redrive("t")
    assert (last(made).key, last(made).attempt) == (book.key, 2)
    made.done(last(made), HotelBooked("12"))
    assert made.state("t") == "paying"
    checked(made)


def test_an_older_attempts_failure_does_not_touch_the_newer_one() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    _ring(made)
    again = last(made)
    assert made.unknown(pay).verdict is Verdict.ALREADY
    (action,) = made.instance("t").more.actions
    assert (action.attempt, action.known) == (again.attempt, "")
    checked(made)


def test_an_unknown_that_comes_after_its_attempts_failure_is_old_news() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    assert made.unknown(pay).verdict is Verdict.ALREADY
    (action,) = made.instance("t").more.actions
    assert action.known == "retrying"
    assert made.instance("t").context.doubts == 0
    checked(made)


def test_an_older_attempts_late_success_settles_the_action() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    made.done(pay, Paid("r"))
    assert made.state("t") == "confirming"
    assert [one.name for one in made.instance("t").more.timers] == ["1d"]
    checked(made)


def test_a_report_about_no_open_action_changes_nothing_and_is_remembered() -> None:
    made = driver()
    pay = paying(made)
    made.done(pay, Paid("r"))
    assert made.unknown(pay).verdict is Verdict.ALREADY
    assert made.state("t") == "confirming"
    checked(made)


def test_a_report_behind_a_parked_record_waits_in_its_order() -> None:
    made = driver()
    made.send("t", Ordered(300))
    book = last(made)
    made.failed(book, "BROKEN")
    assert made.done(book, HotelBooked("12")).verdict is Verdict.PARKED
    made.redrive("t")
    assert made.state("t") == "paying"
    checked(made)


def test_a_terminated_instance_tries_nothing_again() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay)
    made.terminate("t")
    assert made.instance("t").more.due_ms is None
    assert made.instance("t").more.actions == ()
    checked(made)


def test_what_nobody_waits_for_any_more_is_not_tried_again_after_the_end() -> None:
    spec = graph()
    spec.on("paying", Forgotten, to="done")
    made = Driver(spec, tenant="acme")
    pay = paying(made)
    made.send("t", Forgotten())
    assert made.failed(pay).verdict is Verdict.LATE
    assert made.instance("t").more.actions == ()
    assert made.instance("t").more.due_ms is None
    checked(made)


def test_an_attempt_that_waits_when_the_end_comes_is_not_made() -> None:
    one = graph()
    one.on("paying", HotelFull, to="closed")
    one.final("closed", late={ANY: Late.RECORD})
    made = Driver(one, tenant="acme")
    made.failed(paying(made))
    assert made.status("t") is RunStatus.RETRYING
    made.send("t", HotelFull())
    assert (made.status("t"), made.instance("t").more.timers) == (RunStatus.COMPLETED, ())
    made.pass_time(timedelta(hours=1))
    assert types(made).count("Pay") == 1
    checked(made)


def test_a_failure_for_which_no_guard_holds_parks() -> None:
    one = graph()
    one.on("booking", failed(BookHotel), to="undoing", guard=lambda trip, _: trip.price < 0)
    made = Driver(one, tenant="acme")
    made.send("t", Ordered(300))
    step = made.failed(last(made))
    assert step.reason is not None
    assert step.reason.code is Code.ACTION_FAILED
    checked(made)


def test_a_redrive_tries_again_only_what_parked_and_not_what_the_graph_has_a_way_for() -> None:
    one, two = graph(), graph(2)
    one.on("paying", HotelFull)(broken)
    two.on("paying", HotelFull)
    made = Driver([one, two], tenant="acme", active=1)
    pay = paying(made)
    made.send("t", HotelFull())
    made.failed(pay, retry=False)  # queues behind it
    made.redrive("t", version=2)
    assert made.state("t") == "undoing"
    assert types(made).count("Pay") == 1
    checked(made)


def broken(_: Trip, __: HotelFull) -> Trip:
    raise ValueError("broken")


def test_what_was_done_without_the_answer_that_its_state_waits_for_parks() -> None:
    made = driver()
    made.send("t", Ordered(300))
    step = made.done(last(made))  # the engine's own: nobody says which room
    assert step.reason is not None
    assert step.reason.code is Code.ANSWER_MISSING
    assert "HotelBooked or HotelFull" in step.reason.text
    made.send("t", HotelBooked("12"))  # a person does
    made.redrive("t")
    assert made.state("t") == "paying"
    assert len(made.instance("t").more.done) == 1
    checked(made)


@pytest.mark.parametrize("outcome", ["done", "declined"])
def test_an_answer_that_the_state_which_asked_does_not_know_parks(outcome: str) -> None:
    made = driver()
    made.send("t", Ordered(300))
    getattr(made, outcome)(last(made), Forgotten())
    assert made.status("t") is RunStatus.PARKED
    made.redrive("t")
    assert (made.state("t"), made.instance("t").more.actions) == ("booking", ())
    checked(made)


def test_an_answer_may_be_missing_where_the_graph_or_a_timer_leads_on() -> None:
    made = driver()
    made.done(paying(made))  # `paying` has a timer
    assert made.status("t") is RunStatus.RUNNING
    one = graph()
    one.on("booking", succeeded(BookHotel), to="confirming")
    other = Driver(one, tenant="acme")
    other.send("t", Ordered(300))
    other.done(last(other))
    assert other.state("t") == "confirming"
    checked(made)
    checked(other)


def test_a_pause_that_the_other_side_asks_for_is_bounded() -> None:
    made = driver()
    made.failed(paying(made), retry_after_ms=2**63 - 1)
    assert _pause(made) == TIMER_MOST_S * 1000
    checked(made)


def test_what_the_end_itself_asks_for_is_tried_again() -> None:
    spec = graph()
    spec.command(Tell, target="world", retry=Retry(attempts=2, first_s=1, jitter=0))
    spec.on("booking", Forgotten, to="done")
    spec.enter("done", lambda _trip, _event: Tell())
    made = Driver(spec, tenant="acme")
    made.send("t", Ordered(300))
    made.send("t", Forgotten())
    made.failed(last(made))
    made.pass_time(timedelta(seconds=2))
    assert (last(made).type, last(made).attempt) == ("Tell", 2)
    checked(made)


def test_a_version_that_does_not_know_what_is_open_is_refused() -> None:
    without = StateGraph("trip", version=2, context=Trip, initial="new", tenant="acme")
    without.on("new", Ordered, to="booking")
    without.on("booking", Cancelled, to="done")
    without.final("done", late={ANY: Late.RECORD})
    made = Driver([graph(), without], active=1, tenant="acme")
    made.send("t", Ordered(300))
    made.failed(last(made), "BROKEN")
    step = made.redrive("t", version=2)
    assert step.verdict is Verdict.REFUSED
    assert step.reason is not None
    assert "does not send BookHotel" in step.reason.text
    made.check_replay()


def test_a_state_that_does_not_take_an_answer_does_not_register() -> None:
    made = graph()
    made.spec.rules = [one for one in made.spec.rules if one.event is not HotelFull]
    with pytest.raises(DefinitionError, match="does not take its answer HotelFull"):
        made.build()


def test_an_undoing_has_the_key_of_what_it_undoes_with_the_direction_changed() -> None:
    made = driver()
    pay = paying(made)
    made.failed(pay, retry=False)
    book = made.sent[0]
    assert last(made).key == compensate_key(book.key)


def _pause(made: Driver) -> int:
    instance = made.instance("t")
    (timer,) = [one for one in instance.more.timers if one.key]
    return timer.due_ms - instance.fold_ms


def _ring(made: Driver) -> None:
    (timer,) = [one for one in made.instance("t").more.timers if one.key]
    made.now_ms = timer.due_ms
    made.ring("t", timer)
