"""The least rights on a ledger, as statements that `refold ledger grant` prints or runs.

Law of this module: as of `refold.snapshots.grants`. An executor adds, changes and forgets rows; a
service writes events into its outbox and nothing else; a reader changes nothing.
"""

from collections.abc import Sequence
from typing import Final, LiteralString

from refold.executors.statements import SCHEMA
from refold.snapshots.grants import granted, on_tables

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
    return granted(
        dsn,
        f"the ledger {schema}",
        lambda database: [
            statement
            for role, rights in roles
            if role
            for statement in on_tables(database, role, rights, schema)
        ],
        dry_run=dry_run,
    )
