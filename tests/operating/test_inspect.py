"""One instance, now and in the past, and its history read back by the testing driver."""

import json

import pytest
from tests.kafka.worker.waits import WAIT, Asked
from tests.operating.conftest import Run
from tests.operating.world import SPEC, World

from refold.examples.order.graph import OrderPlaced, Reserved
from refold.schemas.codec import codec_of
from refold.snapshots.model import content_hash
from refold.testing.driver import Driver
from refold.topics.records import event_headers
from refold.topics.specs import create, workflow_specs

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest.fixture
def placed(world: World) -> World:
    """A world with one order that goes its way, and a repeated and a refused event."""
    world.publish(
        ("o-1", "p1", OrderPlaced(items=("pen",), total=7)),
        ("o-1", "c0", world.charged("too early")),
        ("o-1", "r1", Reserved()),
        ("o-1", "p1", OrderPlaced(items=("pen",), total=7)),
        ("o-1", "c1", world.charged("r-1")),
        tenant="acme",
    )
    world.fold()
    return world


def test_rows_alone_tell_where_an_instance_stands(placed: World, refold: Run) -> None:
    code, told, _ = refold("inspect", "o-1", "--tenant", "acme", "--json")
    found = json.loads(told)
    assert code == 0
    assert found["instance"]["seen_in"] == "rows"
    assert (found["instance"]["state"], found["instance"]["run_status"]) == ("done", "completed")
    assert [each["verdict"] for each in found["history"]] == [
        "applied",
        "refused",
        "applied",
        "duplicate",
        "applied",
    ]
    assert found["history"][1]["code"] == "NO_TRANSITION"


def test_the_log_tells_the_same_with_the_definition(placed: World, refold: Run) -> None:
    from_rows = json.loads(refold("inspect", "o-1", "--tenant", "acme", "--json")[1])
    from_log = json.loads(refold("inspect", "o-1", "--tenant", "acme", "-d", SPEC, "--json")[1])
    assert from_log["instance"]["seen_in"] == "snapshot and log"
    for name in ("state", "run_status", "context", "version", "last_offset", "parked"):
        assert from_log["instance"][name] == from_rows["instance"][name]
    assert from_log["history"] == from_rows["history"]


def test_of_several_definitions_the_one_is_taken_whose_rows_have_the_id(
    placed: World, refold: Run
) -> None:
    both = ("-d", SPEC, "-d", "refold.examples.approval:approval", "--tenant", "acme", "--json")
    code, told, _ = refold("inspect", "o-1", *both)
    assert (code, json.loads(told)["instance"]["workflow"]) == (0, "order")
    assert refold("history", "export", "o-1", *both[:-1])[0] == 0
    code, _, why = refold("inspect", "nobody", *both)
    assert code == 2
    assert "Several workflows were given" in why


def test_the_past_is_folded_from_the_log(placed: World, refold: Run) -> None:
    code, told, _ = refold("inspect", "o-1", "--tenant", "acme", "-d", SPEC, "--at", "1", "--json")
    found = json.loads(told)
    assert code == 0
    assert found["instance"]["state"] == "reserving"
    assert found["instance"]["accepts"] == ["Reserved"]
    assert [each["offset"] for each in found["history"]] == [0, 1]
    assert placed.end() == 5


def test_an_instance_is_inspected_while_postgresql_is_away(
    placed: World, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", "postgresql://127.0.0.1:1/none?connect_timeout=1")
    code, told, _ = refold("inspect", "o-1", "--tenant", "acme", "-d", SPEC, "--json")
    found = json.loads(told)
    assert code == 0
    assert (found["instance"]["seen_in"], found["instance"]["state"]) == ("log", "done")
    assert len(found["history"]) == 5
    assert placed.end() == 5


def test_an_exported_history_folds_to_the_same_state_in_the_testing_driver(
    placed: World, refold: Run
) -> None:
    code, told, _ = refold("history", "export", "o-1", "--tenant", "acme", "-d", SPEC)
    assert code == 0
    driver = Driver.from_history(placed.workflow, told.splitlines())
    assert driver.state("o-1", tenant="acme") == "done"
    assert [str(each) for each in driver.verdicts()] == [
        "applied",
        "refused",
        "applied",
        "duplicate",
        "applied",
    ]
    live = {(each.tenant, each.instance): each.hash for each in placed.live().instances}
    assert {key: content_hash(data) for key, data in driver.snapshots().items()} == live


def test_an_instance_that_is_not_there_is_named(placed: World, refold: Run) -> None:
    for more in ((), ("-d", SPEC)):
        code, _, told = refold("inspect", "o-9", "--tenant", "acme", *more)
        assert code == 2
        assert "acme/o-9" in told
    assert placed.end() == 5


def test_an_instance_is_shown_in_the_picture_of_its_graph(placed: World, refold: Run) -> None:
    code, told, _ = refold("graph", SPEC, "--mermaid", "--instance", "o-1", "--tenant", "acme")
    assert code == 0
    assert "class s3 here" in told
    assert "class s0,s1,s2 been" in told
    code, _, told = refold("graph", SPEC, "--instance", "o-9", "--tenant", "acme")
    assert code == 2
    assert "acme/o-9" in told
    assert placed.end() == 5


def test_an_instance_is_found_by_its_id_alone_and_other_tenants_are_named(
    placed: World, refold: Run
) -> None:
    assert json.loads(refold("inspect", "o-1", "--json")[1])["instance"]["tenant"] == "acme"
    assert "class s3 here" in refold("graph", SPEC, "--mermaid", "--instance", "o-1")[1]
    for more in ((), ("-d", SPEC)):
        code, _, told = refold("inspect", "o-1", "--tenant", "shop", *more)
        assert code == 2
        assert "no instance shop/o-1" in told
        assert "but acme/o-1" in told


def test_an_id_that_two_tenants_have_asks_for_the_tenant(placed: World, refold: Run) -> None:
    placed.publish(("o-1", "p1", OrderPlaced(items=("pen",), total=7)), tenant="shop")
    placed.fold()
    code, _, told = refold("inspect", "o-1")
    assert code == 2
    assert "acme/o-1 of order, shop/o-1 of order" in told
    assert "--tenant" in told


def test_what_an_instance_waits_for_is_told_from_rows_and_from_the_log_alike(
    world: World, refold: Run
) -> None:
    create(world.admin, workflow_specs(world.namespace, "wait", ["wait"], 1))
    due = 1_900_000_000_000
    asked = codec_of(Asked)
    producer = world.producer()
    producer.produce(
        f"{world.namespace}.wait.events",
        asked.encode(Asked(due, due + 5)),
        b"w-1",
        headers=event_headers("a1", "/shop", asked.name, "acme"),
    )
    assert producer.flush(30) == 0
    with world.working(WAIT):
        world.until(lambda: bool(world.sql("SELECT id FROM refold_v1.timers")), "the timers")
    looks = []
    for more in ((), ("--tenant", "acme", "-d", "tests.kafka.worker.waits:wait")):
        code, told, said = refold("inspect", "w-1", "--workflow", "wait", "--json", *more)
        assert code == 0, said
        looks.append(json.loads(told)["instance"])
    assert looks[0]["seen_in"] == "rows"
    assert looks[0]["timers"] == looks[1]["timers"]
    assert [(each["name"], each["due_ms"]) for each in looks[0]["timers"]] == [
        ("remind", due),
        ("close", due + 5),
    ]
    _, text, _ = refold("inspect", "w-1", "--workflow", "wait")
    assert "remind: due 2030-03-17 17:46:40" in text
