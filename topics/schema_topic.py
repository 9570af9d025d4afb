"""The schema topic `<ns>.schemas`: every schema that was ever written with, found by fingerprint.

Where a schema registry is in use, its ids stand there too: key `registry-id:<id>`, value the
fingerprint in hex.

Law of this module: compacted, one partition, key = SHA-256 of the full text; what the records
mean is `refold.schemas.registry`'s. A schema that stands there is never written again, so that
log order stays the order of first use. That a fingerprint is not known is judged only after the
topic was read to its end as of after the record was seen (P27).
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from msgspec.structs import replace

from refold.schemas.codec import Codec
from refold.schemas.errors import RecordError
from refold.schemas.framing import CONFLUENT_HEAD_BYTES, HEAD_BYTES, confluent_id, fingerprint_in
from refold.schemas.registry import (
    Headers,
    Known,
    Registry,
    from_number_record,
    from_record,
    known_of,
    to_number_record,
    to_record,
)
from refold.topics.failures import kafka_error
from refold.topics.headers import Headers as RecordHeaders
from refold.topics.headers import headers_of
from refold.topics.lookup import partitions_of
from refold.topics.reading import batches
from refold.topics.specs import schemas_topic

DELIVERY_S: Final = 30.0


class SchemaTopic:
    """All schemas of a namespace, as read so far.

    Args:
        namespace: First part of the topic's name.
        reader: A group-less read_committed consumer with `enable.partition.eof`, this object's.

    Attributes:
        registry: The schemas that count.
        refused: Records that are damaged or collide with an earlier one; the rest goes on.

    Contract: one thread.
    """

    def __init__(self, namespace: str, reader: Consumer) -> None:
        self.topic = schemas_topic(namespace)
        self.registry = Registry()
        self.refused: list[RecordError] = []
        self._reader = reader
        self._position = 0

    def refresh(self, silent_s: float | None = None) -> list[Known]:
        """Read on to the end as of now; gives what is new.

        Args:
            silent_s: Seconds of silence that mean that Kafka is away, as for `batches`.

        Raises:
            ServerError: KAFKA_AWAY: wait, nothing may be judged unknown meanwhile; TOPIC_MISSING.
        """
        if self._position == 0:  # an assigned topic that is not there would only be silent
            partitions_of(self._reader, self.topic)
        new: list[Known] = []
        for messages in batches(self._reader, self.topic, 0, self._position, silent_s=silent_s):
            for message in messages:
                self._position = (message.offset() or 0) + 1
                try:
                    new.append(self._accept(message))
                except RecordError as error:
                    self.refused.append(error)
        return new

    def find(self, fingerprint: bytes) -> Known | None:
        """The schema of a record that was already seen; None only after reading to the end.

        Raises:
            ServerError: KAFKA_AWAY.
        """
        known = self.registry.find(fingerprint)
        if known is None:
            self.refresh()
            known = self.registry.find(fingerprint)
        return known

    def written_with(self, value: bytes) -> tuple[Known | None, int]:
        """The schema that wrote a value, in either framing, and where its body begins.

        Raises:
            RecordError: UNDECODABLE, it has neither framing.
            ServerError: KAFKA_AWAY.
        """
        if value[:1] != b"\x00":
            return self.find(fingerprint_in(value)), HEAD_BYTES
        number = confluent_id(value)
        if number not in self.registry.numbers:
            self.refresh()
        fingerprint = self.registry.numbers.get(number)
        return (None if fingerprint is None else self.find(fingerprint)), CONFLUENT_HEAD_BYTES

    def publish(
        self, producer: Producer, codecs: Iterable[Codec[Any]], workflow: str
    ) -> list[Known]:
        """Put the schemas of a workflow's types on the topic; those that stand there are left.

        Args:
            producer: Idempotent, not transactional; flushed here.
            codecs: Codecs of event, command and context types.
            workflow: Name of the workflow.

        Raises:
            DefinitionError: SCHEMA_COLLISION or SCHEMA_INCOMPATIBLE; nothing of it was written.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING.
        """
        self.refresh()
        several = list(codecs)
        new = self._new(several, workflow)
        for known in new:
            _produce(producer, self.topic, to_record(known))
        if new:
            self.refresh()
            self._new(several, workflow)  # somebody may have published at the same moment
        return new

    def adopt(self, producer: Producer, text: str, workflow: str, number: int) -> Known:
        """Put a schema of a schema registry on the topic, and what its id stands for.

        Where it is not there yet it is read, not written with: it need not read what older ones
        wrote. From then on its sequence and its id are part of the log, whatever becomes of the
        registry.

        Args:
            producer: As for `publish`.
            text: The schema behind the id.
            workflow: Whose records carry it.
            number: The registry's id.

        Raises:
            DefinitionError: SCHEMA_INVALID.
            RecordError: SCHEMA_COLLISION, the fingerprint or the id stands for another schema.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING.
        """
        self.refresh()
        wanted = known_of(text, workflow, 0)
        older = self.registry.of_type(wanted.type)
        last = max((each.sequence for each in older), default=0)
        wanted = replace(wanted, sequence=last + 1)
        if self.registry.find(wanted.fingerprint) is None:
            _produce(producer, self.topic, to_record(wanted))
            self.refresh()
        known = self.registry.add(wanted)
        if number not in self.registry.numbers:
            _produce(producer, self.topic, to_number_record(number, known.fingerprint))
            self.refresh()
        return self.registry.add_number(number, known.fingerprint)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _new(self, codecs: Iterable[Codec[Any]], workflow: str) -> list[Known]:
        """Those that do not stand yet, each judged with those before it already there."""
        trial, new = Registry(self.registry), []
        for codec in codecs:
            known = trial.propose(codec.text, workflow, codec.upcasts)
            if trial.find(known.fingerprint) is None:
                new.append(trial.add(known))
        return new

    def _accept(self, message: Message) -> Known:
        pairs = headers_of(message)
        headers = {name: value for name, value in pairs if value is not None}
        key, value = message.key(), message.value()
        number = from_number_record(key, value)
        if number is not None:
            return self.registry.add_number(*number)
        return self.registry.add(from_record(key, headers, value))


def _produce(producer: Producer, topic: str, record: tuple[bytes, Headers, bytes]) -> None:
    key, headers, value = record
    reports: list[KafkaError | None] = []
    try:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            headers=cast(RecordHeaders, headers),
            on_delivery=lambda error, _: reports.append(error),
        )
        producer.flush(DELIVERY_S)
    except KafkaException as failure:
        raise kafka_error(failure, f"publishing a schema to {topic}") from failure
    error = reports[0] if reports else KafkaError(KafkaError._TIMED_OUT, "no delivery report")
    if error is not None:
        raise kafka_error(error, f"publishing a schema to {topic}")
