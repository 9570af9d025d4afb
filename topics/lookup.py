"""Small questions to the cluster: which partitions a topic has, where a partition begins and ends.

Law of this module: one question, one answer within a time, errors in refold's own words.
"""

from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from refold.schemas.errors import Code, ServerError
from refold.topics.failures import kafka_error

ANSWER_S: Final = 10.0


def partitions_of(reader: Consumer, topic: str) -> list[int]:
    """Partition numbers of a topic.

    Raises:
        ServerError: TOPIC_MISSING or KAFKA_AWAY.
    """
    try:
        found = reader.list_topics(topic, timeout=ANSWER_S).topics[topic]
    except KafkaException as failure:
        raise kafka_error(failure, f"looking up {topic}") from failure
    except RuntimeError as failure:  # the client's word for a name that no topic can have
        raise ServerError(
            Code.TOPIC_MISSING, f"No topic can be called {topic[:80]!r}….", "Look at the name."
        ) from failure
    if found.error is not None:
        raise kafka_error(found.error, f"looking up {topic}")
    return sorted(found.partitions)


def names_of(reader: Consumer, namespace: str, kind: str) -> list[str]:
    """Names that stand in `<namespace>.<name>.<kind>`, for all topics of that form.

    Args:
        reader: Any client.
        namespace: First part of the topics' names.
        kind: Their last part: `events`, `rejected` or `commands`.

    Raises:
        ServerError: KAFKA_AWAY.
    """
    try:
        topics = reader.list_topics(timeout=ANSWER_S).topics
    except KafkaException as failure:
        raise kafka_error(failure, "listing topics") from failure
    found = (
        topic.removeprefix(f"{namespace}.").removesuffix(f".{kind}")
        for topic in topics
        if topic.startswith(f"{namespace}.") and topic.endswith(f".{kind}")
    )
    return sorted(name for name in found if name and "." not in name)


def bounds_of(reader: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """First offset that is still there, and the one behind the last record.

    Raises:
        ServerError: TOPIC_MISSING or KAFKA_AWAY.
    """
    try:
        bounds = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)
    except KafkaException as failure:
        raise kafka_error(failure, f"asking for the bounds of {topic}[{partition}]") from failure
    if bounds is None:
        raise ServerError(Code.KAFKA_AWAY, f"no answer about {topic}[{partition}].", "Try again.")
    return bounds
