"""Fixtures for tests of replay, rebuild, verify and the operator's tools."""

from collections.abc import Callable

import pytest
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


@pytest.fixture
def refold(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process: (exit code, standard output, standard error)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(arguments)
        told = capfd.readouterr()
        return code, told.out, told.err

    return call
