"""Instances that wait for a person are counted where people look, and listed with their cause."""

import json

import pytest
from tests.operating import fragile
from tests.operating.conftest import Run
from tests.operating.world import World

from refold.examples.order.graph import OrderPlaced, Reserved
from refold.processors.definition import Workflow
from refold.processors.endpoint import StatusCollector

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

FRAGILE = Workflow("order", [fragile.first])


def park(world: World, *instances: str) -> None:
    unlucky = OrderPlaced(items=("pen",), total=13)
    world.publish(*((each, f"p-{each}", unlucky) for each in instances))


def test_parked_instances_are_listed_with_cause_time_and_what_waits(
    world: World, refold: Run
) -> None:
    park(world, "o-1")
    world.publish(("o-1", "r1", Reserved()), ("o-2", "p2", OrderPlaced(items=(), total=1)))
    world.fold(FRAGILE)
    code, told, _ = refold("parked", "list", "--json")
    (found,) = json.loads(told)
    ((written,),) = world.sql("SELECT log_time FROM refold.workflow_event_log WHERE log_offset = 0")
    assert code == 0
    assert (found["tenant"], found["instance_id"], found["code"]) == (
        "acme",
        "o-1",
        "REDUCER_RAISED",
    )
    assert (found["log_offset"], found["waiting"]) == (0, 2)
    assert found["type"].endswith("OrderPlaced")
    assert found["since"] == written.isoformat().replace("+00:00", "Z")
    told = refold("parked", "list", "--workflow", "order")[1]
    assert "ValueError" in told
    assert "refold redrive o-1 --tenant acme --workflow order" in told
    assert "1: see refold parked list" in refold("status")[1]
    refold(
        "terminate", "o-1", "--tenant", "acme", "--who", "ann", "--reason", "a test", "--wait", "0"
    )
    world.fold(FRAGILE)
    assert json.loads(refold("parked", "list", "--json")[1]) == []
    assert "No instance waits" in refold("parked", "list")[2]


def test_a_long_list_of_parked_instances_comes_in_pages(world: World, refold: Run) -> None:
    park(world, *(f"o-{number}" for number in range(4)))
    world.fold(FRAGILE)
    _, told, remark = refold("parked", "list", "--limit", "3")
    assert told.count("way out") == 3
    assert "3 of 4" in remark
    assert len(json.loads(refold("parked", "list", "--limit", "3", "--json")[1])) == 3


def test_a_worker_shows_how_many_instances_are_parked_for_each_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_WORKER_PREFLIGHT_S", "1")
    world.reload()
    park(world, "o-1", "o-2")
    with world.working(FRAGILE) as worker:
        world.until(
            lambda: any(each.parked == 2 for each in worker.health.status.partitions),
            "two parked instances in the status",
        )
        shown = {
            (sample.labels["workflow"], sample.labels["partition"]): sample.value
            for metric in StatusCollector(worker.health).collect()
            if metric.name == "refold_parked_instances"
            for sample in metric.samples
        }
    assert shown == {("order", "0"): 2}
