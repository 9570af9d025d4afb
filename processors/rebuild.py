"""A partition's rows made again from its log, in one cut under a claimed epoch.

Law of this module: nothing is believed of what stands in PostgreSQL but who owns the partition.
The predecessor is fenced and the epoch claimed before the log is read (P5); the fold is silent,
up to exactly where the log was passed, and its digest must be the committed one (P19): else
nothing is written. Works with every row deleted (P13).
"""

import tempfile
from collections.abc import Callable, Iterator
from typing import IO, Final
from uuid import uuid4

import msgspec
from confluent_kafka.admin import AdminClient

from refold.processors.clients import Admin, Clients
from refold.processors.cluster import ANSWER_S, log_facts
from refold.processors.definition import Workflow
from refold.processors.digest import Committed
from refold.processors.encoding import snapshot_of
from refold.processors.instance_codec import partition_hash
from refold.processors.judgement import LogFacts, judge
from refold.processors.options import Options
from refold.processors.overview import Member, group_members
from refold.processors.ownership import Contested, Taker
from refold.processors.partition import Key, Overlay, Partition
from refold.processors.projection import instance_row
from refold.processors.replay import Extent, Replay, extent
from refold.processors.summary import hashes_of
from refold.schemas.errors import Code, FenceError, RefoldError, UsageError
from refold.schemas.verdicts import Activate
from refold.snapshots.model import (
    EventRow,
    Flush,
    InstanceRow,
    PartitionRow,
    ResolvedRow,
    Snapshot,
)
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.facts import topic_facts
from refold.topics.specs import events_topic

PIECE_ROWS: Final = 5_000
"""Instance rows that are written at a time: bounds memory, not the transaction."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What of PostgreSQL differs from the log."""

    marker: int
    """Marker that stands, -1 without a row."""
    end: int
    """Marker that the log says."""
    missing: int
    surplus: int
    different: int
    first: str
    """`<missing|surplus|different> <tenant>/<instance>`; empty when all are equal."""
    instances: int
    hash: str


class _Piece(msgspec.Struct):
    events: list[EventRow]
    resolved: list[ResolvedRow]


_WRITE: Final = msgspec.msgpack.Encoder()
_READ: Final = msgspec.msgpack.Decoder(_Piece)


