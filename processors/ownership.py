"""Taking a partition: fence the predecessor, claim the epoch, and only then look where it stands.

Law of this module: runs in a thread of its own, never touches the group's consumer (P1), and
follows P5 step by step. What it brings back is data; the loop decides whether it still wants it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TypeVar

import msgspec
import structlog
from confluent_kafka import TopicPartition

from refold.processors.clients import Admin, Clients
from refold.processors.cluster import ANSWER_S, log_facts, stable_end
from refold.processors.decisions import Known, activations_of, read_decisions
from refold.processors.definition import Workflow
from refold.processors.digest import beginning
from refold.processors.divergence import explained
from refold.processors.examination import Examination, Examined, Held, Preflight
from refold.processors.judgement import LogFacts, Start, choice_of, judge
from refold.processors.options import Options
from refold.processors.partition import Partition
from refold.processors.transaction import initialise
from refold.schemas.errors import Code, FenceError, RecordError, ServerError
from refold.snapshots.model import PartitionRow
from refold.snapshots.ports import Store
from refold.topics.facts import TopicFacts, topic_facts
from refold.topics.reading import batches, offset_of
from refold.topics.specs import rejected_topic

_LOG = structlog.get_logger("refold.ownership")
FENCE_S = 20.0
"""Longest time for fencing one predecessor; measured 0.5 s."""
LOOKED_BACK = 10_000
"""Offsets at the end of the log among which its last record is looked for."""


Answer = TypeVar("Answer")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed partition and everything that its fold starts from."""

    row: PartitionRow
    start: Start
    known: Known
    facts: LogFacts
    wanted: int | None
    """Version that a person chose for new instances, where activation is manual."""
    ready_at: int = 0
    """Position at which everything is folded that stood on the log: timers ring from there on."""


class Contested(Exception):  # noqa: N818  # an outcome, not an error
    """Another claim came first; the group decides who is right, so ask it again."""


