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


def test_an_event_whose_envelope_was_refused_is_found_by_its_headers(
    world: World, refold: Run
) -> None:
    producer = world.producer()
    headers: list[tuple[str, str | bytes | None]] = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"p1"),
        ("ce_source", b"/shop"),
    ]
    producer.produce(world.topic, b"body", b"o-1", headers=headers)
    assert producer.flush(10) == 0
    world.fold()
    code, out, _ = refold("event", "show", "/shop", "p1", "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert (found["code"], found["record"]) == ("BAD_ENVELOPE", f"{world.topic}/0/0")
    told = refold("event", "show", "/shop", "p1")[1]
    assert f"refold rejected show order {found['kept']}" in told
    assert refold("rejected", "show", "order", found["kept"])[0] == 0
    code, _, err = refold("event", "show", "/shop", "p2")
    assert code == 2
    assert "NOT_FOUND" in err
