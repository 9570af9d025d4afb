"""A schedule as an operator sees it: next, last, missed, why not; what is wrong is said at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.kafka.worker.nightly import NIGHTLY, Wall
from tests.operating.conftest import Run
from tests.operating.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

SPEC = "tests.kafka.worker.nightly:SCHEDULES"


def test_a_schedule_shows_what_is_next_what_was_last_and_what_was_missed(
    world: World, refold: Run
) -> None:
    assert refold("topics", "create", "--partitions", "1", SPEC)[0] == 0
    assert refold("topics", "create", "tests.kafka.worker.nightly:CLOSING_GRAPH")[0] == 0
    wall = Wall("2093-11-01T05:29:59")
    with world.working(NIGHTLY, wall=wall):
        world.until(lambda: world.states() == {"close": "waiting_timer"}, "the announcement")
    wall.set("2093-11-05T06:31:00")
    with world.working(NIGHTLY, wall=wall):
        world.until(lambda: shown(refold)["context"]["started"] == 1, "the latest")
    from_rows, from_log = shown(refold), shown(refold, "-d", SPEC)
    for look in (from_rows, from_log):
        context = look["context"]
        assert (context["next"], context["last"]) == (
            "2093-11-06T06:30:00Z",
            "2093-11-05T06:30:00Z",
        )
        assert (context["started"], context["missed"], context["late_ms"]) == (1, 4, 60_000)
        (timer,) = look["timers"]
        assert (timer["name"], timer["due_ms"]) == ("next", 3_908_327_400_000)
    told = refold("inspect", "close")[1]
    assert "next: due 2093-11-06 06:30:00+00:00" in told
    code, told, _ = refold("verify", SPEC)
    assert code == 0, told


def shown(refold: Run, *options: str) -> dict[str, Any]:
    """What `refold inspect` tells of the schedule."""
    found = json.loads(refold("inspect", "close", "--json", *options)[1])
    return dict(found["instance"])


def test_a_schedule_that_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refold: Run
) -> None:
    (tmp_path / "badly.py").write_text(
        "from refold import Schedules\n"
        "from tests.kafka.worker.nightly import daily\n"
        "wrong = Schedules('nightly', daily(cron='30 25 * * *'), tenant='acme')\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, error = refold("worker", "badly:wrong")
    assert code != 0
    assert "schedule 'close': cron '30 25 * * *' cannot be read: Bad hour" in error
    assert "Traceback" not in error