class Fencer:
    """Ends the transactions of dead owners, each transactional id once (P4, P5)."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = Lock()
        self._fenced: dict[str, Future[None]] = {}

    def fence(self, transactional_id: str) -> None:
        """Abort the id's open transaction and fence its producer; later calls wait for the first.

        Raises:
            ServerError: KAFKA_AWAY or KAFKA_REFUSED.
        """
        with self._lock:
            running = self._fenced.get(transactional_id)
            mine = running is None
            future = self._fenced.setdefault(transactional_id, running or Future())
        if not mine:
            future.result()
            return
        try:
            initialise(self._clients.producer(transactional_id), FENCE_S)
        except BaseException as failure:
            with self._lock:
                del self._fenced[transactional_id]
            future.set_exception(failure)
            raise
        future.set_result(None)


class Taker:
    """Takes partitions side by side, bounded in number.

    Args:
        options: The worker's settings.
        clients: Makes throw-away producers and readers.
        store: PostgreSQL.
        admin: Admin client, shared by the threads (librdkafka's is thread-safe).
        preflight: Called with the event topic's facts; raises FenceError where a check fails.
    """

    def __init__(
        self,
        options: Options,
        clients: Clients,
        store: Store,
        admin: Admin,
        preflight: Preflight,
    ) -> None:
        self._options = options
        self._clients = clients
        self._store = store
        self._admin = admin
        self._preflight = preflight
        self._fencer = Fencer(clients)
        self._examination = Examination(options, store, admin, preflight)
        self._pool = ThreadPoolExecutor(options.recoveries, thread_name_prefix="take")
        self._live = ""
        """Owner of the newest take: the worker's live producer."""

    def submit(self, topic: str, partition: int, workflow: Workflow, owner: str) -> Future[Taken]:
        """Begin to take a partition; the future holds what `take` gives or raises."""
        self._live = owner
        return self._pool.submit(
            self._renewing, lambda: self.take(topic, partition, workflow, owner)
        )

    def submit_examine(self, owned: "Sequence[Held]") -> Future[Examined]:
        """Begin to check owned partitions again, and to look what a person chose for them."""
        return self._pool.submit(self._renewing, lambda: self._examination(owned))

    def _renewing(self, work: Callable[[], Answer]) -> Answer:
        """Run work; when Kafka did not answer, the next work gets a new admin client."""
        try:
            return work()
        except ServerError as error:
            if error.code == Code.KAFKA_AWAY:
                self._admin.renew()
            raise

    def submit_explanation(self, partition: Partition) -> Future[str]:
        """Begin to find out what a diverged replay decided otherwise (P19)."""
        return self._pool.submit(explained, self._clients, self._options.namespace, partition)

    def close(self) -> None:
        """Let running takes end; what they claim is released by the successor's fence."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def take(self, topic: str, partition: int, workflow: Workflow, owner: str) -> Taken:
        """Fence, claim, read (P5).

        Args:
            topic: Event topic.
            partition: Its partition, assigned to this worker by the group.
            workflow: The definitions that fold it.
            owner: Transactional id of this worker's live producer.

        Raises:
            Contested: Another claim came first.
            FenceError: A check or the judgement forbids to go on.
            RecordError: UNDECODABLE, a record of the decision log was not written by refold.
            ServerError: Kafka or PostgreSQL is away or refuses.
        """
        try:
            taken = self._take(topic, partition, workflow, owner)
        except (FenceError, RecordError) as fence:
            self._note(topic, partition, f"{fence.code} {fence.what}")
            raise
        if taken.row.fence:  # it was cured, or a person chose
            self._store.fence(topic, partition, taken.row.epoch, "")
        alarm = taken.start.alarm
        if alarm is not None:
            text = f"{alarm} it went on from offset {taken.start.position}"
            self._store.alarm(topic, partition, taken.row.epoch, text)
        return taken

    def _take(self, topic: str, partition: int, workflow: Workflow, owner: str) -> Taken:
        claimed, log = self.claim(topic, partition, workflow, owner)
        try:
            return self._judged(claimed, log, workflow)
        except (FenceError, RecordError):
            # Nothing of this producer is under way there: who takes the partition next has nobody
            # to fence, and a fence that is looked at again and again is no crash loop.
            with suppress(ServerError):
                self._store.release(topic, partition, claimed.epoch)
            raise

    def _judged(self, claimed: PartitionRow, log: LogFacts, workflow: Workflow) -> Taken:
        start = judge(claimed, log)
        if start.restart:
            claimed = self._restarted(claimed, log, workflow)
        known = read_decisions(
            self._clients.reader(),
            f"{self._options.namespace}.{workflow.name}.rejected",
            claimed.partition,
            claimed.decisions,
            claimed.marker,
        )
        same_tenant(workflow, claimed, known)
        wanted = self._wanted(workflow.name)
        ready_at = self._ready_at(log, start) if workflow.timed else 0
        return Taken(
            row=claimed, start=start, known=known, facts=log, wanted=wanted, ready_at=ready_at
        )

    def _ready_at(self, log: LogFacts, start: Start) -> int:
        """Behind the last record below the last stable offset (P26).

        Behind it stand marks and aborted records, which no fold ever passes: a dead owner's last
        transaction leaves such an end. Only the log's last stretch is looked at.
        """
        end = stable_end(self._admin.client, TopicPartition(log.topic, log.partition))
        ready_at = max(start.silent_to, end - LOOKED_BACK, log.low)
        if ready_at >= end:
            return ready_at
        reader = self._clients.reader()
        try:
            for some in batches(reader, log.topic, log.partition, ready_at, end):
                ready_at = offset_of(some[-1]) + 1
        finally:
            reader.close()
        return ready_at

    def _wanted(self, workflow: str) -> int | None:
        return self._store.wanted(workflow) if self._options.activate_manually else None

    def _note(self, topic: str, partition: int, fence: str) -> None:
        """Write the fence down, where the partition has a row: tools show it (O7)."""
        try:
            row = self._store.read(topic, partition)
            if row is not None:
                self._store.fence(topic, partition, row.epoch, fence)
        except ServerError as away:
            _LOG.warning("the fence is not noted", error=str(away))

    def claim(
        self, topic: str, partition: int, workflow: Workflow, owner: str
    ) -> tuple[PartitionRow, LogFacts]:
        """Fence the predecessor and claim the epoch; where to go on is not judged yet.

        Args:
            topic: As for `take`; likewise the others.
            partition: Its partition.
            workflow: What is folded there.
            owner: Transactional id that a successor fences.

        Raises:
            Contested: Another claim came first.
            FenceError: A check of the topic forbids it.
            ServerError: Kafka or PostgreSQL is away or refuses.
        """
        row = self._store.read(topic, partition)
        if self._live not in {"", owner}:  # begun for a producer that is finished: it would
            raise Contested  # fence the one that took the partition since (P6)
        if row is not None and not row.released and row.owner != owner:
            _LOG.info("fencing the predecessor", topic=topic, partition=partition, owner=row.owner)
            self._fencer.fence(row.owner)
        facts = topic_facts(self._admin.client, topic, ANSWER_S)
        self._preflight(facts)
        self._same_count(facts, partition, row)
        claimed = self._claim(topic, partition, workflow, owner, row, facts)
        return claimed, self._log_facts(claimed, facts)

    def _log_facts(self, row: PartitionRow, facts: TopicFacts) -> LogFacts:
        log = log_facts(self._admin.client, self._options.group, facts, row.partition)
        choice = choice_of(row)
        if choice is None or not _adopts(row) or log.committed is not None:
            return log
        left = log_facts(self._admin.client, choice.group, facts, row.partition)
        return msgspec.structs.replace(
            log, previous=left.committed, previous_metadata=left.metadata
        )

    def _restarted(self, row: PartitionRow, log: LogFacts, workflow: Workflow) -> PartitionRow:
        """The row of a log that was made anew, the old one's state forgotten as a person chose.

        Raises:
            FenceError: LOG_REPLACED, the decision log is still the old one.
            Contested: Another claim came meanwhile.
        """
        rejected = rejected_topic(self._options.namespace, workflow.name)
        known = read_decisions(self._clients.reader(), rejected, row.partition, 0, 0)
        if known.decisions or known.activations:
            raise FenceError(
                Code.LOG_REPLACED,
                f"{rejected} still holds the decisions of the old {row.topic}: they would be"
                " obeyed for the new log's records.",
                f"Delete {rejected} and create it again; the partition then starts by itself.",
                topic=row.topic,
                partition=row.partition,
            )
        fresh = msgspec.structs.replace(
            row,
            topic_id=log.topic_id,
            partitions=log.partitions,
            marker=0,
            rows_to=0,
            decisions=0,
            digest=beginning(log.topic_id).packed(),
            counts={},
            activations=b"",
            base=0,
        )
        if not self._store.restart(fresh):
            raise Contested
        return fresh

    def _same_count(self, facts: TopicFacts, partition: int, row: PartitionRow | None) -> None:
        """A partition without a row beside others with another count was added in flight."""
        first = None if row is not None or partition == 0 else self._store.read(facts.topic, 0)
        if first is not None and first.partitions != facts.partitions:
            raise FenceError(
                Code.PARTITIONS_CHANGED,
                f"Partition {facts.topic}[{partition}] is fenced: the topic's state was written for"
                f" {first.partitions} partitions, it now has {facts.partitions}: instances would"
                " begin a second life here.",
                "Nothing was folded or sent. See `refold explain PARTITIONS_CHANGED`.",
                topic=facts.topic,
                partition=partition,
            )

    def _claim(
        self,
        topic: str,
        partition: int,
        workflow: Workflow,
        owner: str,
        row: PartitionRow | None,
        facts: TopicFacts,
    ) -> PartitionRow:
        if row is None:
            wanted = PartitionRow(
                topic=topic,
                partition=partition,
                workflow=workflow.name,
                topic_id=facts.topic_id,
                partitions=facts.partitions,
                group=self._options.group,
                epoch=0,
                owner=owner,
                released=False,
                marker=0,
                rows_to=0,
                decisions=0,
                digest=beginning(facts.topic_id).packed(),
                counts={},
                base=0,
                takeovers=0,
            )
        else:
            group = self._options.group if _adopts(row) else row.group
            wanted = msgspec.structs.replace(row, owner=owner, released=False, group=group)
        claimed = self._store.claim(wanted, None if row is None else row.epoch)
        if claimed is None:
            raise Contested
        return claimed


def _adopts(row: PartitionRow) -> bool:
    """True when a person chose that the partition goes on in this worker's group."""
    choice = choice_of(row)
    return choice is not None and (choice.code, choice.choice) == (Code.GROUP_CHANGED, "adopt")


def same_tenant(workflow: Workflow, row: PartitionRow, known: Known) -> None:
    """Refuse another default tenant than the one that the partition was folded with (P14).

    Raises:
        FenceError: DEFINITION_CHANGED.
    """
    last = next(iter(activations_of(row, known)[-1:]), None)
    if last is not None and last.tenant != workflow.tenant:
        raise FenceError(
            Code.DEFINITION_CHANGED,
            f"Events of {workflow.name} that name no tenant belonged to {last.tenant!r} so far,"
            f" its definition now says {workflow.tenant!r}: instances would begin a second life.",
            "Give every version the default tenant that the log was folded with.",
            topic=row.topic,
            partition=row.partition,
        )
