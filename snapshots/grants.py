"""The least rights that each role needs, as statements that `refold db grant` prints or runs.

Law of this module: roles are the administrator's; nothing here makes, drops or alters one. A
worker may add and change rows, delete old snapshots and rows, and nothing else: no DDL, no
TRUNCATE, no change of the migration table. A reader sees the stable views only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from refold.snapshots.faults import server_error
from refold.snapshots.migrate import SCHEMA, schema_name
from refold.snapshots.sessions import Sessions, transaction

WORKER_RIGHTS: Final[dict[str, LiteralString]] = {
    "schema_migration": "SELECT",
    "workflow_partition": "SELECT, INSERT, UPDATE",
    "workflow_snapshot": "SELECT, INSERT, UPDATE, DELETE",
    "workflow_instance": "SELECT, INSERT, UPDATE, DELETE",
    "workflow_event_log": "SELECT, INSERT, UPDATE, DELETE",
    "workflow_definition": "SELECT, INSERT, UPDATE",
    "workflow_activation": "SELECT, INSERT",
    "workflow_suspect": "SELECT, INSERT, UPDATE, DELETE",
    "workflow_choice": "SELECT, INSERT",
}
"""Table → rights of the role that workers and the command line's writing commands use."""


def on_tables(
    database: str,
    role: str,
    rights: Mapping[str, LiteralString],
    schema: str,
    *,
    on_database: LiteralString = "CONNECT",
) -> list[sql.Composed]:
    """The statements that give a role its rights on tables.

    Args:
        database: Where they are.
        role: Who gets them.
        rights: Table → rights.
        schema: Of the tables.
        on_database: Rights on the database itself.
    """
    who, where = sql.Identifier(role), sql.Identifier(schema_name(schema))
    database_rights = sql.SQL("GRANT {} ON DATABASE {} TO {}")
    return [
        database_rights.format(sql.SQL(on_database), sql.Identifier(database), who),
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(where, who),
        *(
            sql.SQL("GRANT {} ON {} TO {}").format(
                sql.SQL(each), sql.Identifier(schema, table), who
            )
            for table, each in rights.items()
        ),
    ]


def worker_grants(database: str, role: str, schema: str = SCHEMA) -> list[sql.Composed]:
    """What a worker's role needs: `TEMPORARY` for the tables that rows are merged from."""
    return on_tables(database, role, WORKER_RIGHTS, schema, on_database="CONNECT, TEMPORARY")


def reader_grants(database: str, role: str, schema: str = SCHEMA) -> list[sql.Composed]:
    """What people's and the console's role needs: the stable views and nothing below them."""
    who, views = sql.Identifier(role), sql.Identifier(f"{schema_name(schema)}_v1")
    return [
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), who),
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(views, who),
        sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}").format(views, who),
    ]


def granted(
    dsn: str,
    what: str,
    wanted: Callable[[str], Iterable[sql.Composed]],
    *,
    dry_run: bool,
) -> Sequence[str]:
    """Run statements that grant, in one transaction, or only say them.

    Args:
        dsn: Of the owner of what is granted.
        what: What it is, for messages.
        wanted: The statements for a database of this name.
        dry_run: Only say what would be run.

    Returns:
        The statements, in order.

    Raises:
        ServerError: POSTGRES_AWAY or POSTGRES_REFUSED (no such role, not the owner).
    """
    sessions = Sessions(dsn, "refold:grant")
    try:
        with sessions.borrow() as connection, transaction(connection):
            statements = list(wanted(connection.info.dbname))
            if not dry_run:
                for statement in statements:
                    connection.execute(statement)
            return [statement.as_string(connection) for statement in statements]
    except psycopg.Error as error:
        raise server_error(error, f"the grants on {what}") from error
    finally:
        sessions.close()


def grant(
    dsn: str,
    *,
    worker: str | None = None,
    reader: str | None = None,
    schema: str = SCHEMA,
    dry_run: bool = False,
) -> Sequence[str]:
    """Grant the least rights to roles that exist.

    Args:
        dsn: Of the owner of the schema.
        worker: Role of workers, if it shall get its rights.
        reader: Role of readers, likewise.
        schema: Where `refold db migrate` made the tables.
        dry_run: Only say what would be run.

    Returns:
        The statements, in order.

    Raises:
        ServerError: POSTGRES_AWAY or POSTGRES_REFUSED (no such role, not the owner).
    """

    def wanted(database: str) -> list[sql.Composed]:
        found = worker_grants(database, worker, schema) if worker else []
        return found + (reader_grants(database, reader, schema) if reader else [])

    return granted(dsn, f"schema {schema}", wanted, dry_run=dry_run)
