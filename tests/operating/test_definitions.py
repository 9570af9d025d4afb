"""Versions in use, and code that was changed under the same version."""

import json

import pytest
from tests.operating import changed, fragile
from tests.operating.conftest import Run
from tests.operating.world import SPEC, World

from refold.examples.order.graph import OrderPlaced
from refold.processors.definition import Workflow
from refold.processors.versions import noted
from refold.schemas.errors import Code, DefinitionError
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_the_same_version_with_other_code_is_refused_at_start(world: World) -> None:
    world.orders(2)
    world.fold()
    other = Workflow("order", [changed.reserved_goes_nowhere])
    with pytest.raises(DefinitionError) as caught, world.working(other):
        pass
    assert caught.value.code == Code.DEFINITION_CHANGED
    assert "refold definitions accept" in caught.value.cure


def test_changed_code_that_folds_alike_is_accepted_and_written_on_the_log(
    world: World, refold: Run
) -> None:
    world.orders(5)
    world.fold()
    alike = world.changed_spec("alike")
    code, told, _ = refold("definitions", "accept", alike, "--json")
    (found,) = json.loads(told)
    assert code == 0
    assert found["after"] == changed.alike.build().fingerprint
    world.orders(1, first=5)
    world.fold(Workflow("order", [changed.alike]))
    known = [each.fingerprint for each in world.activations()]
    assert known == [found["before"], found["after"]]
    assert refold("verify", alike)[0] == 0


def test_changed_code_that_folds_otherwise_is_not_accepted(world: World, refold: Run) -> None:
    world.orders(5)
    world.fold()
    before = world.sql("SELECT * FROM refold.workflow_definition")
    code, _, told = refold("definitions", "accept", world.changed_spec("reserved_goes_nowhere"))
    assert code == 2
    assert "folds otherwise" in told
    assert world.sql("SELECT * FROM refold.workflow_definition") == before


def test_code_that_sends_alike_and_keeps_another_state_is_not_accepted(
    world: World, refold: Run
) -> None:
    world.orders(5)
    world.fold()
    before = world.sql("SELECT * FROM refold.workflow_definition")
    code, _, told = refold("definitions", "accept", world.changed_spec("other_value"))
    assert code == 2
    assert "instance acme/o-0 has another state" in " ".join(told.split())
    assert world.sql("SELECT * FROM refold.workflow_definition") == before


def test_states_are_compared_at_the_marker_when_the_log_goes_on(world: World, refold: Run) -> None:
    world.orders(3)
    world.fold()
    world.orders(3, first=3)
    assert refold("definitions", "accept", world.changed_spec("other_value"))[0] == 2
    assert refold("definitions", "accept", world.changed_spec("alike"))[0] == 0


def test_code_that_did_not_change_needs_no_acceptance(world: World, refold: Run) -> None:
    world.orders(1)
    world.fold()
    code, told, _ = refold("definitions", "accept", SPEC, "--json")
    assert (code, json.loads(told)) == (0, [])


def test_versions_are_listed_with_who_needs_them(world: World, refold: Run) -> None:
    world.publish(("o-1", "p1", OrderPlaced(items=("pen",), total=1)))
    world.fold(Workflow("order", [fragile.first]))
    world.publish(("o-2", "p2", OrderPlaced(items=("pen",), total=1)))
    world.fold(Workflow("order", fragile.both))
    code, told, _ = refold("definitions", "list", "--json")
    first, second = json.loads(told)
    assert code == 0
    assert (first["version"], first["running"], first["begins"]) == (1, 1, [])
    assert (second["version"], second["running"], second["begins"]) == (2, 1, [0])
    assert not first["removable"]


def test_the_highest_version_and_the_activated_one_may_never_be_removed(
    world: World, refold: Run
) -> None:
    versions = (fragile.first, fragile.second, fragile.third)
    store = PostgresStore(world.dsn)
    for graph in versions:
        Upkeep(store).register(noted(graph.build()))
    store.close()
    world.orders(1)
    world.fold(Workflow("order", [fragile.first]))
    who = ("--who", "ada", "--why", "all workers have it")
    assert removable(refold) == {1: False, 2: True, 3: False}
    assert refold("definitions", "activate", "order", "2", *who)[0] == 0
    assert removable(refold) == {1: False, 2: False, 3: False}


def removable(refold: Run) -> dict[int, bool]:
    """Version → may its code be removed, as the list says."""
    code, told, _ = refold("definitions", "list", "--json")
    assert code == 0
    return {each["version"]: each["removable"] for each in json.loads(told)}
