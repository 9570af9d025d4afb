"""Beside the worker's port: thin, verify, rebuild, look into the past, definitions.

Law of this module: each call is one transaction, and thinning is bounded by its `limit`; nothing
here moves a marker without the epoch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import psycopg

from refold.schemas.errors import Code, DefinitionError, UsageError
from refold.snapshots import rows
from refold.snapshots.faults import Fault, fault
from refold.snapshots.model import (
    Definition,
    Flush,
    PartitionHashes,
    PartitionRow,
    Snapshot,
    SnapshotHash,
    content_hash,
)
from refold.snapshots.sessions import Connection, transaction
from refold.snapshots.store import PostgresStore, columns, partition_row
from refold.snapshots.writer import RowWriter

THIN_ROWS: Final = 5_000
READ_ONLY: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
HASHED_ROWS: Final = 2_000
"""Snapshots whose bytes are in memory at a time while they are hashed."""


class Upkeep:
    """What must be done to a store's tables now and then, or by a person.

    Args:
        store: Whose connections, schema and alarm are used.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._sql = store.sql
        self._runner = store.runner
        self._writer = RowWriter(store.sql, store.on_alarm)

    def thin_events(self, workflow: str, before_ms: int, limit: int = THIN_ROWS) -> int:
        """Delete index rows of records older than this; call again while it returns `limit`.

        Args:
            workflow: Whose rows.
            before_ms: Log time, milliseconds since the epoch.
            limit: Most rows of one call.

        Returns:
            Rows deleted.
        """
        return self._thin("thin_events", workflow, before_ms, limit)

    def thin_instances(self, workflow: str, before_ms: int, limit: int = THIN_ROWS) -> int:
        """Delete rows of instances that ended and were last updated before this.

        Only the projection: the instance's snapshot stays, so that a repeated start does not begin
        a second life (P17).
        """
        return self._thin("thin_instances", workflow, before_ms, limit)

    def partition_hashes(self, topic: str, partition: int) -> PartitionHashes:
        """Marker, digests and one hash for each instance, of one moment (P22).

        Raises:
            UsageError: NOT_FOUND when nobody ever claimed the partition.
        """

        def work(connection: Connection) -> PartitionHashes:
            with transaction(connection, READ_ONLY):
                connection.execute("SET LOCAL statement_timeout = 0")
                found = connection.execute(
                    self._sql["read"], [topic, partition], binary=True
                ).fetchone()
                if found is None:
                    raise _unclaimed(topic, partition)
                row = partition_row(found)
                values = [row.workflow, partition, row.marker]
                return PartitionHashes(row, list(self._hashes(connection, values)))

        return self._runner.run(f"reading the hashes of {topic}/{partition}", work)

    def _hashes(self, connection: Connection, values: list[object]) -> Iterator[SnapshotHash]:
        """Each newest snapshot's hash, empty where its bytes are not those that were hashed."""
        with connection.cursor("refold_hashes", binary=True) as cursor:  # bytes pass, not stay
            cursor.itersize = HASHED_ROWS
            for *found, data in cursor.execute(self._sql["hashes"], values):
                tenant, instance, version, digest, last_offset = found
                whole = content_hash(data) == digest
                yield SnapshotHash(tenant, instance, version, digest if whole else b"", last_offset)

    def snapshot_versions(self, workflow: str, tenant: str, instance: str) -> Sequence[Snapshot]:
        """The kept versions of one instance, newest first, damaged ones included."""

        def work(connection: Connection) -> Sequence[Snapshot]:
            found = connection.execute(
                self._sql["versions"], [workflow, workflow, tenant, instance], binary=True
            )
            return [Snapshot(*values) for values in found]

        return self._runner.run(f"reading the versions of {workflow}/{tenant}/{instance}", work)

    def replace(
        self, row: PartitionRow, snapshots: Iterable[Snapshot], flushes: Iterable[Flush] | None
    ) -> bool:
        """Put a rebuilt partition in the place of what stands, in one cut (rebuild).

        Args:
            row: As claimed, with the marker, decisions, digest, counts, activations, rows_to and
                base of the rebuilt state. Its epoch must still stand.
            snapshots: All of them; read once, so they need not fit into memory.
            flushes: All instance rows and index rows, in log order, in pieces of a bounded size
                (their epoch and watermarks are not looked at); None leaves what stands.

        Returns:
            True when it is committed; False when another epoch stands there.

        Raises:
            ServerError: Nothing is known then: read the row, and rebuild again if its marker is
                not the new one.
        """

        def work(connection: Connection) -> bool:
            with transaction(connection):
                # Whoever feeds the iterables may fold a log meanwhile: no time-out fits that.
                connection.execute("SET LOCAL statement_timeout = 0")
                connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                if connection.execute(self._sql["replace_row"], columns(row)).rowcount != 1:
                    return False
                self._replace_rows(connection, row, snapshots, flushes)
            return True

        return self._runner.once(f"the rebuild of {row.topic}/{row.partition}", work)

    def register(self, definition: Definition) -> None:
        """Note a version's fingerprint at its first use; later uses must have the same.

        Raises:
            DefinitionError: DEFINITION_CHANGED when the version stands with another fingerprint.
        """
        values = {
            "workflow": definition.workflow,
            "version": definition.version,
            "fingerprint": definition.fingerprint,
            "canonical": definition.canonical,
        }

        def work(connection: Connection) -> str:
            connection.execute(self._sql["register"], values)
            found = connection.execute(self._sql["fingerprint"], values).fetchone()
            return str(found[0]) if found else definition.fingerprint

        name = f"{definition.workflow} version {definition.version}"
        standing = self._runner.run(f"registering {name}", work)
        if standing != definition.fingerprint:
            raise DefinitionError(
                Code.DEFINITION_CHANGED,
                f"{name} was first used with fingerprint {standing}, but this code has "
                f"{definition.fingerprint}.",
                "Give the changed code a new version, or run `refold definitions accept`, which "
                "replays the log to show that nothing differs.",
                workflow=definition.workflow,
                version=definition.version,
            )

    def accept(self, definition: Definition) -> None:
        """Put this fingerprint in the place of the one at first use, after a replay proved it."""
        values = {
            "workflow": definition.workflow,
            "version": definition.version,
            "fingerprint": definition.fingerprint,
            "canonical": definition.canonical,
        }
        self._runner.run(
            f"accepting {definition.workflow} version {definition.version}",
            lambda c: c.execute(self._sql["accept"], values),
        )

    def retire(self, workflow: str, version: int) -> bool:
        """Mark a version as no longer used; False when it is not registered."""
        return self._runner.run(
            f"retiring {workflow} version {version}",
            lambda c: c.execute(self._sql["retire"], [workflow, version]).rowcount == 1,
        )

    def activate(self, workflow: str, version: int, who: str, reason: str) -> bool:
        """Choose the version that new instances begin with where activation is manual (P13).

        Returns:
            False when no worker with that version was ever started: it is not registered.
        """
        chosen = {"workflow": workflow, "version": version, "who": who, "reason": reason}
        return self._runner.run(
            f"activating {workflow} version {version}",
            lambda c: c.execute(self._sql["activate"], chosen).rowcount == 1,
        )

    def definitions(self, workflow: str) -> Sequence[Definition]:
        """Every version ever used of a workflow, oldest first."""

        def work(connection: Connection) -> Sequence[Definition]:
            found = connection.execute(self._sql["definitions"], [workflow])
            names = Definition.__struct_fields__
            return [Definition(**dict(zip(names, row, strict=True))) for row in found]

        return self._runner.run(f"reading the definitions of {workflow}", work)

    def versions_in_use(self, workflow: str) -> dict[int, int]:
        """Definition version → instances that have not ended, by the instance rows."""

        def work(connection: Connection) -> dict[int, int]:
            return dict(connection.execute(self._sql["versions_in_use"], [workflow]).fetchall())

        return self._runner.run(f"counting the versions in use of {workflow}", work)

    def versions_known(self, workflow: str) -> dict[int, int]:
        """Definition version → instances, ended ones included, by the instance rows."""

        def work(connection: Connection) -> dict[int, int]:
            return dict(connection.execute(self._sql["versions_known"], [workflow]).fetchall())

        return self._runner.run(f"counting the versions of {workflow}", work)

    def _thin(self, name: str, workflow: str, before_ms: int, limit: int) -> int:
        return self._runner.run(
            f"thinning {workflow}",
            lambda c: c.execute(self._sql[name], [workflow, before_ms / 1000, limit]).rowcount,
        )

    def _replace_rows(
        self,
        connection: Connection,
        row: PartitionRow,
        snapshots: Iterable[Snapshot],
        flushes: Iterable[Flush] | None,
    ) -> None:
        place = (row.workflow, row.partition)
        connection.execute(self._sql["drop_snapshots"], place)
        values = rows.snapshot_values(*place, snapshots)
        self._writer.copy(connection, "snapshot_copy", rows.SNAPSHOT_TYPES, values)
        if flushes is None:
            return
        connection.execute(self._sql["drop_instances"], place)
        connection.execute(self._sql["drop_events"], place)
        for flush in flushes:
            self._write_flush(connection, flush)

    def _write_flush(self, connection: Connection, flush: Flush) -> None:
        """One piece, the fast way, and the careful way where the server refuses that."""
        try:
            with connection.transaction():  # a savepoint: one is open
                self._writer.write_flush(connection, flush, None)
        except psycopg.Error as error:
            if fault(error) not in {Fault.UNIQUE, Fault.DATA}:
                raise
            self._writer.write_flush(connection, flush, fault(error))


def _unclaimed(topic: str, partition: int) -> UsageError:
    return UsageError(
        Code.NOT_FOUND,
        f"Nobody ever claimed {topic}/{partition} in this schema.",
        "Check the topic's name and the schema in the settings.",
        topic=topic,
        partition=partition,
    )
