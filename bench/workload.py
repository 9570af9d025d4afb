"""Puts a workload on a topic once, as an upstream service with a plain Kafka client would.

Law of this module: no import of refold; what it writes is `bench.limits.wire`'s.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.limits import wire
from bench.limits.wire import Sent

PARTITIONS = 4


def create(bootstrap: str, *topics: str, partitions: int = PARTITIONS) -> None:
    """Creates topics as refold's specifications would; raises if the broker refuses one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
    wanted = [NewTopic(name, partitions, 1, config=config) for name in topics]
    for future in admin.create_topics(wanted).values():
        future.result(30)


def delete(bootstrap: str, *topics: str) -> None:
    """Deletes topics of a finished run, so that the disk holds one run at a time."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)


class Writer:
    """Writes events in the product's format, as fast as the client goes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 20,
            }
        )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def send(self, event: Sent) -> None:
        """Queues one event; waits while the queue is full."""
        headers = event_headers(event)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    event.value,
                    event.instance,
                    headers=headers,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def flush(self) -> None:
        """Waits until all is delivered; raises if anything was not."""
        left = self._producer.flush(60)
        if left or self._failed:
            raise RuntimeError(f"{left} events not delivered, {len(self._failed)} failed")


def event_headers(event: Sent) -> list[tuple[str, str | bytes | None]]:
    """The seven headers of a CloudEvent in binary mode."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event.id),
        ("ce_source", wire.SOURCE),
        ("ce_type", event.type),
        ("ce_time", datetime.now(UTC).isoformat(timespec="milliseconds")),
        ("ce_tenant", wire.TENANT),
        ("content-type", wire.CONTENT_TYPE),
    ]


def write(bootstrap: str, topic: str, events: Iterable[Sent]) -> int:
    """Writes all events to an existing topic and says how many there were."""
    writer = Writer(bootstrap, topic)
    count = 0
    for count, event in enumerate(events, 1):  # noqa: B007 - the last count is the answer
        writer.send(event)
    writer.flush()
    return count
