"""Fixtures for tests of replay, rebuild, verify and the operator's tools."""

import sys
from collections.abc import Callable, Iterator

import pytest
import structlog
from tests.operating.world import World

from refold.cli.main import run
from refold.testing.servers import Kafka

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def world(
    kafka: Kafka,
    database: str,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """A namespace with one partition, a database, and the settings in the environment."""
    return World(unique("op"), kafka.bootstrap, database, monkeypatch)


@pytest.fixture(autouse=True)
def logs_on_standard_error() -> Iterator[None]:
    """The worker in this process tells nothing on standard output, as the real one."""
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=sys.__stderr__))
    yield
    structlog.reset_defaults()


@pytest.fixture
def refold(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process: (exit code, standard output, standard error)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(arguments)
        told = capfd.readouterr()
        return code, told.out, told.err

    return call
