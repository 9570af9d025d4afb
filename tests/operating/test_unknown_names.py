"""A name that is not there is answered with those that are."""

import pytest
from tests.operating.conftest import Run
from tests.operating.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

LINES = (
    ("db", "thin", "ordre", "--older-than-days", "1"),
    ("definitions", "list", "--workflow", "ordre"),
    ("definitions", "activate", "ordre", "1", "--who", "ann", "--why", "now"),
    ("inspect", "o-1", "--workflow", "ordre"),
    ("redrive", "o-1", "--workflow", "ordre", "--who", "ann", "--why", "mended"),
    ("terminate", "o-1", "--workflow", "ordre", "--who", "ann", "--reason", "test"),
    ("rejected", "list", "ordre"),
    ("rejected", "show", "ordre", "0:1"),
    ("rejected", "redrive", "ordre", "--all"),
    ("commands", "tail", "ordre", "--no-follow"),
)


def test_a_workflow_that_nobody_knows_is_answered_with_those_that_are_known(
    world: World, refold: Run
) -> None:
    world.orders(1)
    world.fold()
    for line in LINES:
        code, out, err = refold(*line)
        assert (code, out) == (2, ""), line
        assert "NOT_FOUND" in err, line
        assert "Did you mean order? Known: order." in err, line
    code, _, err = refold("partitions", "list", "--topic", f"{world.namespace}.ordre.events")
    assert code == 2
    assert f"Known: {world.topic}." in err
    code, _, err = refold("definitions", "activate", "order", "7", "--who", "ann", "--why", "now")
    assert code == 2
    assert "Registered: 1." in err
