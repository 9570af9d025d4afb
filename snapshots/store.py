"""The store on PostgreSQL: the worker's port (`ports.Store`) and nothing else.

Law of this module: each method is one transaction; the epoch is checked in it; what became of a
COMMIT without an answer is read back on a new connection before anything is said (P5, P7, P16,
P20 of docs/protocol.md).
"""

import random
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

import psycopg
import structlog
from psycopg.types.json import Jsonb

from refold.schemas.errors import Code, ServerError, UsageError
from refold.snapshots.faults import Fault
from refold.snapshots.loads import Loads
from refold.snapshots.migrate import SCHEMA, check_version
from refold.snapshots.model import (
    KEEP,
    Alarm,
    Cut,
    Due,
    DueRow,
    Flush,
    Loaded,
    PartitionRow,
    content_hash,
)
from refold.snapshots.rows import LEAST_MS, MOST_MS, plain
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import CommitUnknownError, Connection, Sessions, transaction
from refold.snapshots.statements import statements
from refold.snapshots.watermarks import Watermarks
from refold.snapshots.writer import RowWriter

CLAIM_TURNS: Final = 3
"""Lock time-outs of one claim, each followed by ending the sessions that hold the row."""
PRUNE_KEYS: Final = 500
PRUNE_S: Final = 0.25
"""One run of pruning begins no further step after this: snapshots wait behind it."""
_log = structlog.get_logger(__name__)


