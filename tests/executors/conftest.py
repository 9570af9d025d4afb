"""Stages of the worker's tests for executors beside a worker, and desks for executors alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from tests.executors.desk import Desk
from tests.kafka.worker.conftest import one, stage_of

from refold.testing.servers import Kafka

__all__ = ["DeskOf", "desk", "desk_of", "one", "stage_of"]

DeskOf = Callable[[int], Desk]


@pytest.fixture
def desk_of(kafka: Kafka, database: str) -> Iterator[DeskOf]:
    """Makes the test's desk, with so many partitions."""
    with ExitStack() as stack:
        yield lambda partitions: stack.enter_context(
            closing(Desk(kafka.bootstrap, database, partitions=partitions))
        )


@pytest.fixture
def desk(desk_of: DeskOf) -> Desk:
    """A desk with one partition."""
    return desk_of(1)
