"""A person's acts on an instance: events on the log, folded like all others."""

import json

import pytest
from tests.operating import fragile
from tests.operating.conftest import Run
from tests.operating.world import World

from refold.examples.order.graph import OrderPlaced, Reserved
from refold.processors.definition import Workflow

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_a_parked_instance_goes_on_with_a_fixed_version_in_order(world: World, refold: Run) -> None:
    world.publish(
        ("o-1", "p1", OrderPlaced(items=("pen",), total=13)),
        ("o-1", "r1", Reserved()),
        ("o-2", "p2", OrderPlaced(items=("pen",), total=1)),
    )
    world.fold(Workflow("order", [fragile.first]))
    assert world.states() == {"o-1": "parked", "o-2": "running"}
    with world.working(Workflow("order", [fragile.first, fragile.second])):
        code, told, _ = refold(
            "redrive", "o-1", "--tenant", "acme", "--version", "2", "--who", "ann",
            "--why", "13 is a number too", "--json",
        )  # fmt: skip
        world.until_saved()
    found = json.loads(told)
    assert code == 0
    assert found["happened"]["verdict"] == "applied"
    assert found["source"] == "/refold/operator/ann"
    assert world.states() == {"o-1": "running", "o-2": "running"}
    assert world.sql(
        "SELECT log_offset, resolution FROM refold.workflow_event_log"
        " WHERE verdict = 'parked' ORDER BY 1"
    ) == [(0, "applied"), (1, "applied")]
    assert refold("verify", "tests.operating.fragile:both")[0] == 0


def test_a_double_click_is_one_event(world: World, refold: Run) -> None:
    world.publish(("o-1", "p1", OrderPlaced(items=("pen",), total=1)))
    world.fold()
    act = ("terminate", "o-1", "--tenant", "acme", "--who", "ann", "--reason", "test", "--json")
    first = json.loads(refold(*act, "--wait", "0")[1])
    second = json.loads(refold(*act, "--wait", "0")[1])
    assert first["event_id"] == second["event_id"]
    world.fold()
    assert world.counts() == {"applied": 2, "duplicate": 1}
    assert world.states() == {"o-1": "terminated"}


def test_an_act_on_an_instance_that_is_not_there_is_not_sent(world: World, refold: Run) -> None:
    world.orders(1)
    world.fold()
    end = world.end()
    code, _, told = refold(
        "terminate", "o-77", "--tenant", "acme", "--who", "ann", "--reason", "test"
    )
    assert code == 2
    assert "acme/o-77" in told
    assert world.end() == end


def test_an_act_without_a_reason_is_refused_before_it_is_sent(world: World, refold: Run) -> None:
    world.orders(1)
    world.fold()
    end = world.end()
    code, _, told = refold("redrive", "o-0", "--tenant", "acme", "--who", "ann", "--why", " ")
    assert code == 2
    assert "--why is empty" in told
    assert world.end() == end


def test_a_redrive_of_an_instance_that_is_not_parked_says_that_it_was_refused(
    world: World, refold: Run
) -> None:
    world.orders(1)
    with world.working():
        world.until_saved()
        code, told, _ = refold(
            "redrive", "o-0", "--tenant", "acme", "--who", "ann", "--why", "test", "--json"
        )
    found = json.loads(told)
    assert code == 1
    assert (found["happened"]["verdict"], found["happened"]["code"]) == (
        "refused",
        "REDRIVE_REFUSED",
    )


def test_a_redrive_that_parks_again_says_so_and_fails_and_an_end_is_called_one(
    world: World, refold: Run
) -> None:
    world.publish(("o-1", "p1", OrderPlaced(items=("pen",), total=13)))
    with world.working(Workflow("order", [fragile.first])):
        world.until_saved()
        code, told, _ = refold("redrive", "o-1", "--who", "ann", "--why", "again")
        assert code == 1
        assert "parked again: REDUCER_RAISED" in " ".join(told.split())
        code, told, _ = refold("terminate", "o-1", "--who", "ann", "--reason", "test")
        assert code == 0
        assert "became terminated" in " ".join(told.split())
