"""The list of rejected records says what became of each since, and can be read on a screen."""

import json

import pytest
from tests.operating import fragile
from tests.operating.conftest import Run
from tests.operating.world import World

from refold.examples.order.graph import OrderPlaced, Reserved
from refold.processors.definition import Workflow

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

FRAGILE = Workflow("order", [fragile.first])


def now(refold: Run) -> dict[str, str | None]:
    """Key → what became of its record."""
    rows = map(json.loads, refold("rejected", "list", "order", "--json")[1].splitlines())
    return {row["key"]: row["now"] for row in rows}


def reject(world: World) -> None:
    """One record that is refused, one that is parked."""
    world.publish(
        ("too-early", "r1", Reserved()),
        ("unlucky", "p1", OrderPlaced(items=("pen",), total=13)),
    )
    world.fold(FRAGILE)


def test_a_rejected_record_is_listed_with_what_became_of_it_since(
    world: World, refold: Run
) -> None:
    reject(world)
    assert now(refold) == {"too-early": "kept", "unlucky": "waiting"}
    world.publish(("too-early", "p2", OrderPlaced(items=("pen",), total=1)))
    assert refold("rejected", "redrive", "order", "--all", "--verdict", "refused")[0] == 0
    refold("terminate", "unlucky", "--who", "ann", "--reason", "a test", "--wait", "0")
    with world.working(FRAGILE):
        world.until(
            lambda: (
                now(refold) == {"too-early": "came again: applied", "unlucky": "resolved: late"}
            ),
            "both to be told",
        )
    told = refold("rejected", "show", "order", "0:1", "--json")[1]
    assert json.loads(told)["now"] == "came again: applied"


def test_without_postgresql_the_list_stands_and_says_what_is_not_known(
    world: World, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reject(world)
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", "postgresql://127.0.0.1:1/none?connect_timeout=1")
    assert now(refold) == {"too-early": None, "unlucky": None}
    assert "What became of them is not known" in refold("rejected", "list", "order")[2]


def test_a_redrive_that_waits_says_what_became_of_each_record(world: World, refold: Run) -> None:
    reject(world)
    line = ("rejected", "redrive", "order", "--all", "--verdict", "refused")
    code, _, told = refold(*line, "--wait", "0.1")
    assert code == 1
    assert "redriven, attempt 2: not folded in that time" in told
    with world.working(FRAGILE):
        world.until(lambda: world.counts()["refused"] == 2, "the second refusal")
        world.publish(("too-early", "p2", OrderPlaced(items=("pen",), total=1)))
        code, out, _ = refold(*line, "--wait", "20", "--json")
        (row,) = map(json.loads, out.splitlines())
        assert (code, row["sent"], row["verdict"]) == (0, True, "applied")
        code, _, told = refold(*line, "--wait", "20")
        assert code == 0
        assert "was already redriven" in told
        parked = ("rejected", "redrive", "order", "0:2", "--why", "a test", "--wait", "20")
        code, _, told = refold(*parked)
    assert "released: applied" in told
