"""An executor and a worker that were not upgraded together: commands of another schema."""

from typing import ClassVar

import pytest
from confluent_kafka import Producer
from tests.kafka.test_commands_on_kafka import Engine, next_of

from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, RecordError, ServerError
from refold.schemas.types import Command
from refold.topics.clients import opened, publisher_config, reader
from refold.topics.commands import CommandConsumer
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka


class OldPay(Command):
    __avro_name__: ClassVar[str] = "Pay"

    amount: int


class Pay(Command):
    amount: int
    currency: str = "EUR"


def publish(settings: Settings) -> None:
    topic = SchemaTopic(settings.namespace, reader(settings))
    topic.publish(opened(Producer, publisher_config(settings)), [codec_of(OldPay)], "order")
    topic.close()


def test_a_command_of_an_older_schema_is_read_by_the_schema_topic(shop: Settings) -> None:
    engine = Engine(shop)
    publish(shop)
    engine.send(OldPay(amount=7), "r1:a:forward")
    with CommandConsumer(shop, "payments", [Pay]) as consumer:
        assert next_of(consumer).command == Pay(amount=7, currency="EUR")


class Gone(Command):
    amount: int


class OldGone(Command):
    __avro_name__: ClassVar[str] = "Gone"

    total: int


def test_a_command_whose_schema_nobody_published_is_raised_with_its_coordinates(
    shop: Settings,
) -> None:
    engine = Engine(shop)
    engine.send(OldGone(total=7), "r1:a:forward")
    with (
        CommandConsumer(shop, "payments", [Gone]) as consumer,
        pytest.raises(RecordError) as caught,
    ):
        next_of(consumer)
    assert caught.value.code is Code.SCHEMA_UNKNOWN
    where = caught.value.where
    assert (where["topic"], where["offset"]) == (f"{shop.namespace}.payments.commands", 0)


class Kept(Command):
    amount: int


class OldKept(Command):
    __avro_name__: ClassVar[str] = "Kept"

    amount: int
    note: str


def test_a_command_waits_for_a_schema_topic_that_cannot_be_read(
    shop: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(shop)
    topic = SchemaTopic(shop.namespace, reader(shop))
    topic.publish(opened(Producer, publisher_config(shop)), [codec_of(OldKept)], "order")
    topic.close()
    engine.send(OldKept(amount=7, note=""), "r1:a:forward")
    engine.send(Kept(amount=8), "r1:b:forward")
    with CommandConsumer(shop, "payments", [Kept]) as consumer:
        with monkeypatch.context() as patched:
            patched.setattr(SchemaTopic, "refresh", away)
            with pytest.raises(ServerError):
                next_of(consumer)
        received = [next_of(consumer).command, next_of(consumer).command]
    assert received == [Kept(amount=7), Kept(amount=8)]


def away(_: SchemaTopic) -> None:
    raise ServerError(Code.KAFKA_AWAY, "away", "")
