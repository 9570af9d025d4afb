"""What became of an event, asked by its identity."""

import json

import pytest
from tests.operating.conftest import Run
from tests.operating.world import World

from refold.examples.order.graph import OrderPlaced

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_an_event_and_its_repeat_are_shown_with_what_they_caused_b016(
    world: World, refold: Run
) -> None:
    placed = ("o-1", "p1", OrderPlaced(items=("pen",), total=1))
    world.publish(placed, placed)
    world.fold()
    ((source,),) = world.sql("SELECT DISTINCT source FROM refold.workflow_event_log")
    code, out, _ = refold("event", "show", source, "p1", "--json")
    first, again = json.loads(out)
    assert code == 0
    assert (first["verdict"], again["verdict"]) == ("applied", "duplicate")
    assert len(first["commands"]) == 1
    told = refold("event", "show", source, "p1")[1]
    assert first["commands"][0] in told
    assert "new/OrderPlaced/0" in told


def test_an_event_that_was_never_folded_is_not_found(world: World, refold: Run) -> None:
    world.orders(1)
    world.fold()
    code, _, err = refold("event", "show", "/nobody", "p1")
    assert code == 2
    assert "NOT_FOUND" in err
