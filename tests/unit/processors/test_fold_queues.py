"""Deferred and parked events: kept in order, tried again once, never lost."""

import pytest

from refold import (
    ANY,
    Command,
    Context,
    Event,
    Late,
    Limits,
    RunStatus,
    StateGraph,
    Workflow,
    replace,
)
from refold.processors.effects import Resolution
from refold.processors.fold import needed
from refold.schemas.errors import Code
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.testing.driver import Driver


class Began(Event):
    pass


class Added(Event):
    number: int


class Ready(Event):
    pass


class Stopped(Event):
    pass


class Report(Command):
    total: int


class Sum(Context):
    total: int = 0
    seen: tuple[int, ...] = ()


def graph(version: int = 1, *, limits: Limits | None = None, bad: int = 13) -> StateGraph[Sum]:
    """Additions wait until it is ready; number `bad` raises in this version."""
    summing = StateGraph("sum", version=version, context=Sum, initial="new", limits=limits)
    summing.on("new", Began, to="waiting")
    summing.defer("waiting", Added)
    summing.on("waiting", Ready, to="open")

    @summing.on("open", Added, to="open")
    def added(ctx: Sum, event: Added) -> Sum:
        if event.number == bad:
            raise ValueError("bad number")
        return replace(ctx, total=ctx.total + event.number, seen=(*ctx.seen, event.number))

    summing.on("open", Ready, to="waiting")
    summing.on(("waiting", "open"), Stopped, to="stopped")
    summing.enter("open", send=lambda ctx, _: Report(ctx.total))
    summing.final("stopped", late={ANY: Late.RECORD}, status=RunStatus.FAILED)
    return summing


def begun(*numbers: int, **more: object) -> Driver:
    driver = Driver(graph(**more))  # type: ignore[arg-type]
    driver.send("s", Began())
    for number in numbers:
        driver.send("s", Added(number))
    return driver


def _context(driver: Driver) -> Sum:
    context = driver.instance("s").context
    assert isinstance(context, Sum)
    return context


def _queue(driver: Driver) -> tuple[int, ...]:
    parked = driver.instance("s").more.parked
    return () if parked is None else parked.queue


# deferring


def test_a_deferred_event_waits_and_is_applied_in_order_after_the_transition() -> None:
    driver = begun(1, 2)
    assert driver.verdicts()[1:] == [Verdict.DEFERRED] * 2
    step = driver.send("s", Ready())
    assert step.resolutions == (
        Resolution(1, Verdict.APPLIED, None, "open/Added/0"),
        Resolution(2, Verdict.APPLIED, None, "open/Added/0"),
    )
    assert _context(driver) == Sum(3, (1, 2))
    assert driver.instance("s").version == 4
    assert [send.key.split(":")[6] for send in step.effects] == [
        "%2Ftest%1Fe3",
        "%2Ftest%1Fe1",
        "%2Ftest%1Fe2",
    ]
    driver.check_counts()


def test_a_deferred_event_is_remembered() -> None:
    driver = begun(1)
    assert driver.send("s", Added(1), id="e1").verdict is Verdict.DUPLICATE
    driver.send("s", Ready())
    assert driver.send("s", Added(1), id="e1").verdict is Verdict.DUPLICATE
    assert len(driver.instance("s").dedup) == 3 * 24


def test_what_was_deferred_is_late_after_the_end() -> None:
    driver = begun(1)
    step = driver.send("s", Stopped())
    assert [one.verdict for one in step.resolutions] == [Verdict.LATE]
    driver.check_counts()


def test_an_expectation_is_tried_again_when_the_queue_drains() -> None:
    driver = begun()
    driver.send("s", Added(1), expected_state="waiting")
    step = driver.send("s", Ready())
    (resolved,) = step.resolutions
    assert resolved.verdict is Verdict.REFUSED
    assert resolved.reason is not None
    assert resolved.reason.code is Code.STALE
    assert _context(driver) == Sum()


def test_a_deferred_event_that_raises_parks_the_record_that_set_it_free() -> None:
    driver = begun(1, 13)
    before = driver.instance("s")
    step = driver.send("s", Ready())
    assert (step.verdict, step.effects, step.resolutions) == (Verdict.PARKED, (), ())
    assert step.reason is not None
    assert step.reason.text.startswith("the deferred event at offset 2: the reducer of Added")
    after = driver.instance("s")
    assert (after.state, after.context) == ("waiting", before.context)
    assert after.more.deferred == before.more.deferred
    driver.check_counts()
    driver.check_replay()


def test_more_than_the_bound_of_deferred_events_parks() -> None:
    driver = begun(1, 2, 3, limits=Limits(deferred=2))
    assert driver.verdicts() == [
        Verdict.APPLIED, Verdict.DEFERRED, Verdict.DEFERRED, Verdict.PARKED,
    ]  # fmt: skip
    reason = driver.log[-1].step.reason
    assert reason is not None
    assert reason.code is Code.QUEUE_FULL


