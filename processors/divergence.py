"""What a replay decided otherwise than the worker that ran before: keys missing and surplus (P19).

Law of this module: reads only, after the partition is fenced. The tail's commands are read back
from the command topics and its decisions from the decision log, and set against what this code
made of the same records.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from refold.processors.checks import targets
from refold.processors.clients import Clients
from refold.processors.decisions import read_decisions
from refold.processors.keys import encoded
from refold.processors.partition import Partition
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import ServerError
from refold.topics.failures import kafka_error
from refold.topics.headers import RawHeaders
from refold.topics.lookup import partitions_of
from refold.topics.partition import partition_of
from refold.topics.reading import batches
from refold.topics.specs import commands_topic, rejected_topic

LINES_MOST: Final = 200_000
"""Records of a tail that are remembered for this; a longer tail is compared in part."""
SHOWN: Final = 10
"""Keys that are named; the rest is counted."""
MARGIN_MS: Final = 600_000
"""A worker's clock may be behind the broker's by so much."""
_DECIDED: Final = frozenset("rcxp")


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """How a tail was folded otherwise."""

    missing: tuple[str, ...]
    """Keys of commands that were sent and that this code does not want."""
    surplus: tuple[str, ...]
    """Keys of commands that this code wants and that were not sent."""
    decided: tuple[int, ...]
    """Offsets of records that this code rejects, and about which nothing was decided."""

    def __str__(self) -> str:
        parts = [
            _named("sent, but not wanted by this code", self.missing),
            _named("wanted by this code, but never sent", self.surplus),
            _named("rejected by this code alone, offsets", tuple(map(str, self.decided))),
        ]
        told = "; ".join(part for part in parts if part)
        return told or "no command and no rejection differs: other verdicts do"


def divergence(clients: Clients, namespace: str, partition: Partition) -> Divergence:
    """Compare a tail that was folded silently with what stands on the logs.

    Args:
        clients: Makes readers.
        namespace: Prefix of the topics.
        partition: Fenced, with the lines of its tail.

    Raises:
        ServerError: Kafka is away.
        FenceError: A log lacks what is to be read.
    """
    wanted: dict[str, int] = {}
    letters: dict[int, str] = {}
    for line in partition.tail:
        parts = line.split(" ")
        letters[int(parts[0])] = parts[1]
        wanted.update(
            (part, int(parts[0])) for part in parts[2:] if part.startswith(("r1:", "r2:"))
        )
    causes, since_ms = _causes(clients, partition)
    sent = {
        key
        for key in _commands(clients, namespace, partition, since_ms)
        if key in wanted or _cause(key) in causes
    }
    rejected = rejected_topic(namespace, partition.workflow.name)
    known = read_decisions(clients.reader(), rejected, partition.number, 0, partition.marker)
    return Divergence(
        missing=tuple(sorted(sent - wanted.keys())),
        surplus=tuple(sorted(wanted.keys() - sent)),
        decided=tuple(
            offset
            for offset, letter in letters.items()
            if letter in _DECIDED and offset not in known.decisions
        ),
    )


def _causes(clients: Clients, partition: Partition) -> tuple[frozenset[str], int]:
    """Identities of the tail's events as keys hold them, and the first one's log time."""
    reader, found, since_ms = clients.reader(), set(), 0
    try:
        tail = (partition.marker, partition.silent_to)
        for messages in batches(reader, partition.topic, partition.number, *tail):
            for message in messages:
                since_ms = since_ms or message.timestamp()[1]
                event = partition.reader.read(message, partition.number)
                if isinstance(event, EventRecord):
                    found.add(encoded(f"{event.source}\x1f{event.id}"))
    finally:
        reader.close()
    return frozenset(found), since_ms


def _commands(
    clients: Clients, namespace: str, partition: Partition, since_ms: int
) -> Iterator[str]:
    """Keys of this partition's commands since then."""
    source = f"/{namespace}/{partition.workflow.name}".encode()
    reader = clients.reader()
    try:
        for target in sorted(targets(partition.workflow)):
            topic = commands_topic(namespace, target)
            for place in _starts(reader, topic, since_ms - MARGIN_MS):
                for messages in batches(reader, topic, place.partition, place.offset):
                    yield from _keys(messages, partition, source)
    finally:
        reader.close()


def _starts(reader: Consumer, topic: str, since_ms: int) -> list[TopicPartition]:
    asked = [TopicPartition(topic, each, max(0, since_ms)) for each in partitions_of(reader, topic)]
    try:
        found = reader.offsets_for_times(asked, timeout=10.0)
    except KafkaException as failure:
        raise kafka_error(failure, f"looking for the tail in {topic}") from failure
    return [each for each in found if each.offset >= 0]


def _keys(messages: Sequence[Message], partition: Partition, source: bytes) -> Iterator[str]:
    for message in messages:
        headers: Mapping[str, bytes | None] = dict(cast(RawHeaders, message.headers() or ()))
        key, record_key = headers.get("idempotency-key"), message.key()
        if key is None or not record_key or headers.get("ce_source") != source:
            continue
        if partition_of(record_key, partition.reader.partitions) == partition.number:
            yield key.decode()


def _cause(key: str) -> str:
    """The causing event's part of a readable key; empty for a digest."""
    parts = key.split(":")
    return parts[-2] if parts[0] == "r1" else ""


def explained(clients: Clients, namespace: str, partition: Partition) -> str:
    """The divergence as one text, or why it could not be found."""
    try:
        return str(divergence(clients, namespace, partition))
    except ServerError as away:
        return f"what differs could not be read: {away.what}"


def _named(what: str, names: tuple[str, ...]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what}: {', '.join(names[:SHOWN])}{more}"
