"""For random graphs that fork, join, undo and have children, and answers in any order: the laws.

Each step is judged when it is made (`fork_laws`); what only a whole run shows is judged here.
"""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from tests.property.processors.fork_laws import LAWS, over
from tests.property.processors.forked_world import MOVES, Move, Watched, World
from tests.property.processors.forking import Ctx, Go, Kid, children, parents

from refold import StateGraph
from refold.processors.check import check
from refold.processors.definition import compiled
from refold.testing.driver import Driver

often = settings(
    max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)


def played(top: StateGraph[Ctx], low: StateGraph[Kid], moves: list[Move]) -> World:
    """A world after so many moves, every step of which kept the laws."""
    world = World(compiled(top.spec), compiled(low.spec), *LAWS)
    world.top.send("p0", Go(3))
    for one in moves:
        world.move(one)
    return world


@settings(often, max_examples=15)
@given(parents(), children())
def test_random_graphs_with_forks_and_children_pass_every_check(
    top: StateGraph[Ctx], low: StateGraph[Kid]
) -> None:
    check(top.spec)
    check(low.spec)


@often
@given(parents(), children(), MOVES)
def test_forks_joins_and_children_keep_the_laws_and_come_to_rest(
    top: StateGraph[Ctx], low: StateGraph[Kid], moves: list[Move]
) -> None:
    world = played(top, low, moves)
    world.rest()
    for driver in world.both:
        check_rest(driver, world)
        driver.check_counts()
    check_children(world)


@often
@given(parents(), children(), MOVES)
def test_a_replay_from_any_cut_is_the_straight_fold(
    top: StateGraph[Ctx], low: StateGraph[Kid], moves: list[Move]
) -> None:
    for driver in played(top, low, moves).both:
        driver.check_replay()
        again = Driver(driver.workflow, tenant="t")
        for entry in driver.log:
            assert again.fold(entry.event) == entry.step
            again.kill_and_recover()  # so each cut is one
        assert again.hash() == driver.hash()
        assert again.published == driver.published


def check_rest(driver: Watched, world: World) -> None:
    """Nothing waits for what will never come, but behind somebody who waits for a person."""
    stuck = {name for (_, name), record in world.low.instances.items() if record.more.parked}
    for (_, name), record in driver.instances.items():
        if record.more.parked is not None or record.more.ended:
            continue
        awaited = [one for one in record.more.actions if not _behind(one.action, stuck)]
        assert not awaited, (name, awaited)
        behind = len(record.more.actions)
        for fork in record.more.forks:
            assert len(fork.pending) // 8 <= behind, (name, fork)
        assert behind or record.state not in driver.definition.undoing, name


def _behind(action: str, stuck: set[str]) -> bool:
    """Whether an action is a child that waits for a person."""
    return action.partition(".")[2] in stuck


def check_children(world: World) -> None:
    """Each answers once to each asking, as soon as it has ended and its parent asks."""
    started = [one for _, one in world.top.published if one.parent is not None]
    told: dict[str, set[str]] = {}
    for _, one in world.low.published:
        if one.answer is not None:
            told.setdefault(one.answer.key, set()).add(one.id)
    asked = Counter(one.parent.key for one in started if one.parent is not None)
    assert all(len(ids) <= asked[key] for key, ids in told.items()), told  # a redrive asks again
    for one in started:
        record = world.low.instances.get(("t", one.instance))
        assert one.parent is not None
        if record is None or (over(world.low, record) and record.more.parked is None):
            assert one.parent.key in told, one
