"""Stages of the worker's tests, for executors beside a worker; and a ledger of the test's own."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.executors.desk import desk, desk_of
from tests.executors.rows import Rows
from tests.kafka.worker.conftest import one, stage_of
from tests.postgres.proxy import MOMENTS, Rule

from refold.executors.ledger import Ledger
from refold.executors.migrate import migrate_ledger
from refold.testing.servers import Postgres

__all__ = ["desk", "desk_of", "ledger", "one", "rows", "stage_of"]


@pytest.fixture(params=MOMENTS)
def cut(request: pytest.FixtureRequest) -> Rule:
    """When the connection is cut, of a COMMIT."""
    found: Rule = MOMENTS[request.param]
    return found


@pytest.fixture(scope="session")
def shared_ledger(postgres: Postgres) -> Iterator[str]:
    """One migrated database for all tests of this process: making one takes longer than a test."""
    dsn = postgres.new_database()
    migrate_ledger(dsn)
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
def ledger_dsn(shared_ledger: str) -> str:
    """Connection string of a database with the ledger's tables, all empty."""
    with psycopg.connect(shared_ledger, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '10s'")  # a session that a test left behind
        connection.execute(
            "TRUNCATE refold_ledger.workflow_action, refold_ledger.workflow_result, "
            "refold_ledger.workflow_intake, refold_ledger.workflow_rejected, "
            "refold_ledger.workflow_scanner, refold_ledger.workflow_early_answer, "
            "refold_ledger.workflow_outbox CASCADE"
        )
    return shared_ledger


@pytest.fixture
def ledger(ledger_dsn: str) -> Iterator[Ledger]:
    """A ledger of the worker `x1`."""
    found = Ledger(ledger_dsn, "x1")
    yield found
    found.close()


@pytest.fixture
def rows(ledger_dsn: str) -> Iterator[Rows]:
    """The rows of that ledger."""
    found = Rows(ledger_dsn)
    yield found
    found.close()
