"""What a worker says when it starts: where it is connected, what it folds, when it is live."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.operating.world import PATIENCE_S, SPEC, World

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_a_worker_says_where_it_is_connected_what_it_folds_and_when_it_is_live(
    world: World, tmp_path: Path
) -> None:
    world.orders(3)
    log = tmp_path / "worker.log"
    command = [sys.executable, "-m", "refold.cli.main", "worker", SPEC]
    with log.open("wb") as file, subprocess.Popen(command, stderr=file) as worker:
        try:
            world.until(lambda: "live" in told(log), "the worker to be live")
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_S)
    lines = told(log)
    assert lines["starting"]["workflows"] == {"order": [1]}
    assert lines["starting"]["kafka"] == world.bootstrap
    assert lines["connected to Kafka"]["partitions"] == {world.topic: 1}
    database = str(conninfo_to_dict(world.dsn)["dbname"])
    assert lines["connected to PostgreSQL"]["address"].endswith(f"/{database}")
    assert (lines["live"]["owned"], lines["live"]["after_s"] < PATIENCE_S) == (1, True)


def told(log: Path) -> dict[str, dict[str, Any]]:
    """The last whole line of each event."""
    whole, _, _ = log.read_text().rpartition("\n")
    return {line["event"]: line for line in map(json.loads, whole.splitlines())}
