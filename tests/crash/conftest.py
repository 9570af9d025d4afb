"""What the crash tests compare with: the run that nobody disturbed."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from tests.crash.scene import PARTITIONS, Outcome, scene

from refold.testing.servers import Kafka, Postgres


@pytest.fixture(scope="session")
def calm(kafka: Kafka, postgres: Postgres) -> Iterator[Callable[[int], Outcome]]:
    """Outcome of an undisturbed run over so many partitions, made once."""
    made: list[str] = []

    @cache
    def run(partitions: int) -> Outcome:
        dsn = postgres.new_database()
        made.append(dsn)
        with scene(kafka.bootstrap, dsn, partitions=partitions) as quiet:
            quiet.publish()
            worker = quiet.worker()
            quiet.until_folded()
            quiet.stop(worker)
            return quiet.outcome()

    yield run
    for dsn in made:
        postgres.drop_database(dsn)


@pytest.fixture(scope="session")
def undisturbed(calm: Callable[[int], Outcome]) -> Outcome:
    """Outcome of an undisturbed run over the usual partitions."""
    return calm(PARTITIONS)
