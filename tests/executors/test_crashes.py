"""Executors that are killed, paused and stopped at each boundary, with an outside that remembers.

What is promised by each truth mode holds (B049, B050, B051).
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.executors.desk import Desk, DeskOf, Pay

from refold.testing.world import Manners
from refold.testing.world_server import WorldServer

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.crash]

Outside = Callable[[Manners], WorldServer]


@pytest.fixture
def outside(desk: Desk) -> Iterator[Outside]:
    """Makes the bank, in a process that outlives executors."""
    with ExitStack() as stack:
        yield lambda manners: stack.enter_context(
            WorldServer(desk.folder / "world.db", systems={"bank": manners})
        )


def effects(world: WorldServer, key: str = "") -> int:
    return len(world.journal.effects("bank", key))


def calls(world: WorldServer, key: str = "") -> int:
    return sum(each.kind == "call" for each in world.journal.requests("bank", key))


def let_leases_run_out(desk: Desk) -> None:
    """As if so much time had gone by."""
    desk.sql("UPDATE workflow_action SET lease_until = now() WHERE status = 'in_flight'")


@pytest.mark.parametrize(
    ("truth", "point", "told", "effect"),
    [
        ("queryable", "before_send", ("unknown", "succeeded"), 1),
        ("queryable", "after_effect", ("unknown", "succeeded"), 1),
        ("by_key", "before_send", ("unknown", "succeeded"), 1),
        ("by_key", "after_effect", ("unknown", "succeeded"), 1),
        ("repeat", "before_send", ("unknown", "succeeded"), 1),
        ("repeat", "after_effect", ("unknown", "succeeded"), 2),
        ("neither", "before_send", ("unknown",), 0),
        ("neither", "after_effect", ("unknown",), 1),
        ("queryable", "recorded", ("succeeded",), 1),
        ("by_key", "recorded", ("succeeded",), 1),
        ("neither", "recorded", ("succeeded",), 1),
    ],
)
def test_a_process_that_is_killed_leaves_what_its_truth_mode_promises(
    desk: Desk, outside: Outside, truth: str, point: str, told: tuple[str, ...], effect: int
) -> None:
    world = outside(Manners(keys="repeat" if truth == "by_key" else "ignore"))
    # Long enough for a busy machine; who can be asked is believed only after it.
    deadline_s = "3.0" if (truth, point) == ("queryable", "before_send") else "30.0"
    first = desk.start(WORLD=world.address, TRUTH=truth, POINT=point, DEADLINE_S=deadline_s)
    key = desk.send("i")
    desk.until(lambda: desk.reached(point), f"the first to stand at {point}")
    first.kill()
    first.wait()
    let_leases_run_out(desk)
    desk.start(WORLD=world.address, TRUTH=truth, DEADLINE_S=deadline_s)
    desk.until_heard(key, *told)
    marker = desk.send("marker")  # whatever the second process does about it, it has begun by now
    desk.until_heard(marker, "succeeded")
    assert desk.outcomes(key) == list(told)
    assert effects(world, key) == effect
    assert desk.status(key) == told[-1]


@pytest.mark.parametrize("point", ["before_send", "after_effect", "recorded"])
def test_a_local_effect_is_there_exactly_once_whenever_its_process_is_killed(
    desk: Desk, outside: Outside, point: str
) -> None:
    world = outside(Manners())
    desk.sql("CREATE TABLE public.account (key text)")
    first = desk.start(WORLD=world.address, TRUTH="local", POINT=point)
    key = desk.send("i")
    desk.until(lambda: desk.reached(point), f"the first to stand at {point}")
    first.kill()
    first.wait()
    let_leases_run_out(desk)
    desk.start(WORLD=world.address, TRUTH="local")
    desk.until_heard(key, "succeeded")
    assert desk.sql("SELECT key FROM public.account") == [(key,)]


def test_what_was_planned_and_not_begun_is_begun_by_a_successor_in_order(
    desk: Desk, outside: Outside
) -> None:
    world = outside(Manners())
    first = desk.start(WORLD=world.address, POINT="before_send", CONCURRENCY="1", DEADLINE_S="30.0")
    keys = [desk.send(f"i{number}") for number in range(5)]
    desk.until(lambda: desk.reached("before_send"), "the first to stand")
    desk.until_status(keys[4], "planned")
    first.kill()
    first.wait()
    desk.sql(
        "UPDATE workflow_action SET lease_until = now() + interval '1 hour'"
        " WHERE status = 'in_flight'"
    )
    desk.start(WORLD=world.address, CONCURRENCY="1", DEADLINE_S="30.0")
    for key in keys[1:]:
        desk.until_heard(key, "succeeded")
    done = [each.key for each in world.journal.effects("bank")]
    assert done == keys[1:]  # its lease has not run out: nobody has touched the first one
    assert desk.status(keys[0]) == "in_flight"


def test_an_executor_that_was_paused_past_its_lease_does_not_send_any_more(
    desk: Desk, outside: Outside
) -> None:
    world = outside(Manners())
    first = desk.start(WORLD=world.address, POINT="paused", DEADLINE_S="0.5")
    key = desk.send("i")
    desk.until(lambda: first.poll() is None and _stopped(first.pid), "the first to be paused")
    let_leases_run_out(desk)
    desk.start(WORLD=world.address, DEADLINE_S="0.5")
    desk.until_heard(key, "unknown", "succeeded")
    first.send_signal(signal.SIGCONT)
    desk.until(
        lambda: (
            desk.sql("SELECT jsonb_array_length(attempts) FROM workflow_action")[0][0] > 1
            or _contradicted(desk)
        ),
        "what the first says to be kept",
    )
    assert effects(world, key) == 1
    assert calls(world, key) == 1
    assert desk.status(key) == "succeeded"
    assert desk.outcomes(key) == ["unknown", "succeeded"]


def test_a_stop_lets_calls_end_and_leaves_the_others_to_be_cleared_up(
    desk: Desk, outside: Outside
) -> None:
    world = outside(Manners(delay_s=(2.0, 2.0)))
    first = desk.start(
        WORLD=world.address, CONCURRENCY="5", DEADLINE_S="3.0", REFOLD_EXECUTOR_GRACE_S="0.3"
    )
    keys = [desk.send(f"i{number}") for number in range(25)]
    desk.until(lambda: desk.status(keys[24]) == "planned", "all rows to be planned")
    desk.until(lambda: desk.status(keys[4]) == "in_flight", "five calls to be in flight")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    begun = desk.sql("SELECT count(*) FROM workflow_action WHERE epoch > 0")[0][0]
    assert begun <= 10  # five, and five more where the first five ended before the signal
    let_leases_run_out(desk)
    desk.start(WORLD=world.address, CONCURRENCY="5", DEADLINE_S="3.0")
    desk.until_all_done(keys)
    assert effects(world) == 25
    assert calls(world) == 25
    assert len({each.key for each in world.journal.effects("bank")}) == 25


def test_a_stop_records_and_publishes_what_ends_within_the_grace(
    desk: Desk, outside: Outside
) -> None:
    world = outside(Manners(delay_s=(1.0, 1.0)))
    first = desk.start(WORLD=world.address, DEADLINE_S="5.0", CONCURRENCY="5")
    keys = [desk.send(f"i{number}") for number in range(10)]
    desk.until(lambda: desk.status(keys[9]) == "planned", "five rows to wait")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    assert [desk.outcomes(key) for key in keys[:5]] == [["succeeded"]] * 5
    assert desk.sql("SELECT count(*) FROM workflow_result") == [(0,)]
    assert {desk.status(key) for key in keys[5:]} == {"planned"}
    assert effects(world) == 5


def test_several_executors_of_which_one_is_killed_do_everything_once(
    desk_of: DeskOf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk = desk_of(4)
    folder = tmp_path_factory.mktemp("world")
    with WorldServer(folder / "world.db", systems={"bank": Manners(drops=0.1)}) as world:
        doomed = desk.start(WORLD=world.address, DEADLINE_S="0.5")
        desk.start(WORLD=world.address, DEADLINE_S="0.5")
        keys = [desk.send(f"i{number}", Pay(amount=number)) for number in range(60)]
        desk.until(lambda: effects(world) > 10, "some effects")
        doomed.kill()
        doomed.wait()
        let_leases_run_out(desk)
        desk.start(WORLD=world.address, DEADLINE_S="0.5")
        keys += [desk.send(f"j{number}", Pay(amount=number)) for number in range(60)]
        desk.until_all_done(keys)
        assert world.journal.doubles() == {}
        assert effects(world) == 120


def _stopped(process: int) -> bool:
    with open(f"/proc/{process}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def _contradicted(desk: Desk) -> bool:
    return bool(desk.sql("SELECT FROM workflow_action WHERE attempts::text LIKE '%%late%%'"))
