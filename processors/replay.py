"""A partition folded from its log: silent, from the beginning or a base, with the worker's code.

Law of this module: nothing is sent and nothing is written (O5). Events and decisions together
are the log (P13): the decision log is read first and obeyed, and what the fold may not know
otherwise (default tenant, partition count, version) comes from its activations. The end is a
position, not a record: control records leave gaps (B006).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from refold.processors.batch import Released, Run, fold_run
from refold.processors.clients import Clients
from refold.processors.cluster import ANSWER_S, EARLIEST, LATEST
from refold.processors.decisions import Known, read_decisions
from refold.processors.definition import Workflow
from refold.processors.digest import Digests, beginning
from refold.processors.instance import Instance
from refold.processors.partition import Key, Overlay, Partition
from refold.processors.payloads import Payloads, released, run_end
from refold.processors.purity import guard
from refold.processors.vocabulary import Vocabulary
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, FenceError, ServerError, UsageError
from refold.schemas.verdicts import Activate
from refold.topics.facts import topic_facts
from refold.topics.failures import words
from refold.topics.reading import batches, begin, offset_of
from refold.topics.records import EventReader, Fault
from refold.topics.specs import events_topic, rejected_topic

IMPURE_MOST: Final = 20
"""Findings of the purity guard that are named; more tell nothing new."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of an event topic as it stands now."""

    topic: str
    partition: int
    topic_id: str
    partitions: int
    low: int
    """First offset that the log still holds."""
    end: int
    """Last stable offset: where a read_committed reader stops (P29)."""


class Impure(msgspec.Struct, frozen=True):
    """What the purity guard saw while one record was folded."""

    offset: int
    tenant: str
    instance: str
    type: str
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """State at an offset, to fold on from: a verified cut."""

    position: int
    instances: Mapping[Key, Instance]
    digests: Digests
    counts: Mapping[str, int] = field(default_factory=dict)


def extent(admin: AdminClient, topic: str, partition: int) -> Extent:
    """Ask where a partition's log begins and ends.

    Raises:
        ServerError: TOPIC_MISSING or KAFKA_AWAY.
        UsageError: The topic has no such partition.
    """
    facts = topic_facts(admin, topic, ANSWER_S)
    if not 0 <= partition < facts.partitions:
        raise UsageError(
            Code.NOT_FOUND,
            f"{topic} has partitions 0 to {facts.partitions - 1}, not {partition}.",
            "Name one of them.",
            topic=topic,
        )
    here = TopicPartition(topic, partition)
    committed = IsolationLevel.READ_COMMITTED
    try:
        low = admin.list_offsets({here: EARLIEST})[here].result(ANSWER_S)
        end = admin.list_offsets({here: LATEST}, isolation_level=committed)
        last = end[here].result(ANSWER_S)
    except (KafkaException, TimeoutError) as failure:
        raise ServerError(
            Code.KAFKA_AWAY,
            f"Kafka did not say where {topic}[{partition}] ends: {words(failure)}.",
            "Check that the brokers are reachable.",
        ) from failure
    return Extent(
        topic=topic,
        partition=partition,
        topic_id=facts.topic_id,
        partitions=facts.partitions,
        low=low.offset,
        end=last.offset,
    )


