"""Fixtures for tests of the store: a migrated database of the test's own, and stores on it."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from refold.snapshots.migrate import migrate
from refold.snapshots.model import Alarm
from refold.snapshots.store import PostgresStore
from refold.testing.servers import Postgres

NewStore = Callable[..., PostgresStore]


@pytest.fixture(scope="session")
def shared(postgres: Postgres) -> Iterator[str]:
    """One migrated database for all tests of this process: making one takes longer than a test."""
    dsn = postgres.new_database()
    migrate(dsn)
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
def migrated(shared: str) -> str:
    """Connection string of a database with the tables of this release, all empty.

    A test that changes more than rows asks for `altered` instead.
    """
    with psycopg.connect(shared, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")  # a session that a test left behind
        connection.execute(
            "TRUNCATE refold.workflow_partition, refold.workflow_snapshot, "
            "refold.workflow_instance, refold.workflow_event_log, refold.workflow_definition, "
            "refold.workflow_suspect, refold.workflow_choice"
        )
    return shared


@pytest.fixture
def altered(database: str) -> str:
    """Like `migrated`, the test's own and dropped after it: tables and rights may be changed."""
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
