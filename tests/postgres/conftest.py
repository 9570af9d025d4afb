"""Fixtures for tests of the store: a migrated database of the test's own, and stores on it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from refold.snapshots.migrate import migrate
from refold.snapshots.model import Alarm
from refold.snapshots.store import PostgresStore

NewStore = Callable[..., PostgresStore]


@pytest.fixture
def migrated(database: str) -> str:
    """Connection string of a database with the tables of this release."""
    migrate(database)
    return database


@pytest.fixture
def alarms() -> list[Alarm]:
    """What the stores of `new_store` told."""
    return []


@pytest.fixture
def new_store(migrated: str, alarms: list[Alarm]) -> Iterator[NewStore]:
    """Makes stores: `new_store("w2", dsn=…, statement_timeout_s=…)`."""
    made: list[PostgresStore] = []

    def make(name: str = "w1", dsn: str = migrated, **settings: Any) -> PostgresStore:
        store = PostgresStore(
            dsn, application_name=f"refold:{name}", alarm=alarms.append, **settings
        )
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(new_store: NewStore) -> PostgresStore:
    """A store of the worker `w1`."""
    return new_store()
