"""Live state against the log, in a process that differs where it may."""

import json

import pytest
from tests.operating.conftest import Run
from tests.operating.world import SPEC, World

from refold.processors.verify import OTHER_WORLD, SECOND_WORLD, other_world

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_what_a_worker_saved_equals_the_log(world: World, refold: Run) -> None:
    world.orders(30)
    world.fold()
    code, told, _ = refold("verify", SPEC, "--json")
    (found,) = json.loads(told)
    assert code == 0
    assert found["equal"]
    assert found["live_hash"] == found["fold_hash"]
    assert found["live_digest"] == found["fold_digest"]
    assert (found["begin"], found["instances"]) == (0, 30)


def test_a_flipped_byte_in_a_snapshot_is_named_with_its_interval(world: World, refold: Run) -> None:
    world.orders(4)
    world.fold()
    first = world.sql("SELECT max(last_offset) FROM refold.workflow_snapshot WHERE"
                      " instance_id = 'o-2'")  # fmt: skip
    world.publish(("o-2", "c9", world.charged("again")))
    world.fold()
    world.sql(
        "UPDATE refold.workflow_snapshot s SET data = set_byte(data, 20, get_byte(data, 20) # 1)"
        " WHERE instance_id = 'o-2' AND version ="
        " (SELECT max(version) FROM refold.workflow_snapshot WHERE instance_id = 'o-2')"
    )
    code, told, _ = refold("verify", SPEC, "--json")
    (found,) = json.loads(told)
    assert code == 1
    assert not found["equal"]
    assert found["differing"] == 1
    assert found["first"]["instance"] == "o-2"
    assert found["first"]["found"] == "damaged"
    assert found["first"]["after"] == first[0][0]
    assert found["first"]["upto"] == world.end() - 1


def test_a_changed_reducer_is_found_with_the_first_row_that_differs(
    world: World, refold: Run
) -> None:
    world.orders(4)
    world.fold()
    code, told, _ = refold("verify", world.changed_spec("reserved_goes_nowhere"), "--json")
    (found,) = json.loads(told)
    assert code == 1
    assert found["live_digest"] != found["fold_digest"]
    assert found["first"]["row"] == 4
    assert "order/refused" not in found["first"]["text"]


def test_a_clock_in_a_reducer_is_named_with_its_offset(world: World, refold: Run) -> None:
    world.orders(3)
    world.fold()
    code, told, _ = refold("verify", world.changed_spec("clock"), "--json")
    (found,) = json.loads(told)
    assert code == 1
    assert found["impure"][0]["offset"] == 0
    assert "clock" in found["impure"][0]["calls"][0]


def test_an_instance_that_only_postgresql_knows_is_surplus(world: World, refold: Run) -> None:
    world.orders(2)
    world.fold()
    world.sql(
        "INSERT INTO refold.workflow_snapshot SELECT workflow, partition, tenant, 'a-ghost',"
        " version, definition, fingerprint, state, last_offset, last_source, last_id, data, hash"
        " FROM refold.workflow_snapshot WHERE instance_id = 'o-1'"
    )
    code, told, _ = refold("verify", SPEC, "--json")
    (found,) = json.loads(told)
    assert code == 1
    assert (found["first"]["instance"], found["first"]["found"]) == ("a-ghost", "surplus")


def test_the_other_process_differs_in_hash_seed_zone_and_locale() -> None:
    found = other_world({"PATH": "/bin"})
    assert found == {"PATH": "/bin", **OTHER_WORLD}
    assert other_world(OTHER_WORLD) == SECOND_WORLD


def test_before_anything_is_saved_there_is_nothing_to_compare(world: World, refold: Run) -> None:
    with world.working():
        world.until(lambda: len(world.marks()) == 1, "a claim")
    code, told, _ = refold("verify", SPEC)
    assert code == 1
    assert "nothing to compare yet" in " ".join(told.split())