class Replay:
    """Folds one partition from its log.

    Args:
        clients: Makes readers.
        namespace: Prefix of every topic.
        workflow: With every version that the log used.
        where: The partition, as `extent` found it.
        end: Fold below this offset; the log's end by default.
        only: Fold this instance alone; the digests then mean nothing.
        rows: Collect rows of the event-log index in each overlay.
        guarded: Watch the reducers (`purity.guard`): several times slower.
        single: One record a run, so that `fold`'s `taken` sees each.
    """

    def __init__(
        self,
        clients: Clients,
        namespace: str,
        workflow: Workflow,
        where: Extent,
        *,
        end: int | None = None,
        only: Key | None = None,
        rows: bool = False,
        guarded: bool = False,
        single: bool = False,
    ) -> None:
        self.end = where.end if end is None else end
        self.where = where
        self._clients = clients
        self._workflow = workflow
        self._only = only
        self._rows = rows
        self._guarded = guarded
        self._single = single
        self.impure: list[Impure] = []
        self._payloads = Payloads(clients)
        self._vocabulary = Vocabulary(namespace, [workflow], clients)
        self.known: Known = read_decisions(
            clients.reader(), rejected_topic(namespace, workflow.name), where.partition, 0, 0
        )

    def fold(
        self,
        base: Base | None = None,
        *,
        progress: Callable[[int], None] = lambda position: None,
        taken: Callable[[Overlay], None] = lambda overlay: None,
    ) -> Partition:
        """Fold up to the end.

        Args:
            base: State to begin with; an empty one at offset 0 by default.
            progress: Told the position after each batch, and the end at the end.
            taken: Given each run's overlay after it was merged.

        Raises:
            FenceError: OFFSETS_OUT_OF_RANGE when the log lacks its beginning;
                DEFINITION_MISSING when a version that was used is not there.
            ServerError: KAFKA_AWAY or KAFKA_REFUSED.
        """
        partition = self._begin(base)
        self._in_log(partition.position)
        reader = self._clients.reader()
        try:
            place = (*partition.name, partition.position)
            if partition.position < self.end:
                begin(reader, *place)  # it connects and fetches while schemas are read
            self._vocabulary.refresh()  # the log's schemas stood there before its records (P27)
            for messages in batches(reader, *place, self.end, begun=True):
                for part, event_reader in self._by_activation(messages):
                    partition.reader = event_reader
                    self._part(partition, self._pairs(part, event_reader), taken)
                progress(partition.position)
        finally:
            reader.close()
            self._vocabulary.close()
        partition.position = max(partition.position, self.end)
        progress(partition.position)
        return partition

    def records(self) -> Iterator[tuple[Message, EventRecord | Fault]]:
        """The records of the log up to the end, read and not folded.

        Raises:
            FenceError: OFFSETS_OUT_OF_RANGE when the log lacks its beginning.
            ServerError: KAFKA_AWAY or KAFKA_REFUSED.
        """
        self._in_log(0)
        reader = self._clients.reader()
        try:
            place = (self.where.topic, self.where.partition)
            for messages in batches(reader, *place, 0, self.end):
                for part, event_reader in self._by_activation(messages):
                    yield from self._pairs(part, event_reader)
        finally:
            reader.close()

    def _begin(self, base: Base | None) -> Partition:
        where = self.where
        return Partition(
            topic=where.topic,
            number=where.partition,
            topic_id=where.topic_id,
            workflow=self._workflow,
            reader=EventReader(self._workflow.name, where.partitions, self._workflow.tenant),
            epoch=-1,
            position=0 if base is None else base.position,
            silent_to=self.end,
            expected=None,
            digests=beginning(where.topic_id) if base is None else base.digests,
            marker=0,
            rows_to=0,
            decided_from=0,
            decided_to=self.known.position,
            complete=True,
            counts={} if base is None else dict(base.counts),
            decisions=dict(self.known.decisions),
            activations=list(self.known.activations),
            held={} if base is None else dict(base.instances),
        )

    def _in_log(self, position: int) -> None:
        where = self.where
        if position < where.low and position < self.end:
            raise FenceError(
                Code.OFFSETS_OUT_OF_RANGE,
                f"The log of {where.topic}[{where.partition}] begins at {where.low}:"
                f" {position}..{where.low - 1} are gone.",
                "It cannot be folded from there; see the code's page.",
                topic=where.topic,
                partition=where.partition,
            )

    def _by_activation(
        self, messages: Sequence[Message]
    ) -> Iterator[tuple[Sequence[Message], EventReader]]:
        """Cut a batch where an activation changes how an envelope is read."""
        start, here = 0, self._activation(offset_of(messages[0]))
        for each in self.known.activations:
            place = _place(messages, each.offset)
            if start < place < len(messages):
                yield messages[start:place], self._reader(here)
                start, here = place, each
        yield messages[start:], self._reader(self._activation(offset_of(messages[start])))

    def _activation(self, offset: int) -> Activate | None:
        found = [each for each in self.known.activations if each.offset <= offset]
        return found[-1] if found else None

    def _reader(self, activation: Activate | None) -> EventReader:
        if activation is None:
            return EventReader(self._workflow.name, self.where.partitions, self._workflow.tenant)
        return EventReader(self._workflow.name, activation.partitions, activation.tenant)

    def _pairs(self, messages: Sequence[Message], reader: EventReader) -> Run:
        number, read = self.where.partition, reader.read
        pairs = [(message, read(message, number)) for message in messages]
        only = self._only
        if only is None:
            return pairs
        return [
            pair
            for pair in pairs
            if isinstance(pair[1], EventRecord) and (pair[1].tenant, pair[1].instance) == only
        ]

    def _part(self, partition: Partition, pairs: Run, taken: Callable[[Overlay], None]) -> None:
        while pairs:
            end = 1 if self._single else run_end(pairs)
            run, pairs = (pairs, ()) if end == len(pairs) else (pairs[:end], pairs[end:])
            given = released(partition, run, self._payloads)
            overlay = partition.overlay()
            if self._guarded:
                self._fold_guarded(partition, overlay, run, given)
            else:
                fold_run(partition, overlay, run, None, given, rows=self._rows)
            overlay.close()
            partition.merge(overlay, 0.0, rows=False)
            partition.dirty.clear()  # nothing is saved from here record by record
            taken(overlay)

    def _fold_guarded(
        self, partition: Partition, overlay: Overlay, run: Run, given: Released
    ) -> None:
        """Fold under the guard; where it saw something, once more record by record to name it."""
        run = [(cast(Message, _Plain(message)), event) for message, event in run]
        with guard(collect=True) as seen:
            fold_run(partition, overlay, run, None, given, rows=self._rows)
        if not seen or len(self.impure) >= IMPURE_MOST:
            return
        probe = partition.overlay()
        for message, event in run:
            with guard(collect=True) as calls:
                fold_run(partition, probe, [(message, event)], None, given, rows=False)
            if calls and isinstance(event, EventRecord):
                found = tuple(dict.fromkeys(calls))
                self.impure.append(
                    Impure(event.offset, event.tenant, event.instance, event.type, found)
                )
            if len(self.impure) >= IMPURE_MOST:
                return


