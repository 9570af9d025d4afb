"""Events of older schemas, live and in replay; a context that a redrive takes to a newer class."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.operating import grown
from tests.operating.conftest import Run
from tests.operating.test_rebuild import TABLES, everything
from tests.operating.world import World

from refold.processors.definition import Workflow

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

BOTH = "tests.operating.grown:both"


def contexts(world: World) -> Mapping[str, Any]:
    rows = world.sql("SELECT instance_id, definition, context FROM refold.workflow_instance")
    return {instance: (version, context) for instance, version, context in rows}


def grow(world: World, refold: Run) -> None:
    """Version 1 with its schemas; then version 2, with events of both, and a redrive to it."""
    world.publish(
        ("o-1", "p1", grown.OldPlaced(buyer="Ada King", total=7)),
        ("o-1", "n1", grown.OldNoted(text="gift")),
    )
    world.fold(Workflow("order", [grown.old]))
    with world.working(Workflow("order", grown.both)):
        world.publish(("o-0", "c0", grown.Closed()))  # an activation waits for a record
        world.until(lambda: world.activations()[-1].version == 2, "version 2 to be active")
        world.publish(
            ("o-2", "p2", grown.OldPlaced(buyer="Al Go", total=8)),  # an upstream that lags behind
            ("o-2", "n2", grown.OldNoted(text="late")),
            ("o-3", "p3", grown.Placed(first="Grace", last="Hop", amount=9)),
            ("o-3", "n3", grown.Noted(words="fast", by="joe")),
            ("o-1", "n4", grown.Noted(words="new words", by="joe")),  # version 1 cannot read it
            ("o-1", "c1", grown.Closed()),
        )
        world.until_saved()
        assert world.states()["o-1"] == "parked"
        code, told, _ = refold(
            "redrive", "o-1", "--tenant", "acme", "--version", "2", "--who", "ann",
            "--why", "version 2 reads it", "--json",
        )  # fmt: skip
        assert (code, json.loads(told)["happened"]["verdict"]) == (0, "applied")
        world.publish(("o-2", "c2", grown.Closed()))
        world.until_saved()


def test_older_schemas_fold_alike_live_and_in_replay_and_a_context_comes_over(
    world: World, refold: Run
) -> None:
    grow(world, refold)
    notes = ["gift", "joe: new words"]
    assert contexts(world) == {
        "o-1": (2, {"first": "Ada", "last": "King", "amount": 7, "notes": notes}),
        "o-2": (2, {"first": "Al", "last": "Go", "amount": 8, "notes": ["nobody: late"]}),
        "o-3": (2, {"first": "Grace", "last": "Hop", "amount": 9, "notes": ["joe: fast"]}),
    }  # fmt: skip
    assert len(world.committed(f"{world.namespace}.order.commands")) == 2
    code, told, _ = refold("verify", BOTH, "--json")  # in a process that has learnt nothing yet
    (found,) = json.loads(told)
    assert (code, found["equal"], found["instances"]) == (0, True, 3)


def test_a_rebuild_reads_older_schemas_as_the_worker_did(world: World, refold: Run) -> None:
    grow(world, refold)
    before = everything(world)
    for table in TABLES:
        world.sql(f"DELETE FROM refold.workflow_{table}")
    code, told, _ = refold("rebuild", BOTH, "--partition", "0", "--json")
    assert (code, json.loads(told)["missing"]) == (0, 3)
    assert everything(world) == before
