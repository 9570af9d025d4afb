"""The ledger's tables, brought up to this release.

Law of this module: as `refold.snapshots.migrate`, for a schema of the ledger's own, which stands
in the executor's database and knows nothing of the engine's.
"""

from collections.abc import Sequence

from refold.executors.statements import SCHEMA
from refold.snapshots.migrate import Migration, migrate


def migrate_ledger(dsn: str, schema: str = SCHEMA) -> Sequence[Migration]:
    """Bring the ledger's schema up to this release; a second run does nothing.

    Args:
        dsn: Of a role that may create schemas in the executor's database.
        schema: Where the tables stand.

    Raises:
        ServerError: As `refold.snapshots.migrate.migrate`.
    """
    return migrate(dsn, schema, package="refold.executors")
