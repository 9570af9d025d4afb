"""Trips, with everything killed at random: no effect twice, none lost, what failed is undone."""

import os
import sys
from pathlib import Path

import pytest
from tests.executors.saga.run import PARTITIONS, sagas
from tests.kafka.worker.stage import stage

from refold.testing.servers import Kafka

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

TRIPS = int(os.environ.get("REFOLD_CHAOS_TRIPS", "60"))
KILLS = max(8, TRIPS // 10)


@pytest.mark.timeout(1800 if TRIPS > 100 else 300)
def test_trips_are_booked_once_or_undone_whoever_is_killed_and_whatever_the_world_does(
    kafka: Kafka, database: str, tmp_path: Path
) -> None:
    with (
        stage(kafka.bootstrap, database, PARTITIONS) as made,
        sagas(made, tmp_path, TRIPS) as run,
    ):
        sys.stdout.write(f"seed {run.report.seed} (REFOLD_CHAOS_SEED)\n")
        run.order()
        run.start_all()
        run.kill_until_all_have_ended(KILLS)
        made.until(lambda: run.unsettled() == [], "every unknown outcome to be settled")
        made.until_saved("trip")
        run.stop_all()
        try:
            run.check()
        finally:
            sys.stdout.write(f"{run.report}\n")
        found = run.verify()
        assert all(each["equal"] for each in found), found
        assert sum(each["instances"] for each in found) == TRIPS
