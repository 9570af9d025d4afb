"""A server that is away, restarted, demoted or badly set: told at once, survived without help."""

import contextlib

import msgspec
import psycopg
import pytest
from tests.postgres.making import TOPIC, claimed, cut, execute, snapshot

from refold.schemas.errors import Code, ServerError
from refold.snapshots.migrate import migrate
from refold.snapshots.preflight import CONNECTIONS_LEAST, ServerFacts, findings, judge
from refold.snapshots.sessions import IDLE
from refold.snapshots.store import PostgresStore
from refold.testing.servers import OwnPostgres

pytestmark = pytest.mark.postgres

HEALTHY = ServerFacts(
    version=180_006,
    version_text="18.6",
    in_recovery=False,
    read_only=False,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    encoding="UTF8",
    connections_free=50,
    can_terminate=True,
)


def test_a_restart_of_the_server_is_survived_without_help(own_postgres: OwnPostgres) -> None:
    server = own_postgres()
    migrate(server.dsn)
    store = PostgresStore(server.dsn)
    row = claimed(store)
    with store.runner.sessions.borrow(), store.runner.sessions.borrow():
        pass  # two idle connections, both of them lost by the restart
    server.stop()
    with pytest.raises(ServerError) as away:
        store.save(cut(row, 10, [snapshot()]))
    assert away.value.code is Code.POSTGRES_AWAY
    server.start()
    assert store.save(cut(row, 10, [snapshot()]))
    server.stop()
    server.start()
    assert store.load(TOPIC, 0, "order", [("acme", "order-1")]).marker == 10
    store.close()


def test_a_primary_that_becomes_read_only_is_left_and_found_again(
    own_postgres: OwnPostgres,
) -> None:
    server = own_postgres()
    migrate(server.dsn)
    store = PostgresStore(server.dsn)
    row = claimed(store)
    with (
        contextlib.ExitStack() as stack
    ):  # as after a busy hour: several idle ones stay with this server
        for _ in range(IDLE):
            stack.enter_context(store.runner.sessions.borrow())
    _read_only(server.dsn, "on")
    with pytest.raises(ServerError) as away:
        store.save(cut(row, 10, [snapshot()]))
    assert away.value.code is Code.POSTGRES_AWAY
    assert not store.runner.sessions._idle, "a connection stays with a server that takes nothing"
    assert any("standby or set to read-only" in finding.what for finding in findings(server.dsn))
    _read_only(server.dsn, "off")
    assert store.save(cut(row, 10, [snapshot()]))
    standing = store.read(TOPIC, 0)
    assert standing is not None
    assert standing.marker == 10
    store.close()


def _read_only(dsn: str, value: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")
        with contextlib.suppress(psycopg.Error):  # until the reload has reached every session
            while True:
                with psycopg.connect(dsn) as other:
                    found = other.execute("SHOW default_transaction_read_only").fetchone()
                if found == (value,):
                    break


def test_a_server_that_forgets_what_it_confirmed_is_found_by_the_preflight(
    own_postgres: OwnPostgres,
) -> None:
    server = own_postgres({"fsync": "off", "full_page_writes": "off"})
    migrate(server.dsn)
    found = findings(server.dsn)
    assert [finding.code for finding in found] == [Code.POSTGRES_REFUSED] * 2
    assert "fsync is off" in found[0].what
    assert "full_page_writes is off" in found[1].what
    execute(server.dsn, "ALTER ROLE postgres SET synchronous_commit = off")
    assert len(findings(server.dsn)) == 2  # our sessions set it on by themselves


def test_a_healthy_migrated_server_has_no_findings(migrated: str) -> None:
    assert not findings(migrated)


def test_an_empty_database_is_a_finding_that_names_the_command(database: str) -> None:
    (finding,) = findings(database)
    assert (finding.code, finding.fatal) == (Code.SCHEMA_VERSION, True)
    assert "refold db migrate" in finding.cure


def test_a_server_that_cannot_be_reached_is_a_finding() -> None:
    (finding,) = findings("postgresql://127.0.0.1:1/refold")
    assert finding.code is Code.POSTGRES_AWAY


def test_a_database_that_does_not_exist_is_refused_and_not_waited_for(migrated: str) -> None:
    dsn = psycopg.conninfo.make_conninfo(migrated, dbname="nobody_made_it")
    (finding,) = findings(dsn)
    assert finding.code is Code.POSTGRES_REFUSED
    with pytest.raises(ServerError, match="does not exist") as refused:
        PostgresStore(dsn).read(TOPIC, 0)
    assert refused.value.code is Code.POSTGRES_REFUSED


def test_a_wrong_password_is_refused_and_never_shown(migrated: str) -> None:
    dsn = psycopg.conninfo.make_conninfo(migrated, password="hunter2hunter2")
    with pytest.raises(ServerError) as refused:
        PostgresStore(dsn).read(TOPIC, 0)
    assert refused.value.code is Code.POSTGRES_REFUSED
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"version": 149_999, "version_text": "14.9"}, "14.9"),
        ({"in_recovery": True}, "standby"),
        ({"read_only": True}, "read-only"),
        ({"fsync": "off"}, "fsync"),
        ({"full_page_writes": "off"}, "full_page_writes"),
        ({"synchronous_commit": "local"}, "synchronous_commit"),
        ({"encoding": "SQL_ASCII"}, "SQL_ASCII"),
        ({"can_terminate": False}, "pg_terminate_backend"),
    ],
)
def test_each_thing_that_breaks_the_promise_is_a_finding_of_its_own(
    change: dict[str, object], word: str
) -> None:
    (finding,) = judge(msgspec.structs.replace(HEALTHY, **change))
    assert word in finding.what
    assert finding.fatal
    assert finding.cure


def test_few_free_connections_are_a_warning() -> None:
    facts = msgspec.structs.replace(HEALTHY, connections_free=CONNECTIONS_LEAST - 1)
    (finding,) = judge(facts)
    assert not finding.fatal
    assert not judge(HEALTHY)
