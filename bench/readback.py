"""Reads a command topic back and says what stands on it: keys, values, first and last time.

Law of this module: it reads `read_committed`, to the last stable offset, and judges nothing.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


class Commands(NamedTuple):
    """What a run has sent."""

    records: int
    distinct: int
    """Different idempotency keys."""
    keys: str
    """SHA-256 over the sorted keys."""
    values: str
    """SHA-256 over the sorted (key, value)."""
    seconds: float
    """From the first to the last command's time of sending (`CreateTime`)."""


def digest(parts: Iterable[bytes]) -> str:
    """SHA-256 over sorted parts, each on a line of its own."""
    return hashlib.sha256(b"\n".join(sorted(parts))).hexdigest()


def read(bootstrap: str, topic: str) -> Commands:
    """Reads the topic from its beginning to the end that is stable now."""
    keys: list[bytes] = []
    pairs: list[bytes] = []
    first, last = 2**63, 0
    for message in messages(bootstrap, topic):
        key = dict(message.headers())["idempotency-key"]
        keys.append(key)
        pairs.append(key + b"\0" + message.value())
        time = message.timestamp()[1]
        first, last = min(first, time), max(last, time)
    seconds = (last - first) / 1000 if keys else 0.0
    return Commands(len(keys), len(set(keys)), digest(keys), digest(pairs), seconds)


def messages(bootstrap: str, topic: str) -> Iterable[Any]:
    """Yields all committed records of a topic."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench.readback",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = set(reader.list_topics(topic).topics[topic].partitions)
    reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    try:
        while partitions:
            batch: list[Any] = reader.consume(10_000, 0.5)
            for message in batch:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition())
                else:
                    raise RuntimeError(f"reading {topic} back: {error}")
    finally:
        reader.close()
