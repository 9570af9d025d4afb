"""Servers go away and come back, workers come and go under load: the outcome is the same."""

from collections.abc import Callable

import pytest
from tests.crash.scene import PARTITIONS, Outcome, scene
from tests.crash.test_shutdown import steps

from refold.testing.servers import Kafka, OwnKafka, OwnPostgres

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

Calm = Callable[[int], Outcome]


def test_rebalances_under_load_with_four_workers_change_nothing(
    calm: Calm, kafka: Kafka, database: str
) -> None:
    with scene(kafka.bootstrap, database, partitions=8) as run:
        first = run.worker()
        run.publish(0.0, 0.3)
        run.until(lambda: len(run.owners()) == 1, "one owner")
        second = run.worker()
        run.publish(0.3, 0.5)
        run.until(lambda: len(run.owners()) == 2, "two owners")
        third = run.worker()
        run.publish(0.5, 0.7)
        run.until(lambda: len(run.owners()) == 3, "three owners")
        second.kill()
        known = run.owners()
        fourth = run.worker()
        run.publish(0.7, 0.9)
        run.until(lambda: bool(run.owners() - known), "a fourth owner")
        run.stop(first)
        run.publish(0.9, 1.0)
        run.until_folded()
        run.stop(third)
        run.stop(fourth)

        assert run.outcome() == calm(8), run.logs()


def test_a_broker_that_is_killed_and_restarted_twice_in_a_row_costs_nothing(
    undisturbed: Outcome, own_kafka: OwnKafka, database: str
) -> None:
    """B013: nothing is lost or doubled, and commands of an instance keep their order."""
    broker = own_kafka()
    with scene(broker.bootstrap, database) as run:
        worker = run.worker()
        run.publish(0.0, 0.5)
        run.until_cut()
        for first, last in ((0.5, 0.8), (0.8, 1.0)):
            broker.kill()
            broker.start()
            run.publish(first, last)
        run.until_folded()
        run.stop(worker)

        assert run.outcome() == undisturbed, run.logs()
        assert {tuple(each) for each in steps(run).values()} == {("reserving", "charging")}


def test_postgresql_that_is_killed_and_restarted_costs_nothing(
    undisturbed: Outcome, kafka: Kafka, own_postgres: OwnPostgres
) -> None:
    server = own_postgres()
    with scene(kafka.bootstrap, server.dsn) as run:
        worker = run.worker()
        run.publish(0.0, 0.5)
        run.until_cut()
        server.kill()
        run.publish(0.5, 1.0)
        server.start()
        run.until_folded()
        run.stop(worker)

        assert run.outcome() == undisturbed, run.logs()


def test_the_input_is_folded_over_two_partitions(undisturbed: Outcome) -> None:
    assert len(undisturbed.markers) == PARTITIONS
    assert set(undisturbed.verdicts) >= {"applied", "duplicate", "conflict", "poison", "late"}
    assert set(undisturbed.commands.values()) == {1}
    assert sum(undisturbed.rows.values()) == sum(undisturbed.markers)