class PostgresStore:
    """Markers, snapshots and rows of all partitions, in one schema.

    Args:
        dsn: Connection string or URL of the primary (several hosts: the writable one is taken).
        schema: Where `refold db migrate` made the tables.
        application_name: Name of this process's sessions, unique to the process: a successor
            ends the sessions of this name that hold a partition's row (P7). A long one is
            shortened and stays unique.
        statement_timeout_s: Longest run of one statement.
        lock_timeout_s: How long a claim waits for the row before it ends the holder.
        alarm: Told of everything that was survived and must be seen; logged by default.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = SCHEMA,
        application_name: str = "refold",
        *,
        statement_timeout_s: float = 10.0,
        lock_timeout_s: float = 2.0,
        alarm: Callable[[Alarm], None] | None = None,
    ) -> None:
        self.schema = schema
        self.sql = statements(schema)
        self.runner = Runner(
            Sessions(dsn, application_name, statement_timeout_s=statement_timeout_s)
        )
        self.on_alarm = alarm or _log_alarm
        self._lock_timeout = f"{int(lock_timeout_s * 1000)}"
        self.writer = RowWriter(self.sql, self.on_alarm)
        self._loads = Loads(self.sql, self.on_alarm)
        self._watermarks = Watermarks(self.runner, self.sql, self.writer)

    def check(self) -> None:
        """Connect and compare the schema's version with the code's.

        Raises:
            ServerError: SCHEMA_VERSION, POSTGRES_AWAY or POSTGRES_REFUSED.
        """
        self.runner.run("the check of its schema", lambda c: check_version(c, self.schema))

    def close(self) -> None:
        """Close the idle connections; the store may be used again and opens new ones."""
        self.runner.sessions.close()

    def read(self, topic: str, partition: int) -> PartitionRow | None:
        """See `ports.Store.read`."""

        def work(connection: Connection) -> PartitionRow | None:
            row = connection.execute(self.sql["read"], [topic, partition], binary=True).fetchone()
            return None if row is None else partition_row(row)

        return self.runner.run(f"the read of {topic}/{partition}", work)

    def claim(self, row: PartitionRow, expected_epoch: int | None) -> PartitionRow | None:
        """See `ports.Store.claim`; what the old owner saved is left as it stands.

        Raises:
            UsageError: BAD_SETTING when the schema serves another topic of this workflow.
            ServerError: POSTGRES_AWAY when a stranger's session holds the row.
        """
        doing = f"the claim of {row.topic}/{row.partition}"
        unanswered = False

        def work(connection: Connection) -> PartitionRow | None:
            nonlocal unanswered
            try:
                return self._claim(connection, row, expected_epoch, again=unanswered)
            except CommitUnknownError:
                unanswered = True
                raise

        for _ in range(CLAIM_TURNS):
            try:
                return self.runner.run(doing, work)
            except _HeldError:
                self._end_holders(row.topic, row.partition)
        raise ServerError(
            Code.POSTGRES_AWAY,
            f"A session that is not its owner's holds the row of {row.topic}/{row.partition}.",
            "Look in pg_locks who holds workflow_partition, and end that session.",
            topic=row.topic,
            partition=row.partition,
        )

    def load(
        self, topic: str, partition: int, workflow: str, keys: Sequence[tuple[str, str]]
    ) -> Loaded:
        """See `ports.Store.load`; epoch and marker are -1 where nobody ever claimed.

        Raises:
            InvariantViolation: When a row was folded at or past the marker (P15).
        """
        tenants, instances = [key[0] for key in keys], [key[1] for key in keys]
        values = {
            "topic": topic,
            "partition": partition,
            "workflow": workflow,
            "tenants": tenants,
            "instances": instances,
        }

        def work(connection: Connection) -> Loaded:
            found = connection.execute(
                self.sql["load"], values, prepare=True, binary=True
            ).fetchall()
            return self._loads.verified(connection, found, workflow, partition, topic)

        return self.runner.run(f"a load of {topic}/{partition}", work)

    def due(
        self,
        topic: str,
        partition: int,
        workflow: str,
        after: tuple[int, str, str],
        until_ms: int,
        limit: int,
    ) -> Due:
        """See `ports.Store.due`; epoch and watermark are -1 where nobody ever claimed."""
        after_ms, tenant, instance = after
        values = {
            "topic": topic,
            "partition": partition,
            "workflow": workflow,
            "after_ms": max(after_ms, LEAST_MS),
            "after_tenant": tenant,
            "after_instance": instance,
            "until_ms": min(until_ms, MOST_MS),
            "limit": limit,
        }

        def work(connection: Connection) -> Due:
            found = connection.execute(self.sql["due"], values, binary=True).fetchall()
            if not found:
                return Due(-1, -1, ())
            rows = [DueRow(*row[2:]) for row in found if row[2] is not None]
            return Due(found[0][0], found[0][1], rows)

        return self.runner.run(f"the timers of {topic}/{partition}", work)

    def save(self, cut: Cut) -> bool:
        """See `ports.Store.save`.

        Raises:
            InvariantViolation: When a version stands with another content, or the marker would
                move back (O4).
        """
        move = {
            "topic": cut.topic,
            "partition": cut.partition,
            "epoch": cut.epoch,
            "previous": cut.previous,
            "marker": cut.marker,
            "decisions": cut.decisions,
            "digest": cut.digest,
            "counts": Jsonb(dict(cut.counts)),
            "activations": cut.activations,
        }

        def write(connection: Connection, careful: Fault | None) -> bool:
            if connection.execute(self.sql["move_marker"], move).rowcount != 1:
                return False
            self.writer.write_cut(connection, cut, careful)
            return True

        return self._watermarks.advance(
            f"a snapshot of {cut.topic}/{cut.partition}", cut, cut.marker, write
        )

    def flush(self, rows: Flush) -> bool:
        """See `ports.Store.flush`."""
        move = {
            "topic": rows.topic,
            "partition": rows.partition,
            "epoch": rows.epoch,
            "previous": rows.previous,
            "rows_to": rows.rows_to,
        }

        def write(connection: Connection, careful: Fault | None) -> bool:
            if connection.execute(self.sql["move_rows"], move).rowcount != 1:
                return False
            self.writer.write_flush(connection, rows, careful)
            return True

        return self._watermarks.advance(
            f"a flush of {rows.topic}/{rows.partition}", rows, rows.rows_to, write
        )

    def release(self, topic: str, partition: int, epoch: int) -> bool:
        """See `ports.Store.release`; take-overs without progress are counted anew."""
        return self._execute("release", topic, partition, epoch=epoch) == 1

    def restart(self, row: PartitionRow) -> bool:
        """See `ports.Store.restart`; harmless when it runs twice."""

        def work(connection: Connection) -> bool:
            with transaction(connection):
                if connection.execute(self.sql["restart"], columns(row)).rowcount != 1:
                    return False
                for name in ("drop_snapshots", "drop_instances"):
                    connection.execute(self.sql[name], [row.workflow, row.partition])
            return True

        return self.runner.run(f"the restart of {row.topic}/{row.partition}", work)

    def prune(
        self, topic: str, partition: int, workflow: str, keys: Sequence[tuple[str, str]]
    ) -> int:
        """See `ports.Store.prune`: `KEEP` versions stay, and the base snapshot (P22)."""
        gone, until = 0, monotonic() + PRUNE_S
        # In an order of chance: what one run leaves has the same chance in the next one.
        left = random.sample(keys, len(keys))
        while left and monotonic() < until:
            some, left = left[:PRUNE_KEYS], left[PRUNE_KEYS:]
            gone += self._prune(topic, partition, workflow, some)
        return gone

    def fence(self, topic: str, partition: int, epoch: int, fence: str) -> None:
        """See `ports.Store.fence`; nothing happens where another epoch stands."""
        self._execute("fence", topic, partition, epoch=epoch, fence=plain(fence))

    def alarm(self, topic: str, partition: int, epoch: int, alarm: str) -> None:
        """See `ports.Store.alarm`; a claim ends it, and nothing happens under another epoch."""
        self._execute("alarm", topic, partition, epoch=epoch, alarm=plain(alarm))

    def parked(self, workflow: str) -> dict[int, int]:
        """See `ports.Store.parked`."""

        def work(connection: Connection) -> dict[int, int]:
            return dict(connection.execute(self.sql["parked"], [workflow]).fetchall())

        return self.runner.run(f"the count of parked instances of {workflow}", work)

    def wanted(self, workflow: str) -> int | None:
        """See `ports.Store.wanted`."""

        def work(connection: Connection) -> int | None:
            found = connection.execute(self.sql["wanted"], [workflow]).fetchone()
            return None if found is None else int(found[0])

        return self.runner.run(f"the read of what is activated of {workflow}", work)

    def choose(self, topic: str, partition: int, choice: str) -> bool:
        """See `ports.Store.choose`; each choice is kept in `workflow_choice` too."""
        return self._execute("choose", topic, partition, choice=plain(choice)) == 1

    def suspect(self, topic: str, partition: int, offset: int) -> int:
        """See `ports.Store.suspect`; counted once for each epoch of the partition.

        Raises:
            UsageError: NOT_FOUND when nobody ever claimed the partition.
        """
        values = {"topic": topic, "partition": partition, "offset": offset}
        found = self.runner.run(
            f"marking {topic}/{partition}/{offset}",
            lambda c: c.execute(self.sql["suspect"], values).fetchone(),
        )
        if found is None:
            what = f"Nobody ever claimed {topic}/{partition}."
            raise UsageError(Code.NOT_FOUND, what, "Claim the partition first.")
        return int(found[0])

    def clear(self, topic: str, partition: int, offset: int) -> None:
        """See `ports.Store.clear`."""
        self._execute("clear", topic, partition, offset=offset)

    def _execute(self, name: str, topic: str, partition: int, **values: object) -> int:
        """One statement of one row, harmless when it runs twice; how many rows it met."""
        given = {"topic": topic, "partition": partition, **values}
        return self.runner.run(
            f"the {name} of {topic}/{partition}",
            lambda c: c.execute(self.sql[name], given).rowcount,
        )

    def _prune(
        self, topic: str, partition: int, workflow: str, keys: Sequence[tuple[str, str]]
    ) -> int:
        values = {
            "topic": topic,
            "partition": partition,
            "workflow": workflow,
            "tenants": [key[0] for key in keys],
            "instances": [key[1] for key in keys],
            "keep": KEEP,
        }

        def work(connection: Connection) -> int:
            found = connection.execute(self.sql["prunable"], values, binary=True).fetchall()
            good = [row for row in found if content_hash(row[3]) == row[4]]
            if not good:
                return 0
            bounds = {
                "tenants": [row[0] for row in good],
                "instances": [row[1] for row in good],
                "versions": [row[2] for row in good],
            }
            return connection.execute(self.sql["prune"], values | bounds).rowcount

        return self.runner.run(f"pruning {topic}/{partition}", work)

    def _claim(
        self, connection: Connection, row: PartitionRow, expected_epoch: int | None, *, again: bool
    ) -> PartitionRow | None:
        values = columns(row) | {"session": self.runner.sessions.name}
        if expected_epoch is not None:
            values["epoch"] = expected_epoch
        name = "claim_first" if expected_epoch is None else "claim"
        try:
            with transaction(connection):
                connection.execute(
                    "SELECT set_config('lock_timeout', %s, true)", [self._lock_timeout]
                )
                won = connection.execute(self.sql[name], values, binary=True).fetchone()
        except psycopg.errors.LockNotAvailable:
            raise _HeldError from None
        if won:
            return partition_row(won)
        place = [row.topic, row.partition]
        found = connection.execute(self.sql["read"], place, binary=True).fetchone()
        if found is None:
            self._refuse_second_topic(connection, row)
            return None
        standing = partition_row(found)
        # An owner is the id of one producer object, so this row is the claim without an answer.
        mine = (standing.owner, standing.epoch) == (row.owner, values["epoch"] + 1)
        return standing if again and mine else None

    def _refuse_second_topic(self, connection: Connection, row: PartitionRow) -> None:
        found = connection.execute(self.sql["topic_of"], [row.workflow, row.partition]).fetchone()
        if found is not None:
            raise UsageError(
                Code.BAD_SETTING,
                f"Schema {self.schema} holds workflow {row.workflow} of topic {found[0]}, "
                f"not of {row.topic}.",
                "Give each namespace a schema of its own.",
            )

    def _end_holders(self, topic: str, partition: int) -> None:
        def work(connection: Connection) -> int:
            found = connection.execute(
                self.sql["terminate"], {"topic": topic, "partition": partition}
            ).fetchone()
            return int(found[0]) if found else 0

        ended = self.runner.run(f"ending the sessions that hold {topic}/{partition}", work)
        if ended:
            text = f"{ended} session(s) of the old owner held the row and were ended."
            self._tell("OWNER_TERMINATED", topic, partition, text)

    def _tell(self, code: str, topic: str, partition: int, text: str) -> None:
        self.on_alarm(Alarm(code=code, topic=topic, partition=partition, text=text))


class _HeldError(Exception):
    """The claim met its lock timeout."""


def _log_alarm(alarm: Alarm) -> None:
    _log.error(alarm.text, code=alarm.code, topic=alarm.topic, partition=alarm.partition)


def columns(row: PartitionRow) -> dict[str, Any]:
    """A partition's row as parameters, by field name."""
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return values | {"counts": Jsonb(dict(row.counts))}


def partition_row(values: tuple[Any, ...]) -> PartitionRow:
    """A partition's row as the statements return it."""
    return PartitionRow(**dict(zip(PartitionRow.__struct_fields__, values, strict=True)))
