import ast
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.kafka import plain
from tests.kafka.conftest import PARTITIONS, Read

from refold.examples.order.graph import Charge, Charged, OrderPlaced
from refold.processors.effects import Send
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord, derived_id
from refold.topics.clients import (
    opened,
    publisher_config,
    reader,
    transactional_producer_config,
)
from refold.topics.records import CommandWriter, EventReader
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka

KEY = "r1:acme:order:order-1:charging:charge:%2Fshop%1Fe1:forward"


def events(settings: Settings, read_all: Read) -> list[EventRecord]:
    """Every record of the event topic as the worker reads it; a fault fails the test."""
    reading = EventReader("order", PARTITIONS)
    found = []
    for partition in range(PARTITIONS):
        for message in read_all(f"{settings.namespace}.order.events", partition):
            event = reading.read(message, partition)
            assert isinstance(event, EventRecord), event
            assert reading.misplaced(event.instance.encode(), partition) is None
            found.append(event)
    return found


def test_the_plain_service_imports_nothing_of_refold() -> None:
    tree = ast.parse(Path(plain.__file__).read_text())
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    ]
    assert imported
    assert not [name for name in imported if name.startswith("refold")]


def test_events_of_a_plain_producer_are_events_b001(shop: Settings, read_all: Read) -> None:
    service = plain.Service(shop.kafka.bootstrap)
    for number in range(30):
        service.publish(
            f"{shop.namespace}.order.events",
            f"order-{number}",
            "acme",
            f"e{number}",
            "/shop",
            plain.ORDER_PLACED,
            {"items": ["a"], "total": number},
        )
    found = events(shop, read_all)
    assert {event.id for event in found} == {f"e{number}" for number in range(30)}
    decoded = {codec_of(OrderPlaced).decode(event.value) for event in found}
    assert decoded == {OrderPlaced(("a",), number) for number in range(30)}


def test_a_plain_executor_does_each_key_once_and_answers(shop: Settings, read_all: Read) -> None:
    schemas = SchemaTopic(shop.namespace, reader(shop))
    schemas.publish(opened(Producer, publisher_config(shop)), [codec_of(Charge)], "order")
    schemas.close()
    topic = f"{shop.namespace}.payments.commands"
    send_twice_and_once_in_vain(shop, topic)
    service = plain.Service(shop.kafka.bootstrap)
    executor = plain.Executor(service, service.schemas(f"{shop.namespace}.schemas", 1))
    executor.run(topic, 2)
    assert executor.seen == [KEY, KEY]
    assert executor.effects == {KEY: {"amount": 7}}
    answers = events(shop, read_all)
    assert {answer.id for answer in answers} == {derived_id("result", KEY, "succeeded")}
    assert {(answer.tenant, answer.instance) for answer in answers} == {("acme", "order-1")}
    decoded = {codec_of(Charged).decode(answer.value) for answer in answers}
    assert decoded == {Charged("receipt of 7")}


def send_twice_and_once_in_vain(settings: Settings, topic: str) -> None:
    """The engine's side: a command, the same again after a crash, and an aborted one."""
    codec = codec_of(Charge)
    cause = EventRecord("acme", "order-1", "/shop", "e1", "T", b"v", 0, 5, b"", b"")
    writer = CommandWriter(settings.namespace, "order")
    config = transactional_producer_config(settings, f"{settings.namespace}-engine")
    producer = opened(Producer, config)
    producer.init_transactions(10)
    for key, commit in ((KEY, True), (f"{KEY}:aborted", False), (KEY, True)):
        send = Send("payments", codec.name, "charge", key, "charging", codec.encode(Charge(7)))
        producer.begin_transaction()
        headers = writer.headers(send, cause, 5)
        producer.produce(topic, send.value, b"order-1", headers=headers)
        producer.flush(10)
        (producer.commit_transaction if commit else producer.abort_transaction)(10)


def test_a_plain_id_is_the_id_that_the_library_derives() -> None:
    for parts in (("k", "succeeded"), ("k:", "1"), ("ключ", "")):
        assert plain.derived_id("result", *parts) == derived_id("result", *parts)
    assert derived_id("result", "k", "succeeded") == "result-e1b934492ec0ae7dc7c4ebd30e4e2707"
