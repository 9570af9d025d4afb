"""B010: members come and go while partitions are still being recovered."""

import psycopg
import pytest
from tests.crash.scene import Outcome, scene

from refold.testing.servers import Kafka

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]


def test_b010_members_that_join_and_die_in_the_middle_of_recovery_change_nothing(
    undisturbed: Outcome, kafka: Kafka, database: str
) -> None:
    """B010: no partition sends before its own replay is complete; what is lost is left cleanly."""
    with scene(kafka.bootstrap, database) as run:
        run.publish()
        before = run.worker()
        run.until_folded()
        run.stop(before)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "TRUNCATE refold.workflow_partition, refold.workflow_snapshot,"
                " refold.workflow_instance, refold.workflow_event_log"
            )
        first = run.worker()
        run.until(lambda: len(run.owners()) >= 1, "a first owner")
        second = run.worker()
        third = run.worker()
        run.until(lambda: len(run.owners()) >= 2, "a second owner")
        first.kill()
        run.until_folded()
        run.stop(second)
        run.stop(third)

        assert run.outcome() == undisturbed, run.logs()