# parking and redriving


def parked() -> Driver:
    """Offsets 3 (raises), 4, 5 wait; version 2 knows what to do with 13."""
    driver = Driver(Workflow("sum", [graph(1), graph(2, bad=99)]), active=1)
    driver.send("s", Began())
    driver.send("s", Ready())
    driver.send("s", Added(1))
    for number in (13, 2, 3):
        driver.send("s", Added(number))
    return driver


def test_later_events_queue_behind_a_parked_one_in_order() -> None:
    driver = parked()
    assert driver.verdicts()[3:] == [Verdict.PARKED] * 3
    assert _queue(driver) == (3, 4, 5)
    assert _context(driver) == Sum(1, (1,))
    assert driver.status("s") is RunStatus.PARKED
    behind = driver.log[5].step.reason
    assert behind == Reason(Code.QUEUED_BEHIND, "the instance is parked since offset 3")


def test_others_go_on() -> None:
    driver = parked()
    driver.send("other", Began())
    assert driver.send("other", Ready()).verdict is Verdict.APPLIED


def test_a_queued_event_is_remembered() -> None:
    driver = parked()
    assert driver.send("s", Added(2), id="e4").verdict is Verdict.DUPLICATE
    assert _queue(driver) == (3, 4, 5)


def test_a_redrive_on_a_fixed_version_restores_the_order() -> None:
    driver = parked()
    assert needed(driver.instance("s"), driver.record("s", Began())) == ()
    step = driver.redrive("s", version=2, who="ann", why="fixed")
    assert step.verdict is Verdict.APPLIED
    assert [(one.offset, one.verdict) for one in step.resolutions] == [
        (3, Verdict.APPLIED),
        (4, Verdict.APPLIED),
        (5, Verdict.APPLIED),
    ]
    assert _context(driver) == Sum(19, (1, 13, 2, 3))
    record = driver.instance("s")
    assert (record.definition, record.version, _queue(driver)) == (2, 7, ())
    assert [send.key.split(":")[6] for send in step.effects] == [
        "%2Ftest%1Fe3",
        "%2Ftest%1Fe4",
        "%2Ftest%1Fe5",
    ]
    assert (record.last_source, record.last_offset) == ("/refold/operator/ann", 6)
    driver.check_counts()
    driver.check_replay()
    driver.kill_and_recover()


def test_a_redrive_needs_the_records_that_it_names() -> None:
    driver = parked()
    whole = driver.redrive("s", offsets=(3, 4))
    assert whole.resolutions == ()  # version 1 raises again
    assert needed(driver.instance("s"), driver.log[6].event) == (3, 4)


def test_what_parks_again_stays_queued_with_everything_behind_it() -> None:
    driver = parked()
    step = driver.redrive("s")
    assert (step.verdict, step.resolutions) == (Verdict.APPLIED, ())
    assert _queue(driver) == (3, 4, 5)
    assert driver.instance("s").version == 7
    driver.check_counts()
    driver.check_replay()


def test_a_redrive_that_names_a_part_leaves_the_rest_queued() -> None:
    driver = parked()
    step = driver.redrive("s", version=2, offsets=(3, 4))
    assert [one.offset for one in step.resolutions] == [3, 4]
    assert _queue(driver) == (5,)
    found = driver.instance("s").more.parked
    assert found is not None
    assert found.code == "QUEUED_BEHIND"
    driver.redrive("s")
    assert _context(driver) == Sum(19, (1, 13, 2, 3))
    driver.check_counts()


@pytest.mark.parametrize(
    ("version", "offsets", "text"),
    [
        (9, (), "version 9 is not registered"),
        (2, (4, 5), "the queue begins with 3, 4, 5, not with 4, 5"),
        (2, (3, 4, 5, 6), "the queue begins with 3, 4, 5, not with 3, 4, 5, 6"),
    ],
)
def test_a_redrive_that_does_not_fit_is_refused(
    version: int, offsets: tuple[int, ...], text: str
) -> None:
    driver = parked()
    before = driver.instance("s")
    step = driver.redrive("s", version=version, offsets=offsets)
    assert step.verdict is Verdict.REFUSED
    assert step.reason == Reason(Code.REDRIVE_REFUSED, text)
    assert step.instance is before


def test_a_redrive_is_refused_when_a_record_is_gone() -> None:
    driver = parked()
    driver.log[4:5] = []
    step = driver.redrive("s", version=2)
    assert step.reason == Reason(Code.REDRIVE_REFUSED, "the log no longer holds offsets 4")


@pytest.mark.parametrize("instance", ["s", "unknown"])
def test_a_redrive_of_what_is_not_parked_is_refused(instance: str) -> None:
    step = begun().redrive(instance)
    assert step.reason == Reason(Code.REDRIVE_REFUSED, "the instance is not parked")


