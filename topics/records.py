"""Kafka record ↔ envelope: the only place that knows the headers of events and commands.

Law of this module: the CloudEvents Kafka binding in binary mode, with a closed list of headers
of our own. Headers are read once; those that are not ours are ignored (the decision log keeps
them raw). One of our own that is repeated with another value, null, or not UTF-8 refuses the
record: never "last wins". What is wrong becomes a `Fault`, never an exception: a bad record must
not stop its neighbours (O6).

Source: CloudEvents 1.0.2, Kafka Protocol Binding, section 3.2; W3C Trace Context for
`traceparent`.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from confluent_kafka import Message

from refold.schemas.envelope import Answer, CommandRecord, EventRecord, Parent
from refold.schemas.errors import Code, RecordError
from refold.schemas.limits import (
    HEADER_COUNT,
    ID_BYTES,
    KEY_BYTES,
    SOURCE_BYTES,
    id_fault,
    name_fault,
    topic_fault,
    type_fault,
)
from refold.schemas.verdicts import Reason, Verdict
from refold.topics.attributes import (
    NO_EXTRAS,
    REQUIRED,
    RESERVED_SOURCE,
    Refusal,
    attempt_of,
    beside,
    check_own,
    extras_of,
    identifier,
    instance_of,
    missing,
    named,
    reserved,
    shown,
    text_of,
    trace_of,
    valueless,
)
from refold.topics.headers import Headers, RawHeaders, headers_of
from refold.topics.partition import partition_of
from refold.topics.times import Rfc3339

CONTENT_TYPE: Final = b"application/avro"
SPEC_VERSION: Final = b"1.0"
RESERVED: Final = "refold."
"""Event types of the engine's own begin so; their source is `/refold/<role>/<who>`."""
_PLAIN: Final = frozenset((*REQUIRED, "ce_time", "ce_tenant", "content-type"))
_ORDER: Final = (
    "ce_specversion",
    "ce_id",
    "ce_source",
    "ce_type",
    "ce_tenant",
    "content-type",
    "ce_time",
    "traceparent",
    "idempotency-key",
    "ce_attempt",
    "ce_outcome",
)
_PLAIN_COUNT: Final = len(_PLAIN)
_TRACED: Final = _ORDER[: _PLAIN_COUNT + 1]
_ANSWER: Final = _ORDER[:_PLAIN_COUNT] + _ORDER[_PLAIN_COUNT + 1 :]
_USUAL: Final = {len(names): names for names in (_ORDER[:_PLAIN_COUNT], _TRACED, _ANSWER, _ORDER)}
"""What most records carry, by how many headers they have: plain, traced, answers, both."""
_VERSION: Final = ("ce_specversion", SPEC_VERSION)
EVENT_HEADERS: Final = _PLAIN | {
    "ce_subject",
    "ce_expectedstate",
    "ce_expectedversion",
    "traceparent",
    "idempotency-key",
    "ce_attempt",
    "ce_outcome",
    "ce_parentinstance",
    "ce_parentkey",
}
COMMAND_HEADERS: Final = frozenset(
    {
        *REQUIRED,
        "ce_tenant",
        "content-type",
        "ce_time",
        "ce_state",
        "ce_attempt",
        "ce_replyto",
        "idempotency-key",
        "traceparent",
    }
)

_CACHED: Final = 4096
"""Entries of each cache of decoded header values; a full one is emptied, so memory is bounded."""


