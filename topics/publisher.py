"""Upstream's way in: publish one event or many, and know what became of each.

Law of this module: an event is checked and encoded before it is sent, and its id is the
caller's or derived from the caller's key, never drawn at random: a send whose outcome is unknown
can be repeated and counts once. The outcome says exactly what is known. Errors of the caller are
raised before anything is sent; what the broker says is a value.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import derived_id
from refold.schemas.errors import Code, RecordError, ServerError, UsageError
from refold.schemas.framing import to_confluent
from refold.schemas.limits import id_fault
from refold.schemas.types import Command
from refold.schemas.verdicts import Reason
from refold.topics.announcing import announce
from refold.topics.attributes import RESERVED_SOURCE
from refold.topics.clients import opened, publisher_config
from refold.topics.headers import Headers
from refold.topics.partition import prove_partitioner
from refold.topics.records import RESERVED, event_headers
from refold.topics.schema_registry import SchemaRegistry, registry_of
from refold.topics.settings import Settings
from refold.topics.specs import events_topic

DELIVERY_S: Final = 30.0
"""Default time in which an event must be delivered; then its outcome is unknown."""
REPORT_S: Final = 5.0
"""Within this after its time-out the client has reported every record."""
POLL_S: Final = 0.05

_REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
        KafkaError._PURGE_QUEUE,
    }
)
"""Answers after which the record is certainly not on the log."""


class Delivered(msgspec.Struct, frozen=True):
    """The event is on the log, on all replicas in sync."""

    event_id: str
    topic: str
    partition: int
    offset: int


class Refused(msgspec.Struct, frozen=True):
    """The event is certainly not on the log."""

    event_id: str
    reason: Reason


class Unknown(msgspec.Struct, frozen=True):
    """The event may be on the log or not: send it again with the same id."""

    event_id: str
    reason: Reason


Outcome: TypeAlias = Delivered | Refused | Unknown


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event to publish.

    Exactly one of `id` and `key` is given: the event's id, unique for the source, or the
    caller's key (an HTTP Idempotency-Key, a row's id), from which the id is derived with tenant,
    workflow and instance.
    """

    instance: str
    event: Any
    id: str = ""
    key: str = ""
    tenant: str = ""
    """Empty: the publisher's."""
    time: str | None = None
    """RFC 3339: when it happened. Data; the fold's time is the log's."""
    expected_state: str | None = None
    """The event is refused as stale when the instance is not in this state."""
    expected_version: int | None = None
    """Likewise for the instance's version."""
    traceparent: str | None = None


class Parcel(msgspec.Struct, frozen=True):
    """A draft, checked and encoded."""

    event_id: str
    key: bytes
    value: bytes
    headers: Headers


class Packer:
    """Checks drafts of one workflow and encodes them; shared by both publishers.

    Args:
        namespace: First part of the topic names.
        workflow: Whose event topic is written.
        source: CloudEvents source of every event, a URI reference as in `/shop/checkout`.
        tenant: Tenant of drafts that name none; empty: the workflow's own stands.
        registry: Gives the ids of Confluent wire format; None: single-object encoding.

    Raises:
        UsageError: BAD_SETTING, the source is the engine's own.
    """

    def __init__(
        self,
        namespace: str,
        workflow: str,
        source: str,
        tenant: str = "",
        registry: SchemaRegistry | None = None,
    ) -> None:
        prove_partitioner()
        if source.startswith(RESERVED_SOURCE):
            raise UsageError(
                Code.BAD_SETTING,
                f"the source {source!r} is the engine's own.",
                "Name the service that publishes, as in /shop/checkout.",
            )
        self.topic = events_topic(namespace, workflow)
        self._workflow = workflow
        self._source = source
        self._tenant = tenant
        self._registry = registry if registry is not None and registry.writes else None

    def pack(self, draft: Draft) -> Parcel:
        """Check and encode.

        Raises:
            RecordError: BAD_KEY, BAD_ENVELOPE, RESERVED_TYPE or what the codec refuses.
            DefinitionError: The registry refuses the event's schema.
            ServerError: REGISTRY_AWAY or REGISTRY_REFUSED, where an id is not known yet.
        """
        fault = id_fault(draft.instance)
        if fault:
            raise RecordError(Code.BAD_KEY, f"instance id {draft.instance!r} {fault}.")
        if bool(draft.id) == bool(draft.key):
            raise RecordError(
                Code.BAD_ENVELOPE,
                "an event needs an id, or a key to derive it from, and not both.",
                "Give what stays the same when the same fact is sent again.",
            )
        if isinstance(draft.event, Command):
            raise RecordError(
                Code.BAD_ENVELOPE,
                f"{type(draft.event).__name__} is a Command, and an event is wanted.",
                "Publish what has happened as an Event; commands are sent by states.",
            )
        tenant = draft.tenant or self._tenant
        codec: Codec[Any] = codec_of(draft.event.__class__)
        if codec.name.startswith(RESERVED):
            raise RecordError(
                Code.RESERVED_TYPE,
                f"{codec.name} is an event of the engine's own.",
                "Use the command line for those: it says who and why.",
            )
        event_id = draft.id or derived_id(
            "event", tenant, self._workflow, draft.instance, draft.key
        )
        headers = event_headers(
            event_id,
            self._source,
            codec.name,
            tenant,
            time=draft.time,
            expected_state=draft.expected_state,
            expected_version=draft.expected_version,
            traceparent=draft.traceparent,
        )
        value = codec.encode(draft.event)
        if self._registry is not None:
            value = to_confluent(value, self._registry.id_of(codec.text, codec.name))
        return Parcel(event_id, draft.instance.encode(), value, headers)


