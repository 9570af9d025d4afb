"""The least rights on a ledger, as statements that `refold ledger grant` prints or runs.

Law of this module: as of `refold.snapshots.grants`. An executor adds, changes and forgets rows; a
service writes events into its outbox and nothing else; a reader changes nothing.
"""

from collections.abc import Sequence
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from refold.executors.statements import SCHEMA
from refold.snapshots.faults import server_error
from refold.snapshots.migrate import schema_name
from refold.snapshots.sessions import Sessions, transaction

EXECUTOR_RIGHTS: Final[dict[str, LiteralString]] = {
    "schema_migration": "SELECT",
    "workflow_action": "SELECT, INSERT, UPDATE, DELETE",
    "workflow_reference": "SELECT, INSERT",
    "workflow_early_answer": "SELECT, INSERT, DELETE",
    "workflow_clash": "SELECT, INSERT, UPDATE",
    "workflow_result": "SELECT, INSERT, DELETE",
    "workflow_intake": "SELECT, INSERT, UPDATE",
    "workflow_rejected": "SELECT, INSERT",
    "workflow_scanner": "SELECT, INSERT, UPDATE, DELETE",
    "workflow_outbox": "SELECT, INSERT, UPDATE, DELETE",
}
"""Table → rights of executors, relays, `with ledger.action` and of who settles and prunes."""
SERVICE_RIGHTS: Final[dict[str, LiteralString]] = {"workflow_outbox": "INSERT"}
"""Of a service that publishes through its outbox and records no action."""
READER_RIGHTS: Final[dict[str, LiteralString]] = dict.fromkeys(EXECUTOR_RIGHTS, "SELECT")


def ledger_grants(
    database: str, role: str, rights: dict[str, LiteralString], schema: str = SCHEMA
) -> Sequence[sql.Composed]:
    """The statements that give a role its rights."""
    who, where = sql.Identifier(role), sql.Identifier(schema_name(schema))
    return [
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(sql.Identifier(database), who),
        sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(where, who),
        *(
            sql.SQL("GRANT {} ON {} TO {}").format(
                sql.SQL(each), sql.Identifier(schema, table), who
            )
            for table, each in rights.items()
        ),
    ]


def grant_ledger(
    dsn: str,
    *,
    executor: str | None = None,
    service: str | None = None,
    reader: str | None = None,
    schema: str = SCHEMA,
    dry_run: bool = False,
) -> Sequence[str]:
    """Grant the least rights on a ledger to roles that exist.

    Args:
        dsn: Of the owner of the schema.
        executor: Role of executors and of services that record their calls.
        service: Role of a service that writes into its outbox and does no more.
        reader: Role of people who look.
        schema: Where `refold ledger migrate` made the tables.
        dry_run: Only say what would be run.

    Returns:
        The statements, in order.

    Raises:
        ServerError: POSTGRES_AWAY or POSTGRES_REFUSED (no such role, not the owner).
    """
    roles = ((executor, EXECUTOR_RIGHTS), (service, SERVICE_RIGHTS), (reader, READER_RIGHTS))
    sessions = Sessions(dsn, "refold:grant")
    try:
        with sessions.borrow() as connection, transaction(connection):
            wanted = [
                statement
                for role, rights in roles
                if role
                for statement in ledger_grants(connection.info.dbname, role, rights, schema)
            ]
            if not dry_run:
                for statement in wanted:
                    connection.execute(statement)
            return [statement.as_string(connection) for statement in wanted]
    except psycopg.Error as error:
        raise server_error(error, f"the grants on the ledger {schema}") from error
    finally:
        sessions.close()
