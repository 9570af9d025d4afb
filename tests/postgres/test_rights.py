"""Least rights: a worker's role does all of its work and nothing else; a reader reads views."""

import os
from collections.abc import Callable, Iterator

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.postgres.making import (
    TOPIC,
    claimed,
    cut,
    event,
    execute,
    flush,
    instance,
    partition,
    snapshot,
)

from refold.schemas.errors import Code, ServerError
from refold.snapshots.grants import grant
from refold.snapshots.migrate import migrate
from refold.snapshots.model import Definition, PartitionRow
from refold.snapshots.preflight import findings
from refold.snapshots.queries import Queries
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep

pytestmark = pytest.mark.postgres

NewRole = Callable[[], str]


@pytest.fixture
def new_role(altered: str) -> Iterator[NewRole]:
    """Makes login roles with no right of their own, dropped after the test."""
    made: list[str] = []

    def make() -> str:
        name = f"test_{os.urandom(6).hex()}"
        execute(altered, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
        made.append(name)
        return name

    # New databases let every role make temporary tables: least rights must not lean on that.
    execute(altered, f"REVOKE ALL ON DATABASE {_name(altered)} FROM PUBLIC")
    yield make
    for name in made:
        execute(altered, f"DROP OWNED BY {name}")
        execute(altered, f"DROP ROLE {name}")


def _name(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def _as(dsn: str, role: str) -> str:
    return make_conninfo(dsn, user=role, password="x")


def _make_prunable(store: PostgresStore, row: PartitionRow) -> None:
    for version in range(2, 6):
        moved = msgspec.structs.replace(row, marker=10 * (version - 1))
        assert store.save(cut(moved, 10 * version, [snapshot("order-1", version, moved.marker)]))


def test_a_workers_role_does_everything_that_a_store_does(altered: str, new_role: NewRole) -> None:
    role = new_role()
    grant(altered, worker=role)
    dsn = _as(altered, role)
    assert not findings(dsn)
    store = PostgresStore(dsn, application_name="refold:w1", lock_timeout_s=0.1)
    upkeep = Upkeep(store)
    store.check()
    row = claimed(store)
    assert store.save(cut(row, 10, [snapshot()]))
    assert store.flush(flush(row, 10, instances=[instance()], events=[event(1)]))
    again = flush(row, 20, previous=10, instances=[instance()], events=[event(1)])
    assert store.flush(again)
    store.fence(TOPIC, 0, row.epoch, "a fence")
    assert store.choose(TOPIC, 0, "emit")
    store.suspect(TOPIC, 0, 3)
    store.clear(TOPIC, 0, 3)
    upkeep.register(Definition(workflow="order", version=1, fingerprint="a", canonical="{}"))
    upkeep.retire("order", 1)
    _make_prunable(store, row)
    assert store.prune(TOPIC, 0, "order", [("acme", "order-1")])
    upkeep.thin_events("order", 0)
    upkeep.thin_instances("order", 0)
    upkeep.partition_hashes(TOPIC, 0)
    rebuilt = msgspec.structs.replace(row, marker=10, rows_to=10)
    assert upkeep.replace(rebuilt, [snapshot()], [flush(row, 10, events=[event(1)])])
    held = psycopg.connect(dsn, application_name="refold:w1")
    held.execute("UPDATE refold.workflow_partition SET base = base")
    successor = PostgresStore(dsn, application_name="refold:w2", lock_timeout_s=0.1)
    assert successor.claim(partition("w2"), row.epoch)
    successor.close()
    held.close()
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE refold.mine (i int)",
        "DROP TABLE refold.workflow_snapshot",
        "TRUNCATE refold.workflow_snapshot",
        "ALTER TABLE refold.workflow_snapshot ADD mine int",
        "DELETE FROM refold.workflow_partition",
        "DELETE FROM refold.workflow_definition",
        "UPDATE refold.workflow_choice SET choice = ''",
        "DELETE FROM refold.workflow_choice",
        "UPDATE refold.schema_migration SET checksum = ''",
        "INSERT INTO refold.schema_migration VALUES (9, 'x', 'x')",
        "CREATE SCHEMA mine",
    ],
)
def test_a_workers_role_can_do_nothing_that_a_store_does_not(
    altered: str, new_role: NewRole, statement: str
) -> None:
    role = new_role()
    grant(altered, worker=role)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(_as(altered, role), statement)


def test_a_readers_role_reads_every_view_and_no_table(altered: str, new_role: NewRole) -> None:
    role = new_role()
    grant(altered, reader=role)
    dsn = _as(altered, role)
    queries = Queries(dsn)
    assert not queries.instances("order")
    assert not queries.history("order", "acme", "order-1")
    assert not queries.event("/shop", "event-1")
    assert not queries.rejected("order")
    assert not queries.partitions()
    queries.close()
    for view in ("actions", "timers"):
        execute(dsn, f"SELECT * FROM refold_v1.{view}")
    for statement in (
        "SELECT data FROM refold.workflow_snapshot",
        "SELECT FROM refold.workflow_instance",
        "UPDATE refold_v1.instances SET state = 'done'",
        "DELETE FROM refold_v1.events",
        "CREATE TEMP TABLE mine (i int)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(dsn, statement)


def test_a_dry_run_of_grants_changes_nothing(altered: str, new_role: NewRole) -> None:
    role = new_role()
    statements = grant(altered, worker=role, reader=role, dry_run=True)
    assert any("workflow_snapshot" in statement for statement in statements)
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        execute(_as(altered, role), "SELECT 1")


def test_grants_to_a_role_that_does_not_exist_say_so(altered: str) -> None:
    with pytest.raises(ServerError, match="Create the role first") as refused:
        grant(altered, reader="nobody_of_that_name")
    assert refused.value.code is Code.POSTGRES_REFUSED


def test_a_migration_without_the_right_to_make_schemas_says_so(
    altered: str, new_role: NewRole
) -> None:
    role = new_role()
    execute(altered, f"GRANT CONNECT ON DATABASE {_name(altered)} TO {role}")
    with pytest.raises(ServerError, match="permission denied") as refused:
        migrate(_as(altered, role), "another")
    assert refused.value.code is Code.POSTGRES_REFUSED
