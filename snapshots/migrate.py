"""Migrations: numbered SQL files, applied once each, in order, under an advisory lock.

Law of this module: all pending files are one transaction; a file that was applied never changes
(its checksum is kept); the schema's name is a setting. A database that is newer or older than the
code is an error that says so, never a guess.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from string import Template
from typing import Final

import msgspec
import psycopg
from psycopg import sql

from refold.schemas.errors import Code, ServerError, UsageError
from refold.snapshots.faults import server_error
from refold.snapshots.sessions import Connection, Sessions, transaction

SCHEMA: Final = "refold"
"""Default schema; the stable views stand in `<schema>_v1`."""

PACKAGE: Final = "refold.snapshots"
"""Whose migrations are meant unless said otherwise: the engine's."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}\Z")
_FILE: Final = re.compile(r"(\d{3})_([a-z_]+)\.sql\Z")


class Migration(msgspec.Struct, frozen=True):
    """One file of `snapshots/sql`."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, whatever its line ends."""
        return sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()


class Applied(msgspec.Struct, frozen=True):
    """One row of `schema_migration`."""

    number: int
    name: str
    checksum: str


def schema_name(schema: str) -> str:
    """The schema's name if it can stand in SQL without quotes.

    Raises:
        UsageError: BAD_SETTING otherwise.
    """
    if _NAME.match(schema) and not schema.startswith("pg_"):
        return schema
    raise UsageError(
        Code.BAD_SETTING,
        f"The schema name {schema!r} does not match [a-z_][a-z0-9_]*, at most 48 characters.",
        "Choose another postgres schema in the settings.",
    )


def migrations(package: str = PACKAGE) -> Sequence[Migration]:
    """The files that this release brings, in order."""
    found: list[Migration] = []
    for file in resources.files(package).joinpath("sql").iterdir():
        if match := _FILE.match(file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.number)


def migrate(dsn: str, schema: str = SCHEMA, package: str = PACKAGE) -> Sequence[Migration]:
    """Bring the schema up to this release; a second run, or one at the same time, does nothing.

    Args:
        dsn: Of a role that may create schemas in the database.
        schema: Where the tables stand.
        package: Whose `sql` folder holds them.

    Returns:
        The migrations that were applied now, in order.

    Raises:
        ServerError: SCHEMA_VERSION when the database is newer than the code, a file that was
            applied has changed, or only one of the two schemas is there; POSTGRES_AWAY or
            POSTGRES_REFUSED.
    """
    schema_name(schema)
    sessions = Sessions(dsn, "refold:migrate", statement_timeout_s=600)
    try:
        with sessions.borrow() as connection, transaction(connection):
            return _migrate(connection, schema, migrations(package))
    except psycopg.Error as error:
        raise server_error(error, f"the migration of schema {schema}") from error
    finally:
        sessions.close()


def applied(connection: Connection, schema: str) -> Sequence[Applied]:
    """What was applied to the schema, in order; nothing if it was never migrated."""
    table = f"{schema_name(schema)}.schema_migration"
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()
    if found is None or not found[0]:
        return []
    rows = connection.execute(
        sql.SQL("SELECT number, name, checksum FROM {}.schema_migration ORDER BY number").format(
            sql.Identifier(schema)
        )
    )
    return [Applied(*row) for row in rows]


def check_version(connection: Connection, schema: str) -> None:
    """Pass when the schema is exactly this release's.

    Raises:
        ServerError: SCHEMA_VERSION.
    """
    ours = migrations()
    theirs = applied(connection, schema)
    check_history(ours, theirs, schema)
    if len(theirs) < len(ours):
        raise ServerError(
            Code.SCHEMA_VERSION,
            f"Schema {schema} is at version {len(theirs)}, older than this code, "
            f"which needs {len(ours)}.",
            "Run `refold db migrate` with a role that may create tables.",
            schema=schema,
        )


def check_history(ours: Sequence[Migration], theirs: Sequence[Applied], schema: str) -> None:
    """Pass when what was applied is a beginning of what this release brings.

    Raises:
        ServerError: SCHEMA_VERSION.
    """
    if len(theirs) > len(ours):
        raise ServerError(
            Code.SCHEMA_VERSION,
            f"Schema {schema} is at version {len(theirs)}, newer than this code, "
            f"which knows {len(ours)}.",
            "Run the release of refold that migrated it, or a later one.",
            schema=schema,
        )
    for mine, that in zip(ours, theirs, strict=False):
        if (mine.number, mine.checksum) != (that.number, that.checksum):
            raise ServerError(
                Code.SCHEMA_VERSION,
                f"Migration {that.number} ({that.name}) was applied to schema {schema} with "
                "another text than this code has.",
                "Use the release that applied it; migrations never change once released.",
                schema=schema,
            )


def _migrate(connection: Connection, schema: str, ours: Sequence[Migration]) -> Sequence[Migration]:
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"refold:{schema}"]
    )
    theirs = applied(connection, schema)
    check_history(ours, theirs, schema)
    _check_pair(connection, ours[: len(theirs)], schema)
    pending = ours[len(theirs) :]
    if not theirs:
        _create(connection, schema)
    record = sql.SQL(
        "INSERT INTO {}.schema_migration (number, name, checksum) VALUES (%s, %s, %s)"
    ).format(sql.Identifier(schema))
    for migration in pending:
        text = Template(migration.text).substitute(schema=schema, views=f"{schema}_v1")
        connection.execute(text.encode())
        connection.execute(record, [migration.number, migration.name, migration.checksum])
    return pending


def _check_pair(connection: Connection, done: Sequence[Migration], schema: str) -> None:
    """Tables and views stand in two schemas that are made, dropped and restored together."""
    views = f"{schema}_v1"
    row = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", [views]).fetchone()
    there = row is not None and bool(row[0])
    made = any("$views" in each.text for each in done)
    if there and not made:
        raise ServerError(
            Code.SCHEMA_VERSION,
            f"Schema {views} is there, and {schema}, whose tables it shows, is not: "
            "only one of the two was dropped or restored.",
            f"Restore both, or `DROP SCHEMA {views} CASCADE` as its owner, "
            "then run `refold db migrate` again.",
            schema=schema,
        )
    if made and not there:
        raise ServerError(
            Code.SCHEMA_VERSION,
            f"Schema {schema} is there, and {views}, which shows its tables to people, is not: "
            "only one of the two was dropped or restored.",
            f"Restore {views} or both; or stop the workers, `DROP SCHEMA {schema} CASCADE` as "
            "its owner and run `refold db migrate`: workers then fold their logs again.",
            schema=schema,
        )


def _create(connection: Connection, schema: str) -> None:
    where = sql.Identifier(schema)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(where))
    connection.execute(
        sql.SQL(
            "CREATE TABLE {}.schema_migration (number integer PRIMARY KEY, name text NOT NULL, "
            "checksum text NOT NULL, applied timestamptz NOT NULL DEFAULT now())"
        ).format(where)
    )
