"""Rows into tables: the fast way, and the careful way once the server has refused a batch.

Law of this module: always inside a transaction that its caller opened and whose epoch it checked.
The fast way is COPY into the table. The careful way is COPY into a temporary table and a merge: it
compares with what stands, marks what was applied before, and replaces what JSONB cannot hold. It
never fails for the content of an index row or an instance row (P20, B031 to B033).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import psycopg

from refold.schemas.errors import InvariantViolation
from refold.snapshots import rows
from refold.snapshots.faults import Fault, fault
from refold.snapshots.model import Alarm, Cut, Flush, InstanceRow, content_hash
from refold.snapshots.packing import HEADER, TRAILER
from refold.snapshots.sessions import Connection

COPY_ROWS: Final = 20_000
"""Rows of one COPY statement: some 0.3 s, far below the statement timeout."""
COPY_ROWS_LEAST: Final = 250


class RowWriter:
    """Writes snapshots, instance rows and index rows.

    Args:
        sql: Of `statements.statements`.
        tell: Told of what was survived and must be seen.
    """

    def __init__(self, sql: Mapping[str, bytes], tell: Callable[[Alarm], None]) -> None:
        self._sql = sql
        self._tell = tell
        self.chunk = COPY_ROWS

    def smaller(self) -> None:
        """Halve the rows of one statement: the last one was over its time-out (B040)."""
        self.chunk = max(COPY_ROWS_LEAST, self.chunk // 2)

    def larger(self) -> None:
        """Grow back by and by: all went well."""
        self.chunk = min(COPY_ROWS, self.chunk + COPY_ROWS_LEAST)

    def write_cut(self, connection: Connection, cut: Cut, careful: Fault | None) -> None:
        """Add the snapshots of a cut.

        Raises:
            InvariantViolation: When a version stands with another content.
        """
        values = rows.snapshot_values(cut.workflow, cut.partition, cut.snapshots)
        if careful is not None:
            self.merge_snapshots(connection, cut, values)
        elif cut.packed:
            self._send(connection, "snapshot_copy", cut)
        else:
            self.copy(connection, "snapshot_copy", rows.SNAPSHOT_TYPES, values)

    def _send(self, connection: Connection, name: str, cut: Cut) -> None:
        """Packed rows in COPY statements of a bounded size."""
        each = max(1, self.chunk * len(cut.packed) // len(cut.snapshots))
        for start in range(0, len(cut.packed), each):
            with connection.cursor().copy(self._sql[name]) as copy:
                copy.write(b"".join((HEADER, *cut.packed[start : start + each], TRAILER)))

    def write_flush(self, connection: Connection, flush: Flush, careful: Fault | None) -> None:
        """Add index rows, merge instance rows, note resolutions."""
        if flush.events:
            self._write_events(connection, flush, careful=careful)
        if flush.instances:
            self._write_instances(connection, flush, careful=careful)
        if flush.resolved:
            self._write_resolved(connection, flush)

    def copy(
        self,
        connection: Connection,
        name: str,
        types: Sequence[str],
        values: Iterable[tuple[Any, ...]],
    ) -> None:
        """Rows in COPY statements of a bounded size, each under the statement timeout."""
        source = iter(values)
        first = next(source, None)
        while first is not None:
            left = self.chunk - 1
            with connection.cursor().copy(self._sql[name]) as copy:
                copy.set_types(types)
                copy.write_row(first)
                first = None
                for row in source:
                    if left == 0:
                        first = row
                        break
                    copy.write_row(row)
                    left -= 1

    def merge_snapshots(
        self, connection: Connection, cut: Cut, values: Iterable[tuple[Any, ...]]
    ) -> None:
        """An equal version that stands is fine, a damaged one is healed, another one is a bug."""
        connection.execute(self._sql["snapshot_stage"])
        self.copy(connection, "snapshot_stage_copy", rows.SNAPSHOT_TYPES, values)
        connection.execute(self._sql["snapshot_merge"])
        unequal = connection.execute(self._sql["snapshot_unequal"], binary=True).fetchall()
        for tenant, instance, version, data, digest in unequal:
            if content_hash(data) == digest:
                msg = "A version of an instance stands with another content."
                raise InvariantViolation(
                    msg,
                    topic=cut.topic,
                    partition=cut.partition,
                    tenant=tenant,
                    instance=instance,
                    version=version,
                )
            connection.execute(self._sql["snapshot_heal"], [tenant, instance, version])
            text = f"version {version} of {tenant}/{instance} was damaged and is written again"
            self._alarm("SNAPSHOT_DAMAGED", cut.topic, cut.partition, text)

    def _write_resolved(self, connection: Connection, flush: Flush) -> None:
        place = (flush.topic_id, flush.partition)
        with connection.cursor() as cursor:
            cursor.executemany(
                self._sql["resolve_event"],
                [
                    (r.resolution, r.by_offset, r.code, rows.plain(r.text), *place, r.offset)
                    for r in flush.resolved
                ],
            )

    def _write_events(self, connection: Connection, flush: Flush, *, careful: Fault | None) -> None:
        events = [rows.tidied(row) for row in flush.events] if careful else flush.events
        values = rows.event_values(flush.topic_id, flush.partition, flush.workflow, events)
        if not careful:
            self.copy(connection, "event_copy", rows.EVENT_TYPES, values)
            return
        connection.execute(self._sql["event_stage"])
        self.copy(connection, "event_stage_copy", rows.EVENT_TYPES, values)
        for offset, doubled in connection.execute(self._sql["event_merge"]).fetchall():
            if doubled:
                text = f"the event at offset {offset} was applied before"
                self._alarm("EVENT_DOUBLED", flush.topic, flush.partition, text)
        for (offset,) in connection.execute(self._sql["event_unequal"]).fetchall():
            text = f"the row of offset {offset} stands and differs from this fold"
            self._alarm("ROW_DIFFERS", flush.topic, flush.partition, text)

    def _write_instances(
        self, connection: Connection, flush: Flush, *, careful: Fault | None
    ) -> None:
        instances = flush.instances
        if careful is not None:  # the last row of an instance wins
            instances = list({(row.tenant, row.instance): row for row in instances}.values())
        if careful is Fault.DATA:
            instances = [self._held(connection, flush, row) for row in instances]
        values = rows.instance_values(flush.workflow, flush.partition, instances)
        connection.execute(self._sql["instance_stage"])
        self.copy(connection, "instance_stage_copy", rows.INSTANCE_TYPES, values)
        connection.execute(self._sql["instance_merge"])

    def _held(self, connection: Connection, flush: Flush, row: InstanceRow) -> InstanceRow:
        """The row with a context that JSONB takes: an empty one where nothing else helps."""
        context, lossy = rows.storable(row.context)
        try:
            with connection.transaction():  # a savepoint: one is open
                text = context.decode()
                connection.execute(self._sql["jsonb_probe"], [text])
        except (psycopg.Error, UnicodeDecodeError) as error:
            if isinstance(error, psycopg.Error) and fault(error) is not Fault.DATA:
                raise
            context, lossy = b"{}", True
            where = f"{row.tenant}/{row.instance}"
            self._alarm(
                "CONTEXT_LOSSY", flush.topic, flush.partition, f"JSONB takes no context of {where}"
            )
        return rows.tidied(msgspec.structs.replace(row, context=context, lossy=lossy or row.lossy))

    def _alarm(self, code: str, topic: str, partition: int, text: str) -> None:
        self._tell(Alarm(code=code, topic=topic, partition=partition, text=text))
