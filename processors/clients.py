"""The seam to Kafka: who makes consumers, producers and the admin client.

Tests wrap these to record the order of calls or to end the process before or after any of them;
nothing else about the worker knows. The objects are confluent-kafka's own.
"""

from typing import Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

__all__ = ["AdminClient", "Clients", "Consumer", "KafkaClients", "Producer"]


class Clients(Protocol):
    """Makes Kafka clients; each call makes a new one."""

    def consumer(self) -> Consumer:
        """Member of the worker group: read_committed, no auto commit, cooperative-sticky."""
        ...

    def reader(self) -> Consumer:
        """Group-less read_committed consumer that reports the end of a partition."""
        ...

    def producer(self, transactional_id: str) -> Producer:
        """Transactional producer; `init_transactions` is the caller's."""
        ...

    def admin(self) -> AdminClient:
        """Admin client."""
        ...


class KafkaClients:
    """Clients from three dictionaries of librdkafka options."""

    def __init__(
        self,
        consumer: dict[str, object],
        reader: dict[str, object],
        producer: dict[str, object],
        admin: dict[str, object],
    ) -> None:
        self._consumer = consumer
        self._reader = reader
        self._producer = producer
        self._admin = admin

    def consumer(self) -> Consumer:
        """A member of the worker group."""
        return Consumer(dict(self._consumer))

    def reader(self) -> Consumer:
        """A group-less reader."""
        return Consumer(dict(self._reader))

    def producer(self, transactional_id: str) -> Producer:
        """A producer under a transactional id that nobody used before."""
        return Producer({**self._producer, "transactional.id": transactional_id})

    def admin(self) -> AdminClient:
        """An admin client."""
        return AdminClient(dict(self._admin))