class _Spool:
    """Rows of the event-log index on disk until the fold has ended, in pieces as they came."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def put(self, overlay: Overlay) -> None:
        data = _WRITE.encode(_Piece(overlay.events, overlay.resolved))
        self._file.write(len(data).to_bytes(8, "big") + data)

    def pieces(self) -> Iterator[_Piece]:
        self._file.seek(0)
        while head := self._file.read(8):
            yield _READ.decode(self._file.read(int.from_bytes(head, "big")))


def holder(admin: AdminClient, group: str, topic: str, partition: int) -> Member | None:
    """The live member of the group that this partition is assigned to.

    Raises:
        ServerError: KAFKA_AWAY.
    """
    members = group_members(admin, group)
    return next((each for each in members if (topic, partition) in each.partitions), None)


class Rebuild:
    """Makes the rows of one partition again.

    Args:
        options: Namespace, group, rows on or off.
        clients: Kafka.
        store: PostgreSQL.
        workflow: With every version that the log used.
        partition: Number of the partition.
        progress: Told (position, end) while the log is folded.
    """

    def __init__(
        self,
        options: Options,
        clients: Clients,
        store: PostgresStore,
        workflow: Workflow,
        partition: int,
        progress: Callable[[int, int], None] = lambda position, end: None,
    ) -> None:
        self.topic = events_topic(options.namespace, workflow.name)
        self._options = options
        self._clients = clients
        self._store = store
        self._admin = clients.admin()
        self._workflow = workflow
        self._number = partition
        self._progress = progress

    def difference(self) -> Change:
        """What a rebuild would change, by the marker that stands; nothing is claimed or written.

        Raises:
            FenceError: As `run`.
            ServerError: Kafka or PostgreSQL is away.
        """
        where = extent(self._admin, self.topic, self._number)
        if self._store.read(self.topic, self._number) is None:
            end, _ = self._target(None, self._facts())
            return self._compared(self._fold(where, end), None, {})
        live = Upkeep(self._store).partition_hashes(self.topic, self._number)
        stored = {(each.tenant, each.instance): each.hash for each in live.instances}
        return self._compared(self._fold(where, live.row.marker), live.row.marker, stored)

    def run(self, *, force: bool = False) -> Change:
        """Claim, fold, compare the digest, write.

        Args:
            force: Take it although a live worker holds it: that one is fenced. It takes the
                partition back as soon as it can, so stop it first where that is possible.

        Raises:
            UsageError: PARTITION_HELD, a live worker holds it.
            FenceError: REPLAY_DIVERGED, OFFSETS_OUT_OF_RANGE or what forbids the claim; FENCED
                when a worker took the partition before the rows were written.
            ServerError: Kafka or PostgreSQL is away.
        """
        where = extent(self._admin, self.topic, self._number)
        held = holder(self._admin, self._options.group, self.topic, self._number)
        if held is not None and not force:
            raise _held(self.topic, self._number, held)
        row, facts = self._claim()
        try:
            return self._written(where, row, facts)
        finally:
            self._store.release(self.topic, self._number, row.epoch)

    def _written(self, where: Extent, row: PartitionRow, facts: LogFacts) -> Change:
        end, expected = self._target(row, facts)
        live = Upkeep(self._store).partition_hashes(self.topic, self._number)
        stored = {(each.tenant, each.instance): each.hash for each in live.instances}
        with tempfile.TemporaryFile(prefix="refold-") as file:
            spool = _Spool(file)
            replay, folded = self._folding(where, end, spool.put)
            _same_digest(folded, expected)
            new = _row(row, replay, folded, rows=self._options.rows)
            flushes = _flushes(new, folded, spool) if self._options.rows else None
            if not Upkeep(self._store).replace(new, _snapshots(folded), flushes):
                raise _taken(self.topic, self._number)
        return self._compared(folded, row.marker, stored)

    def _claim(self) -> tuple[PartitionRow, LogFacts]:
        # Nothing is folded live here: retention and servers are the worker's to judge.
        taker = Taker(
            self._options, self._clients, self._store, Admin(self._clients), lambda facts: None
        )
        owner = f"{self._options.namespace[:24]}-rebuild-{uuid4().hex[:16]}"
        try:
            return taker.claim(self.topic, self._number, self._workflow, owner)
        except Contested:
            raise _taken(self.topic, self._number) from None
        finally:
            taker.close()

    def _facts(self) -> LogFacts:
        facts = topic_facts(self._admin, self.topic, ANSWER_S)
        return log_facts(self._admin, self._options.group, facts, self._number)

    def _target(self, row: PartitionRow | None, facts: LogFacts) -> tuple[int, Committed | None]:
        """Up to where the log was passed, and the digest that stands there."""
        marker = 0 if row is None else row.marker
        blank = None if row is None else msgspec.structs.replace(row, marker=0, counts={})
        start = judge(blank, facts)
        if start.silent_to >= marker:
            return start.silent_to, start.expected
        return min(marker, facts.high), None

    def _fold(self, where: Extent, end: int) -> Partition:
        return self._folding(where, end, None)[1]

    def _folding(
        self, where: Extent, end: int, taken: Callable[[Overlay], None] | None
    ) -> tuple[Replay, Partition]:
        rows = taken is not None and self._options.rows
        replay = Replay(
            self._clients, self._options.namespace, self._workflow, where, end=end, rows=rows
        )
        folded = replay.fold(
            progress=lambda position: self._progress(position, end),
            taken=taken if taken is not None and rows else lambda overlay: None,
        )
        return replay, folded

    def _compared(self, folded: Partition, marker: int | None, stored: dict[Key, bytes]) -> Change:
        hashes = hashes_of(folded)
        kinds = {
            "missing": sorted(hashes.keys() - stored.keys()),
            "surplus": sorted(stored.keys() - hashes.keys()),
            "different": sorted(
                key for key in hashes.keys() & stored.keys() if hashes[key] != stored[key]
            ),
        }
        named = sorted((keys[0], kind) for kind, keys in kinds.items() if keys)
        first = f"{named[0][1]} {named[0][0][0]}/{named[0][0][1]}" if named else ""
        return Change(
            marker=-1 if marker is None else marker,
            end=folded.position,
            missing=len(kinds["missing"]),
            surplus=len(kinds["surplus"]),
            different=len(kinds["different"]),
            first=first,
            instances=len(hashes),
            hash=partition_hash(hashes.items()).hex(),
        )


def _row(row: PartitionRow, replay: Replay, folded: Partition, *, rows: bool) -> PartitionRow:
    end, known = folded.position, replay.known
    # Decisions that stand at or past the marker must be found by the next owner: then it reads
    # the whole decision log again, and the row keeps no activations of its own.
    ahead = any(offset >= end for offset in known.decisions)
    activations: list[Activate] = [] if ahead else list(known.activations)
    return msgspec.structs.replace(
        row,
        marker=end,
        rows_to=end if rows else row.rows_to,
        decisions=0 if ahead else known.position,
        digest=folded.digests.packed(),
        counts=dict(folded.counts),
        activations=msgspec.msgpack.encode(activations),
        base=0,
    )


def _snapshots(folded: Partition) -> Iterator[Snapshot]:
    return (snapshot_of(folded.workflow, record) for record in folded.held.values())


def _flushes(row: PartitionRow, folded: Partition, spool: _Spool) -> Iterator[Flush]:
    versions = folded.workflow.versions
    for piece in spool.pieces():
        yield _flush(row, events=piece.events, resolved=piece.resolved)
    records = list(folded.held.values())
    for start in range(0, len(records), PIECE_ROWS):
        part = records[start : start + PIECE_ROWS]
        yield _flush(
            row, instances=[instance_row(versions[each.definition], each) for each in part]
        )


def _flush(
    row: PartitionRow,
    *,
    instances: list[InstanceRow] | None = None,
    events: list[EventRow] | None = None,
    resolved: list[ResolvedRow] | None = None,
) -> Flush:
    return Flush(
        topic=row.topic,
        topic_id=row.topic_id,
        partition=row.partition,
        workflow=row.workflow,
        epoch=row.epoch,
        previous=row.rows_to,
        rows_to=row.rows_to,
        instances=instances or [],
        events=events or [],
        resolved=resolved or [],
    )


def _same_digest(folded: Partition, expected: Committed | None) -> None:
    found = folded.digests.fold.value()
    if expected is None or found == expected.fold:
        return
    raise FenceError(
        Code.REPLAY_DIVERGED,
        f"{folded.topic}[{folded.number}] folded up to {folded.position} gives fold digest"
        f" {found}, the workers committed {expected.fold}: this code is not the code that ran.",
        "Nothing was written. Run the release that ran, or see the code's page.",
        topic=folded.topic,
        partition=folded.number,
    )


def _held(topic: str, partition: int, member: Member) -> RefoldError:
    return UsageError(
        Code.PARTITION_HELD,
        f"A live worker holds {topic}[{partition}]: {member.worker} at {member.host}.",
        "Stop the workers of this group first, or fence it with --force.",
        topic=topic,
        partition=partition,
    )


def _taken(topic: str, partition: int) -> FenceError:
    return FenceError(
        Code.FENCED,
        f"A worker took {topic}[{partition}] before the rows were written: nothing was changed.",
        "Stop the workers of this group, then rebuild.",
        topic=topic,
        partition=partition,
    )
