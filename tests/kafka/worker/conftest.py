"""Stages: topics and a database of the test's own, and a preflight that does not keep answers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.kafka.worker.stage import Stage, stage

from refold.processors import checks
from refold.testing.servers import Kafka

StageOf = Callable[[int], Stage]


@pytest.fixture
def stage_of(kafka: Kafka, database: str) -> Iterator[StageOf]:
    """Makes the test's stage, with so many partitions."""
    with ExitStack() as stack:
        yield lambda partitions: stack.enter_context(stage(kafka.bootstrap, database, partitions))


@pytest.fixture
def one(stage_of: StageOf) -> Stage:
    """A stage with one partition."""
    return stage_of(1)


@pytest.fixture
def two(stage_of: StageOf) -> Stage:
    """A stage with two partitions."""
    return stage_of(2)


@pytest.fixture(autouse=True)
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers about topics and servers are asked for again soon: a cure is seen soon."""
    monkeypatch.setattr(checks, "KEPT_S", 0.1)
