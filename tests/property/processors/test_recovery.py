"""For random graphs and logs: a run that is killed at every step is the run that is not.

Hypothesis prints the failing example, and a blob for `@reproduce_failure` to paste back.
"""

from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.processors.graphs import GIVEN, LOGS, Given, graphs, records

from refold import StateGraph, Workflow
from refold.processors.check import check
from refold.processors.definition import compiled
from refold.processors.effects import Step
from refold.processors.instance import Instance
from refold.schemas.envelope import EventRecord
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

REMEMBERED = {
    Verdict.APPLIED, Verdict.ALREADY, Verdict.LATE, Verdict.DEFERRED, Verdict.PARKED,
}  # fmt: skip
often = settings(
    max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    """Two versions; the second has the fix, or not the state, or another order of states."""
    both = (draw(graphs(version=1)), draw(graphs(version=2)))
    return Workflow("random", [compiled(one.spec) for one in both])


def _folded(workflow: Workflow, log: list[EventRecord], *, killed: bool = False) -> Driver:
    driver = Driver(workflow, active=1)
    for event in log:
        driver.fold(event)
        if killed:
            driver.kill_and_recover()
    return driver


@settings(often, max_examples=15)
@given(graphs())
def test_a_random_graph_passes_every_check(graph: StateGraph[object]) -> None:
    check(graph.spec)


@often
@given(workflows(), LOGS)
def test_a_kill_at_every_step_changes_nothing_and_nothing_vanishes(
    workflow: Workflow, given: list[Given]
) -> None:
    log = records(given)
    whole, killed = _folded(workflow, log), _folded(workflow, log, killed=True)
    for entry, other in zip(whole.log, killed.log, strict=True):
        assert entry.step == other.step, entry.event
    assert whole.keys() == killed.keys()
    assert whole.snapshots() == killed.snapshots()
    assert whole.hash() == killed.hash()
    assert len(set(whole.keys())) == len(whole.keys())
    assert len(whole.verdicts()) == len(given)
    whole.check_counts()


@often
@given(workflows(), LOGS)
def test_replays_repeats_and_other_instances_change_nothing(
    workflow: Workflow, given: list[Given]
) -> None:
    log = records(given)
    driver = _folded(workflow, log)
    driver.check_replay()
    assert Driver.from_history(workflow, driver.history()).hash() == driver.hash()
    _check_alone(driver, log)
    _check_repeats(driver)


def _check_alone(whole: Driver, log: list[EventRecord]) -> None:
    """Each instance folds alone as it folds among others."""
    alone: dict[str, list[EventRecord]] = defaultdict(list)
    for event in log:
        alone[event.instance].append(event)
    for instance, part in alone.items():
        steps = [entry.step for entry in whole.log if entry.event.instance == instance]
        assert [entry.step for entry in _folded(whole.workflow, part).log] == steps


def _check_repeats(once: Driver) -> None:
    """Every record that is remembered may be delivered twice."""
    twice = Driver(once.workflow, active=1)
    for entry in once.log:
        assert twice.fold(entry.event) == entry.step
        if entry.step.verdict in REMEMBERED:
            again = replace(entry.event, offset=entry.event.offset + 1)
            assert twice.fold(again).verdict is Verdict.DUPLICATE
    assert twice.hash() == once.hash()
    assert twice.keys() == once.keys()


@often
@given(workflows(), LOGS)
def test_each_verdict_changes_what_it_may_and_no_more(
    workflow: Workflow, given: list[Given]
) -> None:
    driver = Driver(workflow, active=1)
    for event in records(given):
        before = driver.instances.get((event.tenant, event.instance))
        _check_step(before, event, driver.fold(event))


def _check_step(before: Instance | None, event: EventRecord, step: Step) -> None:
    after = step.instance
    if step.verdict is not Verdict.APPLIED:
        assert not step.effects
        assert not step.resolutions
    if step.verdict not in REMEMBERED:
        assert after is before
        return
    assert after is not None
    assert after.version == (0 if before is None else before.version) + 1
    assert after.last_offset == event.offset
    assert after.fold_ms >= event.log_time_ms
    if before is not None:
        assert after.fold_ms >= before.fold_ms
        if step.verdict is not Verdict.APPLIED:
            same = ("context", "state", "transitions", "unchanged", "since_ms", "visits")
            assert all(getattr(after, name) == getattr(before, name) for name in same)
        if step.verdict is Verdict.PARKED:
            assert after.more.deferred == before.more.deferred


@often
@given(workflows(), LOGS, st.lists(GIVEN, min_size=1, max_size=5))
def test_a_terminated_instance_never_moves_again(
    workflow: Workflow, given: list[Given], more: list[Given]
) -> None:
    log = records([*given, Given(0, 7, 1, 0, 0, 0), *(replace_instance(one) for one in more)])
    driver = _folded(workflow, log[: len(given) + 1])
    ended = driver.instances.get(("t", "i0"))
    if ended is None or not ended.more.ended:
        return
    for event in log[len(given) + 1 :]:
        step = driver.fold(event)
        assert not step.effects
        assert step.verdict is not Verdict.APPLIED
        assert step.verdict is not Verdict.PARKED
    assert driver.instance("i0", "t").state == ended.state
    driver.check_counts()


def replace_instance(one: Given) -> Given:
    """The same record for the first instance."""
    return Given(0, one.kind, one.n, one.again, one.passed_ms, 0)