def outcome_of(event_id: str, error: KafkaError | None, message: Message | None) -> Outcome:
    """What a delivery report says about the event."""
    if error is None and message is not None:
        return Delivered(
            event_id, message.topic() or "", message.partition() or 0, message.offset() or 0
        )
    text = "no delivery report came in time" if error is None else f"{error.name()}: {error.str()}"
    if error is not None and error.code() in _REFUSED:
        return Refused(event_id, Reason(Code.DELIVERY_REFUSED, text))
    return Unknown(event_id, Reason(Code.DELIVERY_UNKNOWN, text))


class Publisher:
    """Publishes events of one workflow, from any thread.

    Args:
        settings: Where Kafka is, and the client's options.
        workflow: Whose event topic is written.
        source: CloudEvents source of every event.
        tenant: Tenant of drafts that name none.
        timeout_s: Time in which an event must be delivered, 0.1 s or more.
    """

    def __init__(
        self,
        settings: Settings,
        workflow: str,
        source: str,
        *,
        tenant: str = "",
        timeout_s: float = DELIVERY_S,
    ) -> None:
        self._settings = settings
        self._workflow = workflow
        registry = registry_of(settings.schemas)
        self._packer = Packer(settings.namespace, workflow, source, tenant, registry)
        self.topic = self._packer.topic
        self._timeout_s = timeout_s
        self._producer = opened(Producer, publisher_config(settings, int(timeout_s * 1000)))

    def announce(self, *types: type) -> list[str]:
        """Put the schemas of event types where readers find them: `refold.topics.announcing`.

        Wanted by a service whose types are newer than what `refold topics create` has seen: an
        event whose schema nobody finds is kept and parks its instance until it is there.

        Raises:
            DefinitionError: SCHEMA_INCOMPATIBLE, older events could not be read; nothing written.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED, TOPIC_MISSING, or the registry's.
        """
        return announce(self._settings, self._workflow, types)

    def send(self, draft: Draft) -> Outcome:
        """Publish one event and wait until its outcome is known, or cannot be.

        Raises:
            RecordError: The draft is wrong; nothing was sent. So with the next two.
            DefinitionError: The schema registry refuses the event's schema.
            ServerError: QUEUE_BACK_PRESSURE, the client's queue stayed full; or REGISTRY_AWAY.
        """
        outcomes: list[Outcome] = []
        parcel = self._packer.pack(draft)
        self._enqueue(parcel, outcomes.append)
        deadline_s = monotonic() + self._timeout_s + REPORT_S
        while not outcomes and monotonic() < deadline_s:
            self._producer.poll(POLL_S)
        return outcomes[0] if outcomes else outcome_of(parcel.event_id, None, None)

    def send_many(self, drafts: Iterable[Draft]) -> Iterator[Outcome]:
        """Publish many; outcomes come as they are known, one for each draft, in no order.

        The client's queue is the only buffer: a full one slows this iterator down.

        Raises:
            RecordError: A draft is wrong: those before it are sent, it and those after it not.
            DefinitionError: Likewise, the schema registry refuses its schema.
            ServerError: QUEUE_BACK_PRESSURE or REGISTRY_AWAY.
        """
        done: deque[tuple[int, Outcome]] = deque()
        waiting: dict[int, str] = {}
        for number, draft in enumerate(drafts):
            parcel = self._packer.pack(draft)
            waiting[number] = parcel.event_id
            self._enqueue(parcel, partial(_note, done, number))
            self._producer.poll(0)
            yield from _drained(done, waiting)
        deadline_s = monotonic() + self._timeout_s + REPORT_S
        while waiting and monotonic() < deadline_s:
            self._producer.poll(POLL_S)
            yield from _drained(done, waiting)
        for event_id in waiting.values():
            yield outcome_of(event_id, None, None)

    def close(self) -> None:
        """Wait for what is under way.

        Raises:
            ServerError: DELIVERY_UNKNOWN, with the number of events whose outcome is unknown.
        """
        left = self._producer.flush(self._timeout_s + REPORT_S)
        if left:
            raise ServerError(
                Code.DELIVERY_UNKNOWN,
                f"{left} events had no outcome when the publisher was closed.",
                "Send them again with the same ids.",
            )

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _enqueue(self, parcel: Parcel, done: Callable[[Outcome], object]) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            done(outcome_of(parcel.event_id, error, message))

        deadline_s = monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    self._packer.topic,
                    parcel.value,
                    parcel.key,
                    headers=parcel.headers,
                    on_delivery=report,
                )
            except BufferError:
                if monotonic() > deadline_s:
                    raise back_pressure(self._timeout_s) from None
                self._producer.poll(POLL_S)
            except KafkaException as failure:
                done(outcome_of(parcel.event_id, failure.args[0], None))
                return
            else:
                return


def back_pressure(waited_s: float) -> ServerError:
    """The client's queue is full and stays full."""
    return ServerError(
        Code.QUEUE_BACK_PRESSURE,
        f"the producer's queue stayed full for {waited_s:.0f} s; the event was not sent.",
        "Kafka is slower than this publisher, or away: send later.",
    )


def _note(done: deque[tuple[int, Outcome]], number: int, outcome: Outcome) -> None:
    done.append((number, outcome))


def _drained(done: deque[tuple[int, Outcome]], waiting: dict[int, str]) -> Iterator[Outcome]:
    while done:
        number, outcome = done.popleft()
        del waiting[number]
        yield outcome
