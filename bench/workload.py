"""Puts a workload on a topic once, as an upstream service with a plain Kafka client would.

Law of this module: no import of refold; what it writes is `bench.limits.wire`'s.
"""

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.limits import wire
from bench.limits.wire import Sent

PARTITIONS = 4
Headers = list[tuple[str, str | bytes | None]]


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


def renew(bootstrap: str, topic: str) -> None:
    """Makes a topic anew and empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=10).topics:
        delete(bootstrap, topic)
    create(bootstrap, topic)


class Writer:
    """Writes events in the product's format, as fast as the client goes."""

    def __init__(self, bootstrap: str, topic: str, linger_ms: int = 20) -> None:
        self._topic = topic
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": linger_ms,
            }
        )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def send(self, event: Sent) -> None:
        """Queues one event; waits while the queue is full."""
        self.put(event.instance, event.value, event_headers(event))

    def put(self, key: str, value: bytes, headers: Headers) -> None:
        """Queues one record; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, headers=headers, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def serve(self) -> None:
        """Takes delivery reports that are there; waits for none."""
        self._producer.poll(0)

    def flush(self) -> None:
        """Waits until all is delivered; raises if anything was not."""
        left = self._producer.flush(60)
        if left or self._failed:
            raise RuntimeError(f"{left} events not delivered, {len(self._failed)} failed")


def event_headers(event: Sent) -> Headers:
    """The seven headers of a CloudEvent in binary mode."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event.id),
        ("ce_source", wire.SOURCE),
        ("ce_type", event.type),
        ("ce_time", wire.time_text(time.time_ns() // 1_000_000)),
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


def write_values(bootstrap: str, topic: str, records: Iterable[tuple[str, bytes]]) -> None:
    """Writes (key, value) records without headers to an existing topic."""
    writer = Writer(bootstrap, topic)
    for key, value in records:
        writer.put(key, value, [])
    writer.flush()
