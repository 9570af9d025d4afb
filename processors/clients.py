"""The seam to Kafka: who makes consumers, producers and the admin client.

Tests wrap these to record the order of calls or to end the process before or after any of them;
nothing else about the worker knows. The objects are confluent-kafka's own.
"""

from typing import Protocol

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from refold.topics.clients import (
    admin_config,
    opened,
    publisher_config,
    reader_config,
    transactional_producer_config,
    worker_consumer_config,
)
from refold.topics.schema_registry import SchemaRegistry, registry_of
from refold.topics.settings import Settings

__all__ = ["Admin", "AdminClient", "Clients", "Consumer", "KafkaClients", "Producer"]


class Clients(Protocol):
    """Makes Kafka clients; each call makes a new one. Knows the schema registry, if any."""

    def consumer(self) -> Consumer:
        """Member of the worker group: read_committed, no auto commit, cooperative-sticky."""
        ...

    def reader(self) -> Consumer:
        """Group-less read_committed consumer that reports the end of a partition."""
        ...

    def producer(self, transactional_id: str) -> Producer:
        """Transactional producer; `init_transactions` is the caller's."""
        ...

    def publisher(self) -> Producer:
        """Idempotent producer without transactions, for schemas."""
        ...

    def admin(self) -> AdminClient:
        """Admin client."""
        ...

    def registry(self) -> SchemaRegistry | None:
        """The schema registry where one is configured, the same at each call."""
        ...


class KafkaClients:
    """Clients as the settings say, every option with its reason in `refold.topics.clients`.

    Args:
        settings: Of this process.
        name: The worker's, by which the group's members are known.
    """

    def __init__(self, settings: Settings, name: str = "refold") -> None:
        self._settings = settings
        self._name = name
        self._registry = registry_of(settings.schemas)

    def consumer(self) -> Consumer:
        """A member of the worker group."""
        return opened(Consumer, worker_consumer_config(self._settings, self._name))

    def reader(self) -> Consumer:
        """A group-less reader."""
        return opened(Consumer, reader_config(self._settings))

    def producer(self, transactional_id: str) -> Producer:
        """A producer under a transactional id; `init_transactions` is the caller's."""
        return opened(Producer, transactional_producer_config(self._settings, transactional_id))

    def publisher(self) -> Producer:
        """A producer without transactions."""
        return opened(Producer, publisher_config(self._settings))

    def admin(self) -> AdminClient:
        """An admin client."""
        return opened(AdminClient, admin_config(self._settings))

    def registry(self) -> SchemaRegistry | None:
        """The schema registry, if there is one."""
        return self._registry


class Admin:
    """The admin client of a process, made anew when it has stopped answering.

    After a broker was killed and restarted, an old admin client of librdkafka 2.16 times out on
    every request for offsets while a new one is answered at once (seen in a run).

    Args:
        clients: Makes the client.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.client = clients.admin()

    def renew(self) -> None:
        """Make a new client; threads that still wait for the old one time out by themselves."""
        self.client = self._clients.admin()
