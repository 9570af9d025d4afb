"""Checks of PostgreSQL before anything is written to it, and again from time to time.

Law of this module: facts are read in one connection, judgements are pure and return findings;
nothing is changed here. A server that would forget what it confirmed is not written to.
"""

import msgspec
import psycopg

from refold.schemas.errors import Code, ServerError
from refold.snapshots.faults import server_error
from refold.snapshots.grants import WORKER_RIGHTS
from refold.snapshots.migrate import SCHEMA, check_version
from refold.snapshots.sessions import Connection, Sessions

VERSION_LEAST = 150_000
"""PostgreSQL 15: the oldest that is tested with and that its makers still repair."""
CONNECTIONS_LEAST = 5
"""Free connections below which the next worker or person may be turned away."""


class Finding(msgspec.Struct, frozen=True):
    """One thing about the database that is not as it must be."""

    code: Code
    what: str
    cure: str
    fatal: bool = True
    """False: a warning, the worker starts."""
    passes: bool = False
    """True: nothing that was saved is in doubt, so that what runs goes on until it is mended."""

    def error(self) -> ServerError:
        """The finding as the error that the start fails with."""
        return ServerError(self.code, self.what, self.cure)


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself, and what this session would get."""

    version: int
    version_text: str
    in_recovery: bool
    read_only: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    encoding: str
    connections_free: int
    can_terminate: bool
    """The role may end sessions of its own kind (P7)."""


_FACTS = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
       current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), current_setting('server_encoding'),
       current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
       has_function_privilege('pg_terminate_backend(integer, bigint)', 'EXECUTE')
"""


def server_facts(connection: Connection) -> ServerFacts:
    """Read the facts."""
    row = connection.execute(_FACTS).fetchone()
    if row is None:
        msg = "a SELECT without FROM returned no row"
        raise AssertionError(msg)
    return ServerFacts(**dict(zip(ServerFacts.__struct_fields__, row, strict=True)))


def judge(facts: ServerFacts) -> list[Finding]:
    """What of these facts forbids to rely on the server."""
    refused, away = Code.POSTGRES_REFUSED, Code.POSTGRES_AWAY
    checks = [
        (
            facts.version < VERSION_LEAST,
            refused,
            f"PostgreSQL is {facts.version_text}, older than 15.",
            "Upgrade the server to 15 or later.",
        ),
        (
            facts.in_recovery or facts.read_only,
            away,
            "This server takes no writes: it is a standby or set to read-only.",
            "Name the primary in the connection string, or all hosts of the cluster.",
        ),
        (
            facts.fsync != "on",
            refused,
            f"fsync is {facts.fsync}: a crash of the machine loses confirmed markers.",
            "Set fsync = on in postgresql.conf and reload.",
        ),
        (
            facts.full_page_writes != "on",
            refused,
            f"full_page_writes is {facts.full_page_writes}: a crash can tear pages.",
            "Set full_page_writes = on in postgresql.conf and reload.",
        ),
        (
            facts.synchronous_commit not in {"on", "remote_apply"},
            refused,
            f"synchronous_commit is {facts.synchronous_commit} in this session: a confirmed "
            "commit may be lost.",
            "Remove the ALTER ROLE or ALTER DATABASE that forces it.",
        ),
        (
            facts.encoding != "UTF8",
            refused,
            f"The database's encoding is {facts.encoding}: ids are Unicode.",
            "Create the database with ENCODING 'UTF8'.",
        ),
        (
            not facts.can_terminate,
            refused,
            "The role may not call pg_terminate_backend: a paused owner could hold a partition.",
            "GRANT EXECUTE ON FUNCTION pg_terminate_backend TO the workers' role.",
        ),
    ]
    found = [Finding(code, what, cure) for bad, code, what, cure in checks if bad]
    if facts.connections_free < CONNECTIONS_LEAST:
        found.append(
            Finding(
                away,
                f"Only {facts.connections_free} connections are free.",
                "Raise max_connections, or end sessions that are not needed.",
                fatal=False,
            )
        )
    return found


_RIGHTS = """
SELECT current_user, c.relname, wanted.name
FROM unnest(%(tables)s::text[], %(rights)s::text[]) wanted (tab, name)
JOIN pg_namespace n ON n.nspname = %(schema)s
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.tab
WHERE NOT (has_table_privilege(c.oid, wanted.name) AND has_schema_privilege(n.oid, 'USAGE'))
ORDER BY c.relname, wanted.name
"""


def missing_rights(connection: Connection, schema: str) -> list[Finding]:
    """What a worker's role may not do in the schema and must (`grants.WORKER_RIGHTS`)."""
    wanted = [
        (table, right) for table, rights in WORKER_RIGHTS.items() for right in rights.split(", ")
    ]
    values = {
        "tables": [table for table, _ in wanted],
        "rights": [right for _, right in wanted],
        "schema": schema,
    }
    missing = connection.execute(_RIGHTS, values).fetchall()
    if not missing:
        return []
    role = missing[0][0]
    listed = ", ".join(f"{right} on {table}" for _, table, right in missing)
    return [
        Finding(
            Code.POSTGRES_REFUSED,
            f"The role {role} has not these rights in schema {schema}: {listed}.",
            f"Run `refold db grant --worker {role}` as the owner of the schema.",
            passes=True,
        )
    ]


def findings(dsn: str, schema: str = SCHEMA) -> list[Finding]:
    """Connect and judge the server and the schema's version.

    Args:
        dsn: Connection string of the worker's role.
        schema: Where `refold db migrate` made the tables.

    Returns:
        What is not as it must be; a server that cannot be reached is a finding too.
    """
    sessions = Sessions(dsn, "refold:preflight", writable=False)
    try:
        with sessions.borrow() as connection:
            found = judge(server_facts(connection))
            if missing := missing_rights(connection, schema):
                return found + missing
            try:
                check_version(connection, schema)
            except ServerError as error:
                found.append(Finding(error.code, error.what, error.cure))
            return found
    except psycopg.Error as error:
        away = server_error(error, "the preflight")
        return [Finding(away.code, away.what, away.cure)]
    finally:
        sessions.close()
