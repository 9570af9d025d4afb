"""A namespace of the test's own on a real broker, with the topics of one workflow."""

from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from refold.testing.servers import Kafka
from refold.topics.clients import admin_config, opened, reader
from refold.topics.reading import batches
from refold.topics.settings import Kafka as KafkaSection
from refold.topics.settings import Settings
from refold.topics.specs import create, workflow_specs

PARTITIONS = 3

Read = Callable[[str, int], list[Message]]
Answer = TypeVar("Answer")


class Eventually(Protocol):
    """Asks again until the answer is accepted: a broker learns of changes a moment later."""

    def __call__(self, ask: Callable[[], Answer], accept: Callable[[Answer], bool]) -> Answer:
        """The first accepted answer, or the last one after ten seconds."""
        ...


@pytest.fixture
def eventually() -> Eventually:
    """See `Eventually`."""

    def ask_again(ask: Callable[[], Answer], accept: Callable[[Answer], bool]) -> Answer:
        retry = Retrying(
            retry=retry_if_not_result(accept),
            stop=stop_after_delay(10),
            wait=wait_fixed(0.05),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        return retry(ask)

    return ask_again


@pytest.fixture
def settings(kafka: Kafka, unique: Callable[[str], str]) -> Settings:
    """Settings with a namespace that no other test has."""
    return Settings(namespace=unique("ns"), kafka=KafkaSection(bootstrap=kafka.bootstrap))


@pytest.fixture
def admin(settings: Settings) -> AdminClient:
    """An admin client."""
    return opened(AdminClient, admin_config(settings))


@pytest.fixture
def shop(settings: Settings, admin: AdminClient) -> Settings:
    """The settings, after the topics of the workflow `order` were created."""
    create(admin, workflow_specs(settings.namespace, "order", ["payments"], PARTITIONS))
    return settings


@pytest.fixture
def read_all(settings: Settings) -> Read:
    """Reads every committed record of a partition."""

    def read(topic: str, partition: int) -> list[Message]:
        source: Consumer = reader(settings)
        try:
            source.assign([TopicPartition(topic, partition, 0)])
            return [each for found in batches(source, topic, partition, 0) for each in found]
        finally:
            source.close()

    return read