class _Plain:
    """What the fold asks of a record, without a call into the client that the guard would see."""

    __slots__ = ("_key", "_offset", "_timestamp")

    def __init__(self, message: Message) -> None:
        self._offset = message.offset()
        self._key = message.key()
        self._timestamp = message.timestamp()

    def offset(self) -> int | None:
        return self._offset

    def key(self) -> object:
        return self._key

    def timestamp(self) -> tuple[int, int]:
        return self._timestamp


def _place(messages: Sequence[Message], offset: int) -> int:
    """Index of the first record at or past an offset."""
    low, high = 0, len(messages)
    while low < high:
        middle = (low + high) // 2
        if offset_of(messages[middle]) < offset:
            low = middle + 1
        else:
            high = middle
    return low


def fold_log(
    clients: Clients,
    namespace: str,
    workflow: Workflow,
    partition: int,
    *,
    end: int | None = None,
    only: Key | None = None,
    base: Base | None = None,
    progress: Callable[[int], None] = lambda position: None,
) -> Partition:
    """Fold a partition, or one instance of it, from its log.

    Args:
        clients: Makes readers and the admin client.
        namespace: Prefix of every topic.
        workflow: With every version that the log used.
        partition: Number of the partition.
        end: Fold below this offset; the log's end by default.
        only: (tenant, instance id) to fold alone.
        base: State to begin with.
        progress: Told the position after each batch.

    Raises:
        FenceError: As `Replay.fold`.
        ServerError: Likewise, and TOPIC_MISSING.
    """
    where = extent(clients.admin(), events_topic(namespace, workflow.name), partition)
    return Replay(clients, namespace, workflow, where, end=end, only=only).fold(
        base, progress=progress
    )
