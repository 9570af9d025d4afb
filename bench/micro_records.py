"""What the envelope of one event and the headers of one command cost, in microseconds.

Run: python bench/micro_records.py [--bootstrap HOST:PORT]
With a broker, records are consumed, so that `message.headers()` is paid for as in the worker;
without one, they are built in memory and that cost is missing.
"""

import argparse
import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from refold.processors.effects import Send
from refold.schemas.envelope import EventRecord
from refold.topics.headers import Headers
from refold.topics.records import CommandWriter, EventReader, event_headers

RECORDS = 20_000
TOPIC = "refold.micro-records"


def headers_of(number: int, trace: bool) -> Headers:
    return event_headers(
        f"evt-{number:08d}",
        "/shop/orders",
        "OrderPlaced",
        "acme",
        time="2026-11-29T12:00:00.000Z",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" if trace else None,
    )


def built(trace: bool) -> list[Message]:
    return [
        Message(
            topic=TOPIC,
            partition=0,
            offset=n,
            key=b"order-%d" % n,
            value=b"\xc3\x01" + b"x" * 60,
            headers=headers_of(n, trace),
            timestamp=(2, 1_700_000_000_000 + n // 50),
        )
        for n in range(RECORDS)
    ]


def consumed(bootstrap: str, trace: bool) -> list[Message]:
    topic = f"{TOPIC}-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for n in range(RECORDS):
        producer.produce(
            topic, b"\xc3\x01" + b"x" * 60, b"order-%d" % n, headers=headers_of(n, trace)
        )
    producer.flush()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    while len(messages) < RECORDS:
        messages += consumer.consume(5000, 1.0)
    consumer.close()
    admin.delete_topics([topic])[topic].result()
    return messages


def timed(name: str, messages: Sequence[Message], act: Callable[[Message], object]) -> None:
    begin = time.perf_counter()
    for message in messages:
        act(message)
    spent = time.perf_counter() - begin
    print(f"{name:48s} {spent / len(messages) * 1e6:6.2f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap")
    bootstrap = parser.parse_args().bootstrap
    for trace in (False, True):
        for _ in range(3):
            messages = consumed(bootstrap, trace) if bootstrap else built(trace)
            reader = EventReader("order", 1)
            timed(f"read an event, trace={trace}", messages, lambda m, r=reader: r.read(m, 0))  # type: ignore[misc]
        writer = CommandWriter("refold", "order")
        send = Send(
            "payments", "Charge", "charge", "r1:acme:order:order-1:charging", "charging", b""
        )
        events = [EventReader("order", 1).read(m, 0) for m in messages[:1]]
        event = events[0]
        assert isinstance(event, EventRecord)
        timed(
            f"headers of a command, trace={trace}",
            messages,
            lambda _, w=writer, e=event, s=send: w.headers(s, e, 1_700_000_000_000),  # type: ignore[misc]
        )
    timed("headers() once more", messages, lambda m: m.headers())
    timed("is it misplaced?", messages, lambda m: EventReader("o", 12).misplaced(b"order-1001", 6))


if __name__ == "__main__":
    main()
