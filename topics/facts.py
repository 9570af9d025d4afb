"""What the cluster says about a topic: its id, its partitions, its settings.

Law of this module: asks, and judges nothing; `refold.topics.preflight` judges.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, without __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from refold.schemas.errors import Code, ServerError
from refold.topics.failures import words

_ABSENT: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})


class TopicFacts(msgspec.Struct, frozen=True):
    """One topic as the cluster describes it."""

    topic: str
    topic_id: str
    partitions: int
    settings: Mapping[str, str]


def topic_facts(admin: AdminClient, topic: str, timeout_s: float) -> TopicFacts:
    """Describe a topic.

    Raises:
        ServerError: TOPIC_MISSING, or KAFKA_AWAY when there is no answer in time.
    """
    try:
        found = admin.describe_topics(TopicCollection([topic]))[topic].result(timeout_s)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = admin.describe_configs([resource])[resource].result(timeout_s)
    except (KafkaException, TimeoutError) as failure:
        raise _failed(topic, failure) from failure
    settings = {name: entry.value for name, entry in entries.items() if entry.value is not None}
    return TopicFacts(topic, str(found.topic_id), len(found.partitions), settings)


def topic_id(admin: AdminClient, topic: str, timeout_s: float) -> str:
    """Id of a topic: another one means another log under the same name.

    Raises:
        ServerError: As `topic_facts`.
    """
    try:
        found = admin.describe_topics(TopicCollection([topic]))[topic].result(timeout_s)
    except (KafkaException, TimeoutError) as failure:
        raise _failed(topic, failure) from failure
    return str(found.topic_id)


def _failed(topic: str, failure: BaseException) -> ServerError:
    error = failure.args[0] if failure.args else None
    if isinstance(error, KafkaError) and error.code() in _ABSENT:
        return ServerError(
            Code.TOPIC_MISSING,
            f"The topic {topic} does not exist.",
            "Create the workflow's topics with `refold topics create`.",
            topic=topic,
        )
    return ServerError(
        Code.KAFKA_AWAY,
        f"Kafka did not describe the topic {topic}: {words(failure)}.",
        "Check that the brokers are reachable and that this client may describe topics.",
        topic=topic,
    )
