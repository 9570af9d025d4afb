"""Timers in the fold: armed on entry, dead with their state, decided by the log alone (P26)."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.processors.trips import Cancelled, Paid, driver, graph, paying

from refold import ANY, Context, DefinitionError, Event, Late, StateGraph, replace
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


def test_a_timer_counts_from_the_fold_time_of_what_entered_its_state() -> None:
    made = driver()
    paying(made)
    record = made.instance("t")
    (timer,) = record.more.timers
    assert timer.due_ms == record.since_ms + 3_600_000
    assert made.pass_time(timedelta(minutes=59)) == []
    made.pass_time(timedelta(minutes=1))
    assert made.state("t") == "undoing"
    made.check_replay()


def test_a_timer_dies_with_its_state_and_its_event_is_then_a_duplicate() -> None:
    made = driver()
    pay = paying(made)
    (timer,) = made.instance("t").more.timers
    made.done(pay, Paid("r"))
    before = made.instance("t")
    step = made.ring("t", timer)
    assert step.verdict is Verdict.DUPLICATE
    assert made.instance("t") is before
    made.check_replay()


def test_a_timer_that_is_written_twice_rings_once() -> None:
    made = driver()
    paying(made)
    (timer,) = made.instance("t").more.timers
    assert made.ring("t", timer).verdict is Verdict.APPLIED
    assert made.ring("t", timer).verdict is Verdict.DUPLICATE
    made.check_replay()


def test_a_timer_of_an_instance_that_is_not_there_is_a_duplicate() -> None:
    made = driver()
    paying(made)
    (timer,) = made.instance("t").more.timers
    assert made.ring("other", timer).verdict is Verdict.DUPLICATE
    assert ("acme", "other") not in made.instances


def test_a_clock_that_steps_back_neither_rings_twice_nor_shortens_what_is_left() -> None:
    made = driver()
    paying(made)
    (timer,) = made.instance("t").more.timers
    made.now_ms -= 3_600_000
    made.send("t", Cancelled())
    assert made.ring("t", timer).verdict is Verdict.DUPLICATE
    made.check_replay()


def test_ending_an_instance_disarms_its_timers() -> None:
    made = driver()
    paying(made)
    made.terminate("t")
    assert made.instance("t").more.timers == ()


class Opened(Event):
    closes: int
    """Milliseconds since the epoch."""


class Nudged(Event):
    pass


class Auction(Context):
    closes: int = 0
    calls: int = 0


def auction(**given: object) -> StateGraph[Auction]:
    """Closes at a time that its data says; calls every minute while it is open."""
    made = StateGraph("auction", version=1, context=Auction, initial="new", tenant="acme")

    @made.on("new", Opened, to="open")
    def opened(_: Auction, event: Opened) -> Auction:
        return Auction(event.closes)

    @made.after("open", timedelta(minutes=1), name="call")
    def called(ctx: Auction, _: Event) -> Auction:
        return replace(ctx, calls=ctx.calls + 1)

    made.on("open", Nudged, to="open")
    made.after("open", given.get("closing", closing), to="closed", name="close")  # type: ignore[arg-type]
    made.final("closed", late={ANY: Late.RECORD})
    return made


def closing(ctx: Auction) -> datetime:
    return datetime.fromtimestamp(ctx.closes / 1000, UTC)


def test_a_timer_may_run_until_a_time_that_the_data_says() -> None:
    made = Driver(auction(), tenant="acme")
    made.send("a", Opened(made.now_ms + 5_000))
    made.pass_time(timedelta(seconds=6))
    assert made.state("a") == "closed"
    made.check_replay()


def never(_: object, __: object) -> bool:
    return False


def test_an_answer_that_leaves_the_state_as_it_is_leaves_its_timers_armed() -> None:
    spec = graph()
    (rule,) = [one for one in spec.spec.rules if one.event is Paid]
    rule.guard = never
    spec.on("paying", Paid)
    made = Driver(spec, tenant="acme")
    made.done(paying(made), Paid("r"))
    assert made.state("t") == "paying"
    assert [one.name for one in made.instance("t").more.timers] == ["1h"]
    made.check_replay()


def test_what_is_over_when_it_is_armed_rings_at_once() -> None:
    made = Driver(auction(), tenant="acme")
    made.send("a", Opened(1))
    assert min(one.due_ms for one in made.instance("a").more.timers) == made.now_ms - 1
    made.pass_time(timedelta(0))
    assert made.state("a") == "closed"


def test_a_timer_without_a_target_rings_once_and_the_state_stands() -> None:
    made = Driver(auction(), tenant="acme")
    made.send("a", Opened(made.now_ms + 3_600_000))
    made.pass_time(timedelta(minutes=10))
    assert made.instance("a").context.calls == 1
    assert [one.name for one in made.instance("a").more.timers] == ["close"]


def test_entering_a_state_again_arms_fresh_timers_and_the_old_ones_are_dead() -> None:
    made = Driver(auction(), tenant="acme")
    made.send("a", Opened(made.now_ms + 3_600_000))
    old = made.instance("a").more.timers
    made.pass_ms(30_000)
    made.send("a", Nudged())
    fresh = made.instance("a").more.timers
    assert {one.id for one in old}.isdisjoint(one.id for one in fresh)
    assert made.ring("a", old[0]).verdict is Verdict.DUPLICATE
    made.check_replay()


def raising(_: Auction) -> timedelta:
    raise ValueError("no calendar")


def endless(_: Auction) -> timedelta:
    return timedelta(days=365 * 200)


def seconds(_: Auction) -> timedelta:
    wanted: object = 5
    return wanted  # type: ignore[return-value]


def somewhere(_: Auction) -> datetime:
    return datetime(2030, 1, 1)


@pytest.mark.parametrize(
    ("duration", "told"),
    [
        (raising, "no calendar"),
        (endless, "more than 100 years"),
        (seconds, "int is neither a timedelta nor a datetime"),
        (somewhere, "without a time zone"),
    ],
)
def test_a_duration_that_cannot_be_told_parks(duration: object, told: str) -> None:
    made = Driver(auction(closing=duration), tenant="acme")
    step = made.send("a", Opened(1))
    assert step.reason is not None
    assert step.reason.code is Code.REDUCER_RAISED
    assert told in step.reason.text
    made.check_replay()


def test_two_timers_of_one_name_in_a_state_do_not_register() -> None:
    made = graph()
    made.after("paying", timedelta(hours=1), to="undoing", guard=lambda trip, _: trip.price > 0)
    made.spec.rules.insert(0, made.spec.rules.pop())
    with pytest.raises(DefinitionError, match="twice"):
        made.build()


def test_a_timer_without_length_does_not_register() -> None:
    made = graph()
    made.after("booking", timedelta(0), to="undoing")
    with pytest.raises(DefinitionError, match="above zero"):
        made.build()
