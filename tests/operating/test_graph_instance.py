"""`refold graph --instance`: where an instance stands in the picture of its version."""

import pytest
from tests.operating import fragile
from tests.operating.conftest import Run
from tests.operating.world import SPEC, World

from refold.cli.look import standing
from refold.examples.order.graph import OrderPlaced, Reserved
from refold.processors.definition import Workflow

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest.fixture
def begun(world: World) -> World:
    """One order that waits for its charge, and one that is parked at its first event."""
    world.publish(
        ("o-1", "p1", OrderPlaced(items=("pen",), total=7)),
        ("o-1", "c0", world.charged("too early")),
        ("o-1", "r1", Reserved()),
        ("o-13", "p13", OrderPlaced(items=("pen",), total=13)),
    )
    world.fold(Workflow("order", [fragile.first]))
    return world


def test_it_stands_where_its_rows_say_with_the_way_that_it_came(begun: World) -> None:
    found = standing("order", "acme", "o-1")
    assert (found.state, found.version, found.note) == ("charging", 1, "running")
    assert found.visited == {"new", "reserving", "charging"}
    assert found.taken == {"new/OrderPlaced/0", "reserving/Reserved/0"}  # not the refused one
    parked = standing("order", "acme", "o-13")
    assert (parked.state, parked.taken) == ("new", frozenset())
    assert parked.note.startswith("parked: REDUCER_RAISED: the reducer of OrderPlaced in state")
    assert parked.note.endswith("raised ValueError: 13")


def test_every_form_shows_it(begun: World, refold: Run) -> None:
    asked = ("graph", "tests.operating.fragile:first", "--instance", "o-13", "--tenant", "acme")
    for form, shown in (((), "o-13"), (("--svg", "-"), "o-13"), (("--mermaid",), "class s0 here")):
        code, told, _ = refold(*asked, *form)
        assert code == 0
        assert shown in told
    picture = refold(*asked, "--svg", "-")[1]
    assert "REDUCER_RAISED" in picture
    assert "--instance o-13 --tenant acme" in " ".join(
        refold("inspect", "o-13", "--tenant", "acme")[1].split()
    )


def test_the_version_that_it_goes_by_is_drawn(begun: World, refold: Run) -> None:
    asked = ("--instance", "o-1", "--tenant", "acme")
    _, told, _ = refold("graph", "tests.operating.fragile:both", *asked)
    assert "order version 1" in told
    _, told, _ = refold("graph", "tests.operating.fragile:both", *asked, "--version", "2")
    assert "order version 2" in told
    code, _, told = refold("graph", "tests.operating.fragile:second", *asked)
    assert code == 2
    assert "has no version 1 of order" in " ".join(told.split())


def test_what_is_missing_is_said_in_one_line(
    begun: World, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, told = refold("graph", SPEC, "--instance", "o-9", "--tenant", "acme")
    assert (code, "Traceback" in told) == (2, False)
    assert "acme/o-9" in told
    assert "--tenant" in told
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", "postgresql://127.0.0.1:1/none?connect_timeout=1")
    code, _, told = refold("graph", SPEC, "--instance", "o-1", "--tenant", "acme")
    assert (code != 0, "Traceback" in told) == (True, False)
    assert "POSTGRES_AWAY" in told
