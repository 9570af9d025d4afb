"""What Kafka says about one partition: where its log begins and ends, how far the group is.

Law of this module: asks, and judges nothing; every answer has a time, every failure is ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # OffsetSpec is public
    AdminClient,
    OffsetSpec,
)

from refold.processors.digest import committed
from refold.processors.judgement import LogFacts
from refold.schemas.errors import Code, ServerError
from refold.topics.facts import TopicFacts
from refold.topics.failures import words

ANSWER_S = 5.0
"""Longest wait for one answer of the admin client."""
EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def group_offset(
    admin: AdminClient, group: str, partition: TopicPartition
) -> tuple[int | None, str | None]:
    """The group's committed offset and its metadata, waiting for no transaction (P5).

    Raises:
        KafkaException: The broker refuses, or an open transaction still holds the offset.
        TimeoutError: No answer.
    """
    request = ConsumerGroupTopicPartitions(
        group, [TopicPartition(partition.topic, partition.partition)]
    )
    answers = admin.list_consumer_group_offsets([request], require_stable=True)
    found = answers[group].result(ANSWER_S).topic_partitions[0]
    if found.error is not None:
        raise KafkaException(found.error)
    return (None, None) if found.offset < 0 else (found.offset, found.metadata)


@contextmanager
def asking(topic: str, partition: int) -> Iterator[None]:
    """Turn what the admin client raises into an error of ours."""
    try:
        yield
    except (KafkaException, TimeoutError) as failure:
        raise ServerError(
            Code.KAFKA_AWAY,
            f"Kafka did not answer for {topic}[{partition}]: {words(failure)}.",
            "Check that the brokers are reachable; refold goes on trying.",
        ) from failure


def ends(admin: AdminClient, place: TopicPartition) -> tuple[int, int]:
    """First offset of a partition, and the one behind its last record.

    Raises:
        KafkaException: The broker refuses.
        TimeoutError: No answer.
    """
    low = admin.list_offsets({place: EARLIEST})[place].result(ANSWER_S)
    high = admin.list_offsets({place: LATEST})[place].result(ANSWER_S)
    return low.offset, high.offset


def stable_end(admin: AdminClient, place: TopicPartition) -> int:
    """The last stable offset: what is behind it is undecided, or not there (P29).

    Raises:
        ServerError: KAFKA_AWAY.
    """
    with asking(place.topic, place.partition):
        found = admin.list_offsets({place: LATEST}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(found[place].result(ANSWER_S).offset)


def log_facts(admin: AdminClient, group: str, facts: TopicFacts, partition: int) -> LogFacts:
    """What Kafka says about one partition and the group's place in it.

    Raises:
        ServerError: KAFKA_AWAY.
    """
    here = TopicPartition(facts.topic, partition)
    with asking(facts.topic, partition):
        low, high = ends(admin, here)
        offset, metadata = group_offset(admin, group, here)
    return LogFacts(
        topic=facts.topic,
        partition=partition,
        topic_id=facts.topic_id,
        partitions=facts.partitions,
        group=group,
        low=low,
        high=high,
        committed=offset,
        metadata=committed(metadata),
    )
