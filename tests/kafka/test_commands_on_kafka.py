import pytest
from confluent_kafka import Producer

from refold.processors.effects import Send
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, RecordError
from refold.schemas.types import Command
from refold.topics.clients import opened, transactional_producer_config
from refold.topics.commands import CommandConsumer, Received
from refold.topics.records import CommandWriter
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka


class Charge(Command):
    amount: int


class Refund(Command):
    amount: int


EVENT = EventRecord("acme", "order-1", "/s", "e", "Placed", b"v", 0, 5, b"i" * 16, b"b" * 8)


class Engine:
    """Writes commands in transactions, as the worker does."""

    def __init__(self, settings: Settings) -> None:
        self.topic = f"{settings.namespace}.payments.commands"
        config = transactional_producer_config(settings, f"{settings.namespace}-engine")
        self.producer = opened(Producer, config)
        self.producer.init_transactions(10)
        self.writer = CommandWriter(settings.namespace, "order")

    def send(self, command: Command, key: str, *, commit: bool = True) -> None:
        codec = codec_of(type(command))
        send = Send("payments", codec.name, "charge", key, "charging", codec.encode(command))
        self.producer.begin_transaction()
        self.producer.produce(
            self.topic, send.value, b"order-1", headers=self.writer.headers(send, EVENT, 5)
        )
        self.producer.flush(10)
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)(10)


@pytest.fixture
def engine(shop: Settings) -> Engine:
    return Engine(shop)


def next_of(consumer: CommandConsumer) -> Received:
    for _ in range(20):
        received = consumer.receive()
        if received is not None:
            return received
    raise AssertionError("no command came")


def test_commands_are_handed_over_typed_with_their_key(shop: Settings, engine: Engine) -> None:
    engine.send(Charge(7), "r1:a:forward")
    with CommandConsumer(shop, "payments", [Charge]) as consumer:
        received = next_of(consumer)
    assert received.command == Charge(7)
    assert received.key == "r1:a:forward"
    assert (received.record.tenant, received.record.instance) == ("acme", "order-1")
    assert received.record.reply_to == f"{shop.namespace}.order.events"


def test_an_aborted_command_is_never_handed_over(shop: Settings, engine: Engine) -> None:
    engine.send(Charge(1), "r1:aborted:forward", commit=False)
    engine.send(Charge(2), "r1:meant:forward")
    with CommandConsumer(shop, "payments", [Charge]) as consumer:
        assert next_of(consumer).key == "r1:meant:forward"


def test_a_command_that_was_not_done_comes_again_under_its_key_b011(
    shop: Settings, engine: Engine
) -> None:
    for number in range(3):
        engine.send(Charge(number), f"r1:{number}:forward")
    with CommandConsumer(shop, "payments", [Charge]) as consumer:
        first = next_of(consumer)
        consumer.done(first.topic, first.partition, first.record.offset)
        assert next_of(consumer).key == "r1:1:forward"  # and the executor dies
    with CommandConsumer(shop, "payments", [Charge]) as consumer:
        iterator = iter(consumer)
        assert [next(iterator).key for _ in range(2)] == ["r1:1:forward", "r1:2:forward"]


def test_a_command_of_an_unknown_type_is_named_and_the_caller_passes_it(
    shop: Settings, engine: Engine
) -> None:
    engine.send(Refund(1), "r1:other:forward")
    engine.send(Charge(2), "r1:mine:forward")
    with CommandConsumer(shop, "payments", [Charge]) as consumer:
        with pytest.raises(RecordError) as caught:
            next_of(consumer)
        assert caught.value.code == Code.SCHEMA_UNKNOWN
        where = caught.value.where
        consumer.done(str(where["topic"]), int(str(where["partition"])), int(str(where["offset"])))
        assert next_of(consumer).key == "r1:mine:forward"


def test_a_foreign_record_on_the_command_topic_is_named(shop: Settings, engine: Engine) -> None:
    engine.producer.begin_transaction()
    engine.producer.produce(engine.topic, b"hello", b"order-1")
    engine.producer.commit_transaction(10)
    with (
        CommandConsumer(shop, "payments", [Charge]) as consumer,
        pytest.raises(RecordError) as caught,
    ):
        next_of(consumer)
    assert caught.value.code == Code.BAD_ENVELOPE