def test_a_redrive_to_a_version_without_the_state_is_refused() -> None:
    other = StateGraph("sum", version=2, context=Sum, initial="new")
    other.on("new", Began, to="stopped")
    other.final("stopped", late={ANY: Late.RECORD})
    driver = parked()
    driver.workflow = Workflow("sum", [graph(1), other])
    step = driver.redrive("s", version=2)
    assert step.reason == Reason(Code.REDRIVE_REFUSED, "version 2 has no state 'open'")


class OtherSum(Context):
    total: str = ""


def test_a_redrive_to_a_version_that_cannot_load_the_context_is_refused() -> None:
    other = StateGraph("sum", version=2, context=OtherSum, initial="new")
    other.on("new", Began, to="open")
    other.on("open", Stopped, to="stopped")
    other.final("stopped", late={ANY: Late.RECORD})
    driver = parked()
    driver.workflow = Workflow("sum", [graph(1), other])
    step = driver.redrive("s", version=2)
    assert step.reason is not None
    assert step.reason.text.startswith("version 2 cannot load the context: ")


def test_a_redrive_of_a_first_event_begins_on_the_new_version() -> None:
    driver = Driver(Workflow("sum", [graph(1), graph(2)]), active=1)
    event = driver.record("s", Began())
    driver.fold(event, Decision(0, Verdict.PARKED, Reason(Code.SUSPECT, "x")))
    driver.redrive("s", version=2)
    assert (driver.state("s"), driver.instance("s").definition) == ("waiting", 2)


def test_a_released_event_may_be_deferred_and_is_resolved_once() -> None:
    driver = Driver(graph())
    driver.send("s", Began())
    event = driver.record("s", Added(1))
    driver.fold(event, Decision(1, Verdict.PARKED, Reason(Code.SUSPECT, "x")))
    assert driver.redrive("s").resolutions == ()
    assert len(driver.instance("s").more.deferred) == 1
    driver.check_counts()
    assert [one.offset for one in driver.send("s", Ready()).resolutions] == [1]
    driver.check_counts()


def test_a_repeated_redrive_is_a_duplicate() -> None:
    driver = parked()
    order = driver.record("s", Began())
    driver.redrive("s", version=2)
    again = driver.log[6].event
    assert driver.fold(again).verdict is Verdict.DUPLICATE
    assert order.offset == 6


def test_a_full_parked_queue_refuses_and_keeps_the_order() -> None:
    driver = Driver(graph(limits=Limits(parked=2)))
    driver.send("s", Began())
    driver.send("s", Ready())
    for number in (13, 2, 3):
        driver.send("s", Added(number))
    step = driver.log[-1].step
    assert step.verdict is Verdict.REFUSED
    assert step.reason is not None
    assert step.reason.code is Code.QUEUE_FULL
    assert _queue(driver) == (2, 3)


# terminating


def test_terminating_resolves_every_queue() -> None:
    driver = parked()
    step = driver.terminate("s", "no longer wanted", who="ann")
    assert step.verdict is Verdict.APPLIED
    assert [(one.offset, one.verdict) for one in step.resolutions] == [
        (offset, Verdict.LATE) for offset in (3, 4, 5)
    ]
    assert driver.status("s") is RunStatus.TERMINATED
    driver.check_counts()
    driver.kill_and_recover()
    driver.check_replay()


def test_events_after_a_termination_are_late() -> None:
    driver = begun(1)
    driver.terminate("s", "over")
    step = driver.send("s", Ready())
    assert (step.verdict, step.transition) == (Verdict.LATE, "waiting/Ready/terminated")
    assert driver.state("s") == "waiting"
    driver.check_counts()


def test_terminating_twice_is_already_done() -> None:
    driver = begun()
    driver.terminate("s")
    assert driver.terminate("s").verdict is Verdict.ALREADY


def test_terminating_a_finished_instance_is_late() -> None:
    driver = begun()
    driver.send("s", Stopped())
    assert driver.terminate("s").verdict is Verdict.LATE
    assert driver.status("s") is RunStatus.FAILED


def test_terminating_nothing_is_refused() -> None:
    step = Driver(graph()).terminate("s")
    assert (step.verdict, step.instance) == (Verdict.REFUSED, None)


def test_an_engine_event_of_unknown_kind_is_refused() -> None:
    step = begun().send("s", ("refold.unheard", b""))
    assert step.verdict is Verdict.REFUSED
    assert step.reason is not None
    assert step.reason.code is Code.RESERVED_TYPE


def test_an_engine_event_that_cannot_be_read_is_poison() -> None:
    assert begun().send("s", ("refold.redrive", b"\xc3\x01")).verdict is Verdict.POISON
