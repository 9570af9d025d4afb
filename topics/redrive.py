"""Looking at the decision log, and sending a rejected record again: once, byte by byte.

Law of this module: a redriven record is the original one with a header more, which names where
it first stood and the attempt. Whether it was redriven already is read from the event topic
itself, inside a transactional id of its own for each partition: a second redrive at the same
moment fences the first, so that of two requests one sends and the other finds it sent (B024).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from msgspec.structs import replace

from refold.schemas.errors import Code, ServerError, UsageError
from refold.schemas.verdicts import Decision, Verdict
from refold.topics.failures import kafka_error
from refold.topics.headers import headers_of
from refold.topics.lookup import ANSWER_S, bounds_of, partitions_of
from refold.topics.partition import partition_of
from refold.topics.reading import batches
from refold.topics.rejected import (
    Coordinates,
    Original,
    original,
    read,
    record_hash,
    redrive_headers,
    redrive_of,
    unwrapped,
)
from refold.topics.specs import events_topic, rejected_topic

SKEW_MS: Final = 300_000
"""Clocks of two brokers differ by less."""
SENT_AGAIN: Final = frozenset({Verdict.REFUSED, Verdict.POISON})
"""Verdicts that leave nothing in the state: their record may come again as it was. A parked one
is released by a `refold.redrive` event, a conflict stays one."""


class Entry(msgspec.Struct, frozen=True):
    """One decision as it stands on the decision log."""

    where: Coordinates
    """Its own place, on the decision log."""
    decision: Decision
    original: Original
    log_time_ms: int


class Redriven(msgspec.Struct, frozen=True):
    """What became of one request."""

    where: Coordinates
    origin: Coordinates
    attempt: int
    """Attempt that is on its way: 2 for the first redrive."""
    sent: bool
    """False: it had been redriven already."""
    at: Coordinates | None = None
    """Where it stands now, if it was sent by this request."""


class RejectedLog:
    """The decision log of one workflow, for people.

    Args:
        namespace: First part of the topic names.
        workflow: Name of the workflow.
        reader: Makes a group-less read_committed consumer with `enable.partition.eof`.
    """

    def __init__(self, namespace: str, workflow: str, reader: Callable[[], Consumer]) -> None:
        self.namespace = namespace
        self.workflow = workflow
        self.topic = rejected_topic(namespace, workflow)
        self.events = events_topic(namespace, workflow)
        self._reader = reader

    def partitions(self) -> list[int]:
        """Partition numbers of the decision log.

        Raises:
            ServerError: TOPIC_MISSING or KAFKA_AWAY.
        """
        reader = self._reader()
        try:
            return partitions_of(reader, self.topic)
        finally:
            reader.close()

    def entries(self, partition: int, start: int | None = None) -> Iterator[Entry]:
        """Decisions of one partition in log order; activations are left out.

        Args:
            partition: Which one.
            start: First offset on the decision log; None: the first that is there.
        """
        reader = self._reader()
        try:
            low = bounds_of(reader, self.topic, partition)[0] if start is None else start
            for messages in batches(reader, self.topic, partition, low):
                for message in messages:
                    entry = _entry(message)
                    if entry is not None:
                        yield entry
        finally:
            reader.close()

    def entry(self, partition: int, offset: int) -> Entry:
        """One decision.

        Raises:
            UsageError: NOT_FOUND.
        """
        message = self._message(self.topic, partition, offset)
        entry = None if message is None else _entry(message)
        if entry is None:
            raise UsageError(
                Code.NOT_FOUND,
                f"there is no decision at {self.topic}[{partition}] offset {offset}.",
                "`refold rejected list` shows those that are there.",
            )
        return entry

    def whole(self, entry: Entry) -> Original:
        """The original record; a stub's is fetched from where it was read.

        Raises:
            UsageError: NOT_FOUND, its bytes are no longer on the event topic.
        """
        kept, source = entry.original, entry.original.source
        if kept.stub is None:
            return kept
        message = self._message(source.topic, source.partition, source.offset)
        headers = headers_of(message) if message else ()
        _, _, mine = unwrapped(source, headers)
        if message is None or record_hash(message.key(), message.value(), mine) != kept.stub:
            raise UsageError(
                Code.NOT_FOUND,
                f"the record {source} did not fit the decision log and is gone from its topic.",
                "Ask its sender to send it again.",
            )
        return msgspec.structs.replace(
            kept, key=message.key(), value=message.value(), headers=mine, stub=None
        )

    def _message(self, topic: str, partition: int, offset: int) -> Message | None:
        reader = self._reader()
        try:
            first, behind = bounds_of(reader, topic, partition)
            if not first <= offset < behind:
                return None
            for messages in batches(reader, topic, partition, offset, offset + 1):
                return messages[0]
        finally:
            reader.close()
        return None


def redrive(
    log: RejectedLog,
    entries: Sequence[Entry],
    producer: Callable[[str], Producer],
    reader: Callable[[], Consumer],
) -> list[Redriven]:
    """Send refused or undecodable records again, each once.

    A record that a foreign partitioner misplaced goes to the partition of its key, all others to
    the one they came from.

    Args:
        log: The decision log that holds them.
        entries: Decisions to take back.
        producer: Makes a transactional producer under the id it is given.
        reader: As for `RejectedLog`.

    Raises:
        UsageError: REDRIVE_REFUSED, one of them is parked or a conflict; NOT_FOUND.
        ServerError: KAFKA_AWAY or KAFKA_REFUSED; those of a partition are sent all or none.
    """
    count = len(log.partitions())
    by_partition: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_partition[_target(entry, count)].append(entry)
    return [
        outcome
        for partition, group in sorted(by_partition.items())
        for outcome in _redrive_partition(log, partition, group, producer, reader)
    ]


def _target(entry: Entry, count: int) -> int:
    decision, kept = entry.decision, entry.original
    if decision.verdict not in SENT_AGAIN:
        cure = (
            "Release its instance with `refold redrive`."
            if decision.verdict == Verdict.PARKED
            else "Send the event under an id of its own."
        )
        raise UsageError(
            Code.REDRIVE_REFUSED,
            f"the record {kept.source} is {decision.verdict}: sending it again changes nothing.",
            cure,
        )
    if decision.reason.code == Code.WRONG_PARTITION and kept.key:
        return partition_of(kept.key, count)
    return kept.source.partition


def _redrive_partition(
    log: RejectedLog,
    partition: int,
    group: Sequence[Entry],
    make: Callable[[str], Producer],
    reader: Callable[[], Consumer],
) -> list[Redriven]:
    whole = [log.whole(entry) for entry in group]
    producer = make(f"{log.namespace}-redrive-{log.workflow}-{partition}")
    try:
        producer.init_transactions(ANSWER_S)
        done = _redriven_since(log.events, partition, group, reader)
        producer.begin_transaction()
        outcomes = []
        stands: dict[int, Coordinates] = {}
        for place, (entry, kept) in enumerate(zip(group, whole, strict=True)):
            mark = (kept.origin, kept.attempt + 1)
            sent = mark not in done
            if sent:
                done.add(mark)
                producer.produce(
                    log.events,
                    kept.value,
                    kept.key,
                    partition=partition,
                    headers=redrive_headers(kept, kept.headers),
                    on_delivery=partial(_stands, stands, place),
                )
            outcomes.append(Redriven(entry.where, kept.origin, kept.attempt + 1, sent))
        producer.commit_transaction(ANSWER_S)
        producer.flush(ANSWER_S)  # hands over the reports that say where each stands
    except KafkaException as failure:
        if failure.args[0].fatal():
            raise ServerError(
                Code.FENCED,
                f"another redrive of {log.events}[{partition}] began; this one sent nothing.",
                "Look at `refold rejected list` again.",
            ) from failure
        raise kafka_error(failure, f"redriving to {log.events}[{partition}]") from failure
    return [replace(each, at=stands.get(place)) for place, each in enumerate(outcomes)]


def _stands(
    stands: dict[int, Coordinates], place: int, error: KafkaError | None, message: Message
) -> None:
    """Take in a delivery report; what failed fails the transaction, which tells of it."""
    if error is None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        stands[place] = Coordinates(topic or "", partition or 0, offset or 0)


def _redriven_since(
    topic: str, partition: int, group: Sequence[Entry], make: Callable[[], Consumer]
) -> set[tuple[Coordinates, int]]:
    """Every (origin, attempt) that was redriven to a partition since the oldest of these."""
    reader = make()
    try:
        start, behind = bounds_of(reader, topic, partition)
        after = [entry.original.source for entry in group]
        if all(source.partition == partition for source in after):
            start = max(start, min(source.offset for source in after) + 1)
        else:
            young = _offset_at(reader, topic, partition, group)
            start = max(start, behind if young is None else young)
        found = set()
        for messages in batches(reader, topic, partition, start):
            for message in messages:
                mark = redrive_of(headers_of(message))
                if mark is not None:
                    found.add(mark)
        return found
    finally:
        reader.close()


def _offset_at(reader: Consumer, topic: str, partition: int, group: Sequence[Entry]) -> int | None:
    """Offset of the first record that may be younger than the oldest decision; None at the end."""
    when = max(0, min(entry.log_time_ms for entry in group) - SKEW_MS)
    try:
        (found,) = reader.offsets_for_times([TopicPartition(topic, partition, when)], ANSWER_S)
    except KafkaException as failure:
        raise kafka_error(failure, f"looking for a time on {topic}[{partition}]") from failure
    return found.offset if found.offset >= 0 else None


def _entry(message: Message) -> Entry | None:
    decision = read(message)
    if not isinstance(decision, Decision):
        return None
    where = Coordinates(message.topic() or "", message.partition() or 0, message.offset() or 0)
    return Entry(where, decision, original(message), message.timestamp()[1])