Pick = Callable[[RawHeaders], tuple[tuple[str, bytes | None], ...]]
"""Puts headers into the order that `read` takes them in."""


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A record that cannot become an event: refused or poison, and why. Keeps no bytes."""

    verdict: Verdict
    reason: Reason


class _Type(NamedTuple):
    """An event type as last decoded, and a digest to be continued with a body."""

    name: str
    reserved: bool
    digest: Callable[[], Any]


class _Source(NamedTuple):
    """A source as last decoded, and a digest to be continued with an event id."""

    name: str
    engine: bool
    digest: Callable[[], Any]


class EventReader:
    """Reads the records of one workflow's event topic.

    Args:
        workflow: Name of the workflow, for messages.
        partitions: Partition count that `f(key)` uses: that of the last `activate` (P22).
        tenant: Tenant of records that name none; empty: such records are refused (P29).

    Contract: one reader belongs to one thread; it keeps caches and nothing of any record.
    """

    def __init__(self, workflow: str, partitions: int, tenant: str = "") -> None:
        self.workflow = workflow
        self.partitions = partitions
        self.tenant = tenant
        self._types: dict[bytes | None, _Type] = {}
        self._sources: dict[bytes | None, _Source] = {}
        self._tenants: dict[bytes | None, str] = {}
        self._picks: dict[int, Pick] = {count: itemgetter(*range(count)) for count in _USUAL}

    def read(self, message: Message, partition: int) -> EventRecord | Fault:
        """The envelope of one record, or why it has none.

        Written flat because it runs for every record: it takes the plain case, whose headers come
        in the order of the last one and whose type, source and tenant were seen before, and
        leaves all others to `judge`, which gives the same.

        Args:
            message: A record of the event topic, without error.
            partition: Partition it was read from; `misplaced` checks it, once an instance.
        """
        pairs = headers_of(message)
        trace: bytes | None = None
        answer: Answer | None = None
        try:
            at_version, at_id, at_source, at_type, at_tenant, at_content, at_time, *rest = (
                self._picks[len(pairs)](pairs)
            )
            if rest:
                trace, answer = beside(rest)
            kind, reserved_type, body_of = self._types[at_type[1]]
            source, engine, identity_of = self._sources[at_source[1]]
            tenant = self._tenants[at_tenant[1]]
            raw_id: Any = at_id[1]
            raw_time: Any = at_time[1]
            key, value = message.key(), message.value()
            instance, event_id, time = key.decode(), raw_id.decode(), raw_time.decode()  # type: ignore[union-attr]  # null is caught
        except (KeyError, ValueError, TypeError, AttributeError, IndexError):
            return self._learn(message, pairs)  # UnicodeDecodeError is a ValueError
        if (
            at_version != _VERSION
            or at_id[0] != "ce_id"
            or at_source[0] != "ce_source"
            or at_type[0] != "ce_type"
            or at_tenant[0] != "ce_tenant"
            or at_content[0] != "content-type"
            or at_time[0] != "ce_time"
            or (reserved_type and not engine)
            or not (key and raw_id and raw_time and value)
            or len(key) > ID_BYTES
            or len(raw_id) > ID_BYTES
            or len(raw_time) > ID_BYTES
            or not (instance.isprintable() and event_id.isprintable() and time.isprintable())
        ):
            return self._learn(message, pairs)
        identity, body = identity_of(), body_of()
        identity.update(raw_id)
        body.update(value)
        return EventRecord(
            tenant, instance, source, event_id, kind, value,
            message.offset() or 0, message.timestamp()[1],
            identity.digest(), body.digest(), time, None, None, trace, answer,
        )  # fmt: skip

    def judge(self, message: Message) -> EventRecord | Fault:
        """The same as `read`, for every case there is."""
        try:
            return self._read(message)
        except Refusal as refusal:
            return Fault(refusal.verdict, refusal.reason)

    def _learn(self, message: Message, pairs: RawHeaders) -> EventRecord | Fault:
        """Judge a record that is not the plain case, and take the order of its headers over."""
        names = [name for name, _ in pairs]
        wanted = _USUAL.get(len(names), ())
        if wanted and sorted(names) == sorted(wanted):
            self._picks[len(names)] = itemgetter(*map(names.index, wanted))
        return self.judge(message)

    def misplaced(self, key: bytes, partition: int) -> Fault | None:
        """The fault of a record that another hash placed; asked when an instance is first seen.

        Args:
            key: Record key, not empty.
            partition: Partition on which the record stands.
        """
        right = partition_of(key, self.partitions)
        if right == partition:
            return None
        text = (
            f"stands on partition {partition} of {self.partitions}, murmur2 puts its key on {right}"
            ": its producer uses another partitioner"
        )
        return Fault(Verdict.REFUSED, Reason(Code.WRONG_PARTITION, text))

    def _read(self, message: Message) -> EventRecord:
        pairs = headers_of(message)
        headers = dict(pairs)
        if len(headers) != len(pairs) or len(pairs) > HEADER_COUNT:
            check_own(pairs, EVENT_HEADERS)
        get = headers.get
        key, value = message.key(), message.value()
        instance = instance_of(key)
        raw_type, raw_source, raw_id = get("ce_type"), get("ce_source"), get("ce_id")
        if not (raw_type and raw_source and raw_id) or get("ce_specversion") != SPEC_VERSION:
            raise missing(headers)
        kind = self._types.get(raw_type) or self._new_type(raw_type)
        source = self._sources.get(raw_source) or self._new_source(raw_source)
        if kind.reserved and not source.engine:
            raise reserved(kind.name, source.name)
        event_id = identifier(raw_id, "ce_id")
        raw_tenant = get("ce_tenant")
        tenant = (raw_tenant and self._tenants.get(raw_tenant)) or self._new_tenant(headers)
        if not value:
            raise valueless(value)
        identity = source.digest()
        identity.update(raw_id)
        body = kind.digest()
        body.update(value)
        extras = (
            extras_of(headers, key, source.name) if not _PLAIN.issuperset(headers) else NO_EXTRAS
        )
        return EventRecord(
            tenant,
            instance,
            source.name,
            event_id,
            kind.name,
            value,
            message.offset() or 0,
            message.timestamp()[1],
            identity.digest(),
            body.digest(),
            identifier(headers["ce_time"], "ce_time") if "ce_time" in headers else None,
            *extras,
        )

    def _new_type(self, raw: bytes) -> _Type:
        name = text_of(raw, "ce_type")
        fault = type_fault(name)
        if fault:
            raise Refusal(Code.BAD_ENVELOPE, f"ce_type {shown(raw)} {fault}")
        seed = blake2b(b"%d:%b" % (len(raw), raw), digest_size=8)
        return _kept(self._types, raw, _Type(name, name.startswith(RESERVED), seed.copy))

    def _new_source(self, raw: bytes) -> _Source:
        name = identifier(raw, "ce_source", SOURCE_BYTES)
        seed = blake2b(b"%d:%b" % (len(raw), raw), digest_size=16)
        return _kept(self._sources, raw, _Source(name, is_engine_source(name), seed.copy))

    def _new_tenant(self, headers: Mapping[str, bytes | None]) -> str:
        if "ce_tenant" in headers:
            raw = headers["ce_tenant"]
            name = text_of(raw, "ce_tenant")
            fault = name_fault(name)
            if fault:
                raise Refusal(Code.BAD_ENVELOPE, f"ce_tenant {shown(raw)} {fault}")
            return _kept(self._tenants, name.encode(), name)
        if self.tenant:
            return self.tenant
        raise Refusal(
            Code.BAD_ENVELOPE, "has no ce_tenant, and the topic declares no default tenant"
        )


class CommandLike(Protocol):
    """What a command needs to go out; `refold.processors.effects.Send` has it."""

    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def attempt(self) -> int: ...  # noqa: D102


class CommandWriter:
    """Writes the headers of one workflow's commands; the value is already encoded.

    Args:
        namespace: First part of every topic name.
        workflow: Who asks; results come back to its event topic.
    """

    def __init__(self, namespace: str, workflow: str) -> None:
        self.workflow = workflow
        self._fixed: Headers = [
            ("ce_specversion", SPEC_VERSION),
            ("ce_source", f"/{namespace}/{workflow}".encode()),
            ("content-type", CONTENT_TYPE),
            ("ce_replyto", f"{namespace}.{workflow}.events".encode()),
        ]
        self._heads: dict[tuple[str, str, str, int], Headers] = {}
        self._time = Rfc3339()

    def headers(self, send: CommandLike, event: EventRecord, fold_ms: int) -> Headers:
        """The closed list of command headers.

        Args:
            send: The command; its key is at most 255 bytes, its attempt 1 or more.
            event: The event that caused it: gives tenant and trace.
            fold_ms: Fold time in milliseconds since the epoch.
        """
        attempt = send.attempt
        which = (send.type, event.tenant, send.state, attempt)
        head = self._heads.get(which) or self._new_head(which)
        key = send.key.encode()
        headers: Headers = [
            *head,
            ("ce_id", key + b"/1" if attempt == 1 else b"%b/%d" % (key, attempt)),
            ("idempotency-key", key),
            ("ce_time", self._time.of(fold_ms)),
        ]
        if event.traceparent is not None:
            headers.append(("traceparent", event.traceparent))
        return headers

    def time_of(self, fold_ms: int) -> str:
        """A fold time as the `ce_time` of what a workflow sends."""
        return self._time.of(fold_ms).decode()

    def _new_head(self, which: tuple[str, str, str, int]) -> Headers:
        kind, tenant, state, attempt = which
        head: Headers = [
            *self._fixed,
            ("ce_type", kind.encode()),
            ("ce_tenant", tenant.encode()),
            ("ce_state", state.encode()),
            ("ce_attempt", b"%d" % attempt),
        ]
        return _kept(self._heads, which, head)


def event_headers(
    event_id: str,
    source: str,
    event_type: str,
    tenant: str,
    *,
    time: str | None = None,
    expected_state: str | None = None,
    expected_version: int | None = None,
    traceparent: str | None = None,
    answer: Answer | None = None,
    parent: Parent | None = None,
) -> Headers:
    """The headers of an event that a publisher sends; the record key is the instance id.

    `answer` names the action that the event answers, and what became of it; `parent` the action
    of another workflow that the event starts or undoes.

    Raises:
        RecordError: BAD_ENVELOPE, a part is over its limit or of a wrong form.
    """
    for name, text, fault in (
        ("id", event_id, id_fault(event_id)),
        ("source", source, id_fault(source, SOURCE_BYTES)),
        ("type", event_type, type_fault(event_type)),
        ("tenant", tenant, name_fault(tenant) if tenant else None),
        ("expected state", expected_state, name_fault(expected_state) if expected_state else None),
    ):
        if fault:
            raise RecordError(Code.BAD_ENVELOPE, f"event {name} {text!r} {fault}.")
    headers: Headers = [
        ("ce_specversion", SPEC_VERSION),
        ("ce_id", event_id.encode()),
        ("ce_source", source.encode()),
        ("ce_type", event_type.encode()),
    ]
    if tenant:  # left out, the workflow's default tenant stands (P29)
        headers.append(("ce_tenant", tenant.encode()))
    headers.append(("content-type", CONTENT_TYPE))
    for name, given in (
        ("ce_time", time),
        ("ce_expectedstate", expected_state),
        ("ce_expectedversion", expected_version),
        ("traceparent", traceparent),
    ):
        if given is not None:
            headers.append((name, str(given).encode()))
    if answer is not None:
        headers += [
            ("idempotency-key", answer.key.encode()),
            ("ce_attempt", b"%d" % answer.attempt),
            ("ce_outcome", answer.outcome.encode()),
        ]
    if parent is not None:
        headers.append(("ce_parentinstance", parent.instance.encode()))
        headers.append(("ce_parentkey", parent.key.encode()))
    return headers


def read_command(message: Message) -> CommandRecord:
    """The envelope of a command, as an executor reads it.

    Raises:
        RecordError: BAD_KEY, BAD_ENVELOPE or UNDECODABLE; the record was not written by refold.
    """
    try:
        return _read_command(message)
    except Refusal as refusal:
        reason = refusal.reason
        raise RecordError(
            reason.code,
            f"a command {reason.text}.",
            "See docs/wire.md for the headers of a command.",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
        ) from None


def _read_command(message: Message) -> CommandRecord:
    pairs = headers_of(message)
    headers = dict(pairs)
    check_own(pairs, COMMAND_HEADERS)
    instance = instance_of(message.key())
    if headers.get("ce_specversion") != SPEC_VERSION:
        raise missing(headers)
    if not (value := message.value()):
        raise valueless(value)
    return CommandRecord(
        tenant=named(headers.get("ce_tenant"), "ce_tenant", name_fault),
        instance=instance,
        workflow=named(headers.get("ce_source"), "ce_source", name_fault, after="/"),
        type=named(headers.get("ce_type"), "ce_type", type_fault),
        key=identifier(headers.get("idempotency-key"), "idempotency-key", KEY_BYTES),
        attempt=attempt_of(headers.get("ce_attempt")),
        state=identifier(headers.get("ce_state"), "ce_state"),
        reply_to=named(headers.get("ce_replyto"), "ce_replyto", topic_fault),
        value=value,
        offset=message.offset() or 0,
        time=text_of(headers.get("ce_time"), "ce_time"),
        traceparent=trace_of(headers),
    )


def is_engine_source(source: str) -> bool:
    """Whether a source has the form `/refold/<role>/<who>`, both parts not empty."""
    role, _, who = source.removeprefix(RESERVED_SOURCE).partition("/")
    return source.startswith(RESERVED_SOURCE) and bool(role) and bool(who)


_Cached = TypeVar("_Cached")
_Raw = TypeVar("_Raw")


def _kept(cache: dict[_Raw, _Cached], raw: _Raw, value: _Cached) -> _Cached:
    if len(cache) >= _CACHED:
        cache.clear()
    cache[raw] = value
    return value
