from decimal import Decimal
from typing import Annotated, Any

import pytest
from confluent_kafka import Producer

from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, DefinitionError, ServerError
from refold.schemas.registry import known_of, to_record
from refold.schemas.shapes import Digits
from refold.schemas.types import Event
from refold.topics.clients import opened, publisher_config, reader
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka


class Paid(Event):
    amount: int


class Shipped(Event):
    to: str


PAID: Codec[Any] = codec_of(Paid)
SHIPPED: Codec[Any] = codec_of(Shipped)


@pytest.fixture
def producer(settings: Settings) -> Producer:
    return opened(Producer, publisher_config(settings))


def topic_of(settings: Settings) -> SchemaTopic:
    return SchemaTopic(settings.namespace, reader(settings))


def test_a_schema_is_published_once_and_found_by_its_fingerprint(
    shop: Settings, producer: Producer
) -> None:
    writing = topic_of(shop)
    assert [each.type for each in writing.publish(producer, [PAID, SHIPPED], "order")] == [
        "Paid",
        "Shipped",
    ]
    assert writing.publish(producer, [PAID], "order") == []
    reading = topic_of(shop)
    found = reading.find(PAID.fingerprint)
    assert found is not None
    assert (found.text, found.workflow, found.sequence) == (PAID.text, "order", 1)
    writing.close()
    reading.close()


def test_an_unknown_fingerprint_is_looked_up_after_the_record_was_seen_b017(
    shop: Settings, producer: Producer
) -> None:
    reading, writing = topic_of(shop), topic_of(shop)
    assert reading.find(PAID.fingerprint) is None
    writing.publish(producer, [PAID], "order")
    assert reading.find(PAID.fingerprint) is not None
    writing.close()
    reading.close()


def produce_schema(producer: Producer, topic: str, text: str, sequence: int) -> None:
    key, headers, value = to_record(known_of(text, "order", sequence))
    producer.produce(topic, value, key, partition=0, headers=list(headers))
    assert producer.flush(10) == 0


def money(scale: int) -> str:
    kind = f'{{"type":"bytes","logicalType":"decimal","precision":4,"scale":{scale}}}'
    return f'{{"type":"record","name":"Fee","fields":[{{"name":"amount","type":{kind}}}]}}'


def test_two_meanings_of_one_fingerprint_are_refused_by_every_reader_b027(
    shop: Settings, producer: Producer
) -> None:
    reading = topic_of(shop)
    for sequence, text in enumerate((money(2), money(3)), 1):
        produce_schema(producer, reading.topic, text, sequence)
    reading.refresh()
    assert [each.code for each in reading.refused] == [Code.SCHEMA_COLLISION]
    known = reading.registry.find(known_of(money(2), "", 1).fingerprint)
    assert known is not None
    assert known.text == money(2)
    reading.close()


class Fee(Event):
    amount: Annotated[Decimal, Digits(4, 3)]


def test_a_colliding_schema_is_not_published_b027(shop: Settings, producer: Producer) -> None:
    writing = topic_of(shop)
    produce_schema(producer, writing.topic, money(2), 1)
    with pytest.raises(DefinitionError) as caught:
        writing.publish(producer, [codec_of(Fee)], "order")
    assert caught.value.code == Code.SCHEMA_COLLISION
    assert len(writing.registry) == 1
    writing.close()


def test_a_record_of_somebody_else_is_listed_and_the_rest_goes_on(
    shop: Settings, producer: Producer
) -> None:
    writing = topic_of(shop)
    producer.produce(writing.topic, b"{}", b"key", partition=0)
    assert producer.flush(10) == 0
    assert [each.type for each in writing.publish(producer, [PAID], "order")] == ["Paid"]
    assert [each.code for each in writing.refused] == [Code.UNDECODABLE]
    writing.close()


def test_a_missing_schema_topic_is_named(settings: Settings, producer: Producer) -> None:
    writing = topic_of(settings)
    with pytest.raises(ServerError) as caught:
        writing.publish(producer, [PAID], "order")
    writing.close()
    assert caught.value.code == Code.TOPIC_MISSING
