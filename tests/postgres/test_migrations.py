"""Migrations: once each, in order, all or nothing, and clear about versions that do not fit."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from tests.postgres.making import execute, query

from refold.schemas.errors import Code, ServerError, UsageError
from refold.snapshots import migrate as runner
from refold.snapshots.migrate import Migration, migrate, migrations, schema_name
from refold.snapshots.store import PostgresStore

pytestmark = pytest.mark.postgres


def _check(dsn: str, schema: str = "refold") -> None:
    store = PostgresStore(dsn, schema)
    try:
        store.check()
    finally:
        store.close()


def test_a_fresh_database_is_migrated_and_a_second_run_does_nothing(database: str) -> None:
    assert [step.number for step in migrate(database)] == list(range(1, len(migrations()) + 1))
    assert not migrate(database)
    _check(database)


def test_two_migrations_at_once_apply_each_file_once(database: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(migrate, [database, database]))
    assert sorted(map(len, done)) == [0, len(migrations())]
    _check(database)


def test_two_schemas_of_one_database_know_nothing_of_each_other(database: str) -> None:
    migrate(database, "first")
    migrate(database, "second")
    execute(database, "DROP SCHEMA first_v1, first CASCADE")
    _check(database, "second")


def test_a_database_that_is_newer_than_the_code_is_refused_by_both(database: str) -> None:
    migrate(database)
    execute(database, "INSERT INTO refold.schema_migration VALUES (999, 'later', 'x')")
    for act in (_check, migrate):
        with pytest.raises(ServerError, match="newer than this code") as refused:
            act(database)
        assert refused.value.code is Code.SCHEMA_VERSION


def test_a_database_that_is_older_than_the_code_is_refused_until_migrated(database: str) -> None:
    with pytest.raises(ServerError, match="refold db migrate") as refused:
        _check(database)
    assert refused.value.code is Code.SCHEMA_VERSION


def test_a_migration_that_changed_after_it_was_applied_is_refused(database: str) -> None:
    migrate(database)
    execute(database, "UPDATE refold.schema_migration SET checksum = 'x' WHERE number = 2")
    with pytest.raises(ServerError, match=r"Migration 2 \(snapshot\)"):
        _check(database)


def test_a_migration_that_fails_leaves_nothing_behind(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [*migrations(), Migration(900, "broken", "CREATE TABLE $schema.broken (x nothing)")]
    monkeypatch.setattr(runner, "migrations", lambda _: broken)
    with pytest.raises(ServerError) as refused:
        migrate(database)
    assert refused.value.code is Code.POSTGRES_REFUSED
    assert not query(database, "SELECT FROM pg_namespace WHERE nspname LIKE 'refold%%'")


@pytest.mark.parametrize(("dropped", "also"), [("refold", "refold_v1"), ("refold_v1", "refold")])
def test_one_schema_without_the_other_is_refused_with_the_way_out(
    database: str, dropped: str, also: str
) -> None:
    migrate(database)
    execute(database, f"DROP SCHEMA {dropped} CASCADE")
    with pytest.raises(ServerError, match="only one of the two") as refused:
        migrate(database)
    assert refused.value.code is Code.SCHEMA_VERSION
    assert f"DROP SCHEMA {also} CASCADE" in refused.value.cure
    execute(database, f"DROP SCHEMA {also} CASCADE")
    assert len(migrate(database)) == len(migrations())


def test_a_store_without_its_tables_says_which_command_makes_them(database: str) -> None:
    store = PostgresStore(database)
    with pytest.raises(ServerError, match="refold db migrate") as refused:
        store.read("topic", 0)
    store.close()
    assert refused.value.code is Code.SCHEMA_VERSION


@pytest.mark.parametrize("name", ["", "Ärger", "a;b", 'a"b', "pg_mine", "1st", "x" * 49, "a\n"])
def test_a_schema_name_that_could_not_stand_in_sql_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        schema_name(name)


def test_every_identifier_column_compares_by_bytes(database: str) -> None:
    migrate(database)
    loose = query(
        database,
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "JOIN pg_index i ON i.indrelid = c.oid AND a.attnum = ANY (i.indkey) "
        "JOIN pg_collation l ON l.oid = a.attcollation "
        "WHERE c.relnamespace = 'refold'::regnamespace AND l.collname <> 'C' "
        "AND c.relname <> 'schema_migration'",
    )
    assert not loose


def test_the_longest_identifiers_of_four_byte_characters_fit_every_index(database: str) -> None:
    migrate(database)
    name, identifier, source = "n" * 64, "\N{CROISSANT}" * 32, "\N{CROISSANT}" * 64
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO refold.workflow_event_log VALUES (%s, 0, 0, %s, %s, %s, %s, %s, %s, "
            "now(), now(), 'applied', %s, %s, %s, '{}', '', '')",
            [name, name, name, identifier, source, identifier, name, name, name, name],
        )
