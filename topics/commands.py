"""Executors' way in: the commands of one target, typed, with their idempotency key.

Law of this module: read committed only (an aborted command was never meant), in log order, and
an offset is committed after its command was handled: a crash between the two hands the command
over again under the same key. What cannot be read is raised with its coordinates and never
skipped in silence: the caller decides, then calls `done`. A schema is judged unknown only after
the schema topic was read to its end as of after the command was seen (P27).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import CommandRecord
from refold.schemas.errors import Code, RecordError, ServerError
from refold.topics.clients import executor_consumer_config, opened, reader
from refold.topics.failures import kafka_error
from refold.topics.records import read_command
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings
from refold.topics.specs import commands_topic

POLL_S: Final = 1.0


class Received(msgspec.Struct, frozen=True):
    """One command, decoded, and where it stands."""

    command: Any
    record: CommandRecord
    topic: str
    partition: int

    @property
    def key(self) -> str:
        """Idempotency key: what the other side must deduplicate by."""
        return self.record.key


class CommandConsumer:
    """The commands of one target for one consumer group.

    Args:
        settings: Where Kafka is, and the client's options.
        target: Target of the command types, part of the topic's name.
        types: Command types that this executor knows.
        group: Consumer group; empty: `<namespace>.<target>.executors`.

    Contract: one thread. `done` is called for each command, in the order received.
    """

    def __init__(
        self, settings: Settings, target: str, types: Sequence[type], group: str = ""
    ) -> None:
        self.topic = commands_topic(settings.namespace, target)
        group = group or f"{settings.namespace}.{target}.executors"
        self._codecs: dict[str, Codec[Any]] = {}
        for each in types:
            codec: Codec[Any] = codec_of(each)
            self._codecs[codec.name] = codec
        self._settings = settings
        self._schemas: SchemaTopic | None = None
        self._held: Message | None = None
        """A command that waits for the schema topic: handed over before any later one."""
        self._consumer = opened(Consumer, executor_consumer_config(settings, group))
        self._consumer.subscribe([self.topic])

    def receive(self, timeout_s: float = POLL_S) -> Received | None:
        """The next command, or None when there is none in time.

        Raises:
            RecordError: The record is not a command that this executor knows; `done` passes it.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING.
        """
        message, self._held = self._held or self._consumer.poll(timeout_s), None
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF or error.retriable():
                return None
            raise kafka_error(error, f"reading commands of {self.topic}")
        return self._received(message)

    def done(self, topic: str, partition: int, offset: int) -> None:
        """Commit that everything up to and including this offset is handled.

        Raises:
            ServerError: KAFKA_AWAY or KAFKA_REFUSED; the command may be handed over again.
        """
        try:
            self._consumer.commit(
                offsets=[TopicPartition(topic, partition, offset + 1)], asynchronous=False
            )
        except KafkaException as failure:
            raise kafka_error(failure, f"committing offset {offset + 1} of {topic}") from failure

    def __iter__(self) -> Iterator[Received]:
        """Commands for ever; each is done when the next one is asked for."""
        while True:
            received = self.receive()
            if received is not None:
                yield received
                self.done(received.topic, received.partition, received.record.offset)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
        if self._schemas is not None:
            self._schemas.close()

    def __enter__(self) -> "CommandConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _received(self, message: Message) -> Received:
        record = read_command(message)
        topic, partition = message.topic() or "", message.partition() or 0
        codec = self._codecs.get(record.type)
        if codec is None:
            raise RecordError(
                Code.SCHEMA_UNKNOWN,
                f"this executor does not know commands of type {record.type}.",
                "Give the type to CommandConsumer, or send it to a target of its own.",
                topic=topic,
                partition=partition,
                offset=record.offset,
            )
        try:
            command = self._decoded(codec, record, message)
        except RecordError as error:
            place = {"topic": topic, "partition": partition, "offset": record.offset}
            raise RecordError(
                error.code, error.what, error.cure, **(error.where | place)
            ) from error
        return Received(command, record, topic, partition)

    def _decoded(self, codec: Codec[Any], record: CommandRecord, message: Message) -> Any:
        try:
            return codec.decode(record.value)
        except RecordError as error:
            if error.code != Code.SCHEMA_UNKNOWN:
                raise
        self._learn(codec, message)
        return codec.decode(record.value)

    def _learn(self, codec: Codec[Any], message: Message) -> None:
        try:
            if self._schemas is None:
                self._schemas = SchemaTopic(self._settings.namespace, reader(self._settings))
            self._schemas.refresh()
        except ServerError:
            self._held = message
            raise
        self._schemas.registry.teach(codec)
