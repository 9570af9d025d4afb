"""The schema topic `<ns>.schemas`: every schema that was ever written with, found by fingerprint.

Law of this module: compacted, one partition, key = SHA-256 of the full text; a schema that
stands there is never written again, so that the lower of two offsets stays the lower. Two texts
with one fingerprint mean different things: the first one counts, every reader refuses the other
(logical types and scale are not part of an Avro fingerprint). Not knowing a fingerprint is judged
only after the topic was read to its end as of after the record was seen (P27).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from refold.schemas.codec import Codec
from refold.schemas.derive import fingerprint_of, parse_text, sha256_of
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.topics.failures import kafka_error
from refold.topics.reading import batches
from refold.topics.records import RawHeaders
from refold.topics.rejected import Record
from refold.topics.specs import schemas_topic

DELIVERY_S: Final = 30.0


class Published(msgspec.Struct, frozen=True):
    """One schema as it stands on the topic."""

    fingerprint: bytes
    """8 bytes, as in a record's single-object header."""
    text: str
    workflow: str
    """Empty for the engine's own types."""
    type: str
    sequence: int
    """1 for the first schema of a type, counting up: upcasters are named by (type, sequence)."""


def encode_schema(published: Published) -> Record:
    """The record of a schema."""
    return Record(
        sha256_of(published.text),
        published.text.encode(),
        [
            ("fingerprint", published.fingerprint.hex().encode()),
            ("workflow", published.workflow.encode()),
            ("type", published.type.encode()),
            ("sequence", b"%d" % published.sequence),
        ],
    )


def read_schema(message: Message) -> Published:
    """A schema from its record, key and fingerprint checked against the text.

    Raises:
        RecordError: UNDECODABLE, the record was not written by this code or was changed.
    """
    headers = dict(cast(RawHeaders, message.headers() or ()))
    try:
        text = (message.value() or b"").decode()
        found = Published(
            bytes.fromhex((headers.get("fingerprint") or b"").decode()),
            text,
            (headers.get("workflow") or b"").decode(),
            (headers.get("type") or b"").decode(),
            int(headers.get("sequence") or b"0"),
        )
        sound = message.key() == sha256_of(text) and found.fingerprint == fingerprint_of(
            parse_text(text)
        )
    except (ValueError, DefinitionError) as error:
        raise _foreign(message, str(error)) from error
    if not sound:
        raise _foreign(message, "its key or fingerprint does not fit its text")
    return found


class SchemaTopic:
    """All schemas of a namespace, as read so far.

    Args:
        namespace: First part of the topic's name.
        reader: A group-less read_committed consumer with `enable.partition.eof`, this object's.

    Contract: one thread. Records that are damaged or collide are listed in `refused`, and the
    rest goes on.
    """

    def __init__(self, namespace: str, reader: Consumer) -> None:
        self.topic = schemas_topic(namespace)
        self._reader = reader
        self._position = 0
        self._by_fingerprint: dict[bytes, Published] = {}
        self.refused: list[RecordError] = []

    @property
    def known(self) -> Mapping[bytes, Published]:
        """Schemas by fingerprint."""
        return self._by_fingerprint

    def of_type(self, name: str) -> list[Published]:
        """Every schema of a type, oldest first."""
        found = [each for each in self._by_fingerprint.values() if each.type == name]
        return sorted(found, key=lambda each: each.sequence)

    def refresh(self) -> list[Published]:
        """Read on to the end as of now; gives what is new.

        Raises:
            ServerError: KAFKA_AWAY: wait, nothing may be judged unknown meanwhile.
        """
        new: list[Published] = []
        for messages in batches(self._reader, self.topic, 0, self._position):
            for message in messages:
                self._position = (message.offset() or 0) + 1
                published = self._accept(message)
                if published is not None:
                    new.append(published)
        return new

    def find(self, fingerprint: bytes) -> Published | None:
        """The schema of a record that was already seen; None only after reading to the end.

        Raises:
            ServerError: KAFKA_AWAY.
        """
        if fingerprint not in self._by_fingerprint:
            self.refresh()
        return self._by_fingerprint.get(fingerprint)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _accept(self, message: Message) -> Published | None:
        try:
            published = read_schema(message)
        except RecordError as error:
            self.refused.append(error)
            return None
        first = self._by_fingerprint.setdefault(published.fingerprint, published)
        if first is published:
            return published
        if first.text != published.text:
            self.refused.append(collision(first, published))
        return None


def publish(
    topic: SchemaTopic, producer: Producer, codecs: Iterable[Codec[Any]], workflow: str
) -> list[Published]:
    """Put the schemas of a workflow's types on the topic; those that stand there are left.

    Args:
        topic: Read to its end here, before and after.
        producer: Idempotent, not transactional; flushed here.
        codecs: Codecs of event, command and context types. Compatibility with older schemas is
            checked by the caller (`of_type` gives them).
        workflow: Name of the workflow.

    Raises:
        RecordError: SCHEMA_COLLISION, another schema with that fingerprint was there first.
        ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING.
    """
    topic.refresh()
    written = []
    for codec in codecs:
        first = topic.known.get(codec.fingerprint)
        if first is None:
            sequence = len(topic.of_type(codec.name)) + 1
            published = Published(codec.fingerprint, codec.text, workflow, codec.name, sequence)
            _produce(producer, topic.topic, encode_schema(published))
            written.append(published)
        elif first.text != codec.text:
            raise collision(
                first, Published(codec.fingerprint, codec.text, workflow, codec.name, 0)
            )
    if written:
        topic.refresh()
        for published in written:  # somebody may have published at the same moment
            first = topic.known[published.fingerprint]
            if first.text != published.text:
                raise collision(first, published)
    return written


def collision(first: Published, second: Published) -> RecordError:
    """Two schemas with one fingerprint: the first one counts."""
    return RecordError(
        Code.SCHEMA_COLLISION,
        f"the schema of {second.type} has the fingerprint {second.fingerprint.hex()} of the"
        f" schema of {first.type} that stands on the topic, and another text: logical types,"
        " scale, defaults and docs are not part of a fingerprint.",
        "Change a field's name or the type's, as a new schema.",
        type=second.type,
    )


def _produce(producer: Producer, topic: str, record: Record) -> None:
    reports: list[KafkaError | None] = []
    try:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=0,
            headers=record.headers,
            on_delivery=lambda error, _: reports.append(error),
        )
        producer.flush(DELIVERY_S)
    except KafkaException as failure:
        raise kafka_error(failure, f"publishing a schema to {topic}") from failure
    error = reports[0] if reports else KafkaError(KafkaError._TIMED_OUT, "no delivery report")
    if error is not None:
        raise kafka_error(error, f"publishing a schema to {topic}")


def _foreign(message: Message, why: str) -> RecordError:
    return RecordError(
        Code.UNDECODABLE,
        f"a record of the schema topic is not a schema of refold's: {why}.",
        "Find out who writes to this topic (docs/security.md).",
        topic=message.topic(),
        offset=message.offset(),
    )
