"""Emission: where the effects of a live fold become records of the open transaction.

Law of this module: produces, and nothing else; record by record, in the order of the fold. A
full queue is waited for, a record that the client calls too large is named, so that its
instance is parked instead of blocking its neighbours.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from refold.processors.effects import Effect, Publish, Step
from refold.processors.publishing import source_of
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.verdicts import Activate, Decision, Reason, Verdict
from refold.topics.headers import Headers
from refold.topics.records import CommandWriter, event_headers
from refold.topics.rejected import Record, encode, encode_activate
from refold.topics.specs import events_topic

QUEUE_WAIT_S: Final = 0.05
Frame = Callable[[bytes], bytes]


class TooLarge(Exception):  # noqa: N818
    """The client refuses a record of this fold for its size; the decision parks its instance."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason.text)
        self.decision = decision


class Emission:
    """Emitter of one partition's live fold.

    Args:
        producer: In an open transaction.
        namespace: Prefix of every topic.
        writer: Headers of this workflow's commands; knows its name.
        events: The workflow's event topic; likewise its decision log.
        rejected: Topic of the decision log.
        partition: Number of the partition, of events and decisions.
        decided: Called with each offset that a decision got on the decision log.
        frame: Puts a command's value into the framing of the settings; None: as the fold made it.
    """

    def __init__(
        self,
        producer: Producer,
        namespace: str,
        writer: CommandWriter,
        events: str,
        rejected: str,
        partition: int,
        decided: Callable[[int], None],
        frame: Frame | None = None,
    ) -> None:
        self._produce = producer.produce
        self._poll = producer.poll
        self._headers = writer.headers
        self._time_of = writer.time_of
        self._events = events
        self._rejected = rejected
        self._partition = partition
        self._decided = decided
        self._frame = frame
        self._source = source_of(writer.workflow)
        self._topics: dict[str, str] = {}
        self._namespace = namespace

    def send(self, event: EventRecord, step: Step) -> None:
        """Put the step's commands, and events for other workflows, on their topics.

        Raises:
            TooLarge: The client refuses one for its size.
            KafkaException: The producer is finished.
        """
        after = step.instance
        fold_ms = after.fold_ms if after is not None else event.log_time_ms
        key = event.instance.encode()
        for send in step.effects:
            if isinstance(send, Publish):
                self._publish(event, send, fold_ms)
                continue
            topic = self._topics.get(send.target)
            if topic is None:
                topic = self._topics[send.target] = f"{self._namespace}.{send.target}.commands"
            headers = self._headers(send, event, fold_ms)
            value = send.value if self._frame is None else self._frame(send.value)
            self._put_sized(event, send, topic, value, key, headers)

    def _publish(self, event: EventRecord, publish: Publish, fold_ms: int) -> None:
        topic = events_topic(self._namespace, publish.workflow)
        trace = None if event.traceparent is None else event.traceparent.decode()
        handed_on = publish.answer is None and publish.parent is None
        headers = event_headers(
            publish.id,
            self._source,
            publish.type,
            event.tenant,
            time=publish.time or (None if handed_on else self._time_of(fold_ms)),
            traceparent=trace,
            answer=publish.answer,
            parent=publish.parent,
        )
        key = publish.instance.encode()
        self._put_sized(event, publish, topic, publish.value, key, headers)

    def _put_sized(
        self,
        event: EventRecord,
        effect: Effect,
        topic: str,
        value: bytes,
        key: bytes,
        headers: Headers,
    ) -> None:
        while True:
            try:
                self._produce(topic, value, key, headers=headers)
            except BufferError:
                self._poll(QUEUE_WAIT_S)
            except KafkaException as failure:
                raise _sized(failure, event.offset, effect.type, len(value)) from failure
            else:
                break

    def ring(
        self, instance: str, value: bytes, headers: Headers, delivered: Callable[[int], None]
    ) -> None:
        """Put a timer's event on this partition of the event topic.

        Args:
            instance: Record key.
            value: The encoded event.
            headers: Its envelope.
            delivered: Called with its offset.
        """

        def told(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                delivered(offset)

        self._enqueue(self._events, Record(instance.encode(), value, headers), told)

    def decide(self, message: Message, decision: Decision) -> None:
        """Put a decision with the record's bytes on the partition's decision log."""
        self._put(encode(message, decision))

    def activate(self, activation: Activate) -> None:
        """Put an activation on the partition's decision log."""
        self._put(encode_activate(activation))

    def _put(self, record: Record) -> None:
        self._enqueue(self._rejected, record, self._delivered)

    def _enqueue(
        self, topic: str, record: Record, told: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while True:
            try:
                self._produce(
                    topic,
                    record.value,
                    record.key,
                    self._partition,
                    headers=record.headers,
                    on_delivery=told,
                )
            except BufferError:
                self._poll(QUEUE_WAIT_S)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self._decided(offset)


def _sized(failure: KafkaException, offset: int, kind: str, size: int) -> Exception:
    if failure.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return failure
    text = f"the record of {kind} has {size} bytes, more than the client may send"
    return TooLarge(Decision(offset, Verdict.PARKED, Reason(Code.COMMAND_TOO_LARGE, text)))
