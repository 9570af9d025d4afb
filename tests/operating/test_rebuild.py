"""Rows of a partition made again from the log alone."""

import json

import pytest
from tests.operating.conftest import Run
from tests.operating.world import SPEC, World

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

TABLES = ("partition", "snapshot", "instance", "event_log", "suspect")


def everything(world: World) -> dict[str, list[tuple[object, ...]]]:
    """What a rebuild must give back, without epochs, owners and clocks."""
    return {
        "partition": world.sql(
            "SELECT topic, partition, topic_id, partitions, marker, rows_to, digest, counts,"
            " base FROM refold.workflow_partition ORDER BY 1, 2"
        ),
        "snapshot": world.sql(
            "SELECT DISTINCT ON (tenant, instance_id) tenant, instance_id, version, definition,"
            " state, last_offset, data, hash FROM refold.workflow_snapshot"
            " ORDER BY tenant, instance_id, version DESC"
        ),
        "instance": world.sql("SELECT * FROM refold.workflow_instance ORDER BY instance_id"),
        "event_log": world.sql(
            "SELECT log_offset, tenant, instance_id, source, id, type, log_time, verdict,"
            " transition, state_before, state_after, commands, code, text, resolution, resolved_by"
            " FROM refold.workflow_event_log ORDER BY log_offset"
        ),
    }


def test_a_partition_whose_rows_are_all_gone_is_rebuilt_from_the_log(
    world: World, refold: Run
) -> None:
    world.orders(30)
    world.fold()
    before = everything(world)
    for table in TABLES:
        world.sql(f"DELETE FROM refold.workflow_{table}")
    code, told, _ = refold("rebuild", SPEC, "--partition", "0", "--json")
    assert code == 0
    assert json.loads(told)["missing"] == 30
    assert everything(world) == before


def test_a_worker_goes_on_where_a_rebuild_ended_and_sends_nothing_again(
    world: World, refold: Run
) -> None:
    world.orders(10)
    world.fold()
    for table in TABLES:
        world.sql(f"DELETE FROM refold.workflow_{table}")
    assert refold("rebuild", SPEC, "-p", "0")[0] == 0
    commands = world.committed(f"{world.namespace}.order.commands")
    world.orders(5, first=10)
    world.fold()
    more = world.committed(f"{world.namespace}.order.commands")
    assert more[: len(commands)] == commands
    assert len(set(more)) == len(more)
    assert refold("verify", SPEC)[0] == 0


def test_a_dry_run_names_what_differs_and_writes_nothing(world: World, refold: Run) -> None:
    world.orders(6)
    world.fold()
    world.sql(
        "UPDATE refold.workflow_snapshot SET hash = 'x' WHERE instance_id = 'o-2'"
        " AND version = (SELECT max(version) FROM refold.workflow_snapshot WHERE"
        " instance_id = 'o-2')"
    )
    world.sql("DELETE FROM refold.workflow_snapshot WHERE instance_id = 'o-4'")
    before = everything(world)
    epoch = world.sql("SELECT epoch FROM refold.workflow_partition")
    code, told, _ = refold("rebuild", SPEC, "-p", "0", "--dry-run", "--json")
    found = json.loads(told)
    assert code == 0
    assert (found["missing"], found["different"], found["surplus"]) == (1, 1, 0)
    assert found["first"] == "different acme/o-2"
    assert everything(world) == before
    assert world.sql("SELECT epoch FROM refold.workflow_partition") == epoch


def test_a_rebuild_mends_what_a_dry_run_found(world: World, refold: Run) -> None:
    world.orders(6)
    world.fold()
    before = everything(world)
    world.sql("UPDATE refold.workflow_snapshot SET data = 'x', hash = 'x' WHERE version > 1")
    world.sql("DELETE FROM refold.workflow_event_log WHERE log_offset > 3")
    assert refold("rebuild", SPEC, "-p", "0")[0] == 0
    assert everything(world) == before


def test_a_partition_that_a_live_worker_holds_is_left_alone(world: World, refold: Run) -> None:
    world.orders(3)
    with world.working():
        world.until_saved()
        code, _, told = refold("rebuild", SPEC, "-p", "0")
        epoch = world.sql("SELECT epoch FROM refold.workflow_partition")
    assert code == 2
    assert "PARTITION_HELD" in told
    assert epoch == [(1,)]


def test_changed_code_is_noticed_before_anything_is_written(world: World, refold: Run) -> None:
    """P19: the digest of the rebuild is not the committed one."""
    world.orders(6)
    world.fold()
    before = everything(world)
    code, _, told = refold("rebuild", world.changed_spec("reserved_goes_nowhere"), "-p", "0")
    assert code == 1
    assert "REPLAY_DIVERGED" in told
    assert everything(world) == before


def test_a_damaged_newest_snapshot_is_folded_again_from_an_older_one(
    world: World, refold: Run
) -> None:
    """B030: the checksum finds it, the log mends it, and the next cut is whole again."""
    world.orders(4)
    world.fold()
    world.publish(("o-2", "c9", world.charged("again")))
    world.fold()
    world.sql(
        "UPDATE refold.workflow_snapshot SET data = set_byte(data, 20, get_byte(data, 20) # 1)"
        " WHERE instance_id = 'o-2' AND version ="
        " (SELECT max(version) FROM refold.workflow_snapshot WHERE instance_id = 'o-2')"
    )
    assert refold("verify", SPEC)[0] == 1
    world.publish(("o-2", "c10", world.charged("once more")))
    world.fold()
    assert refold("verify", SPEC)[0] == 0
    assert world.counts()["applied"] == 10


def test_a_rebuild_that_is_forced_fences_an_idle_worker_which_takes_the_partition_back(
    world: World, refold: Run
) -> None:
    world.orders(6)
    with world.working():
        world.until_saved()
        world.sql("DELETE FROM refold.workflow_instance")
        code, told, _ = refold("rebuild", SPEC, "-p", "0", "--force", "--json")
        assert code == 0
        assert json.loads(told)["instances"] == 6
        assert len(world.states()) == 6
        world.orders(3, first=6)
        world.until_saved()
        ((epoch,),) = world.sql("SELECT epoch FROM refold.workflow_partition")
    keys = world.committed(f"{world.namespace}.order.commands")
    assert epoch == 3, "the worker's, the rebuild's, the worker's again"
    assert len(set(keys)) == len(keys) == 9 * 2
    assert len(world.states()) == 9
    assert refold("verify", SPEC)[0] == 0


def test_a_rebuild_that_is_forced_under_load_is_whole_or_refused_and_costs_nothing(
    world: World, refold: Run
) -> None:
    """The worker takes its partition back as soon as it meets the fence, before or after."""
    codes = []
    with world.working():
        for turn in range(5):
            world.orders(40, first=turn * 40)
            code, _, told = refold("rebuild", SPEC, "-p", "0", "--force")
            codes.append(code)
            assert code == 0 or "nothing was changed" in told, told
        world.until_saved()
    keys = world.committed(f"{world.namespace}.order.commands")
    assert len(set(keys)) == len(keys) == 200 * 2
    assert set(codes) <= {0, 1}
    assert refold("verify", SPEC)[0] == 0
