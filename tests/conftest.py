"""Fixtures for all tests: the servers (see `refold.testing.servers`), and no traces left."""

from collections.abc import Iterator

import pytest

from refold.schemas.codec import forget_numbers

pytest_plugins = ["refold.testing.servers"]


@pytest.fixture(autouse=True)
def no_registry_is_remembered() -> Iterator[None]:
    """Codecs are shared in a process: a registry of one test is none of the next one's."""
    yield
    forget_numbers()
