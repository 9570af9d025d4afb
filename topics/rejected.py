"""The decision log: `<ns>.<workflow>.rejected`, whose partition p belongs to p's owner (P13).

Law of this module: a decision keeps the record's own bytes (key, value, headers) so exactly that
a redrive can send them again; null stays null. What refold adds stands in headers that begin
with `refold-`; each header of the record stands behind `original-`: the two can never meet.
Nothing grows: a record that was redriven and failed again gets the same headers with a higher
attempt, and its first coordinates. What would not fit becomes a stub with hash and coordinates;
its bytes are on the event topic.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
from confluent_kafka import Message

from refold.schemas.errors import Code, InvariantViolation, RecordError
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Activate, Decision, Reason, Verdict
from refold.topics.headers import Headers, RawHeaders, headers_of
from refold.topics.specs import EVENT_BYTES, REJECTED_SPARE_BYTES

ORIGINAL: Final = "original-"
REDRIVE: Final = "refold-redrive"
"""Header of a redriven event: `<origin>/<attempt>`, ignored by the fold, taken off again here."""
RECORD_BYTES: Final = EVENT_BYTES + REJECTED_SPARE_BYTES - 4_096
"""Most bytes of key, value and headers together: what is left is framing."""
STUB_KEY_BYTES: Final = 4_096
"""A longer key is no instance id; a stub leaves it out."""

_KIND: Final = "refold-kind"
_HEADER_FRAME: Final = 10
"""Bytes that the record format spends on one header beside name and value (varints)."""


class Coordinates(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands; written as `topic/partition/offset`."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Coordinates":
        """Read `topic/partition/offset`.

        Raises:
            ValueError: It has another form.
        """
        topic, partition, offset = text.split("/")
        return cls(topic, int(partition), int(offset))


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it goes to the client; produced to partition p explicitly."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Original(msgspec.Struct, frozen=True, gc=False):
    """The record that was decided about, as its sender sent it."""

    source: Coordinates
    """Where it was read."""
    origin: Coordinates
    """Where it stood at its first attempt: the identity of a rejected record."""
    attempt: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders
    stub: str | None
    """SHA-256 of the record when its bytes did not fit: fetch them from `source`."""


def encode(message: Message, decision: Decision) -> Record:
    """A decision with the record that it is about.

    Args:
        message: The record, as consumed from the event topic.
        decision: What was decided; its offset is the record's.

    Raises:
        InvariantViolation: The decision is about another offset.
    """
    source = Coordinates(message.topic() or "", message.partition() or 0, message.offset() or 0)
    if source.offset != decision.offset:
        raise InvariantViolation(f"a decision about {decision.offset} with the record {source}")
    headers = headers_of(message)
    origin, attempt, sent = unwrapped(source, headers)
    key, value = message.key(), message.value()
    about: Headers = [
        (_KIND, b"decision"),
        ("refold-verdict", decision.verdict.encode()),
        ("refold-code", decision.reason.code.encode()),
        ("refold-text", bounded_text(decision.reason.text).encode()),
        ("refold-source", str(source).encode()),
        ("refold-origin", str(origin).encode()),
        ("refold-attempt", b"%d" % attempt),
    ]
    whole: Headers = [*about, *((ORIGINAL + name, held) for name, held in sent)]
    if _size(key, value, whole) <= RECORD_BYTES:
        return Record(key, value, whole)
    about.append(("refold-stub", record_hash(key, value, sent).encode()))
    short = key is None or len(key) <= STUB_KEY_BYTES
    return Record(key if short else None, None, about)


def encode_activate(activate: Activate) -> Record:
    """An activation; its key is null, its value JSON."""
    return Record(None, msgspec.json.encode(activate), [(_KIND, b"activate")])


def read(message: Message) -> Decision | Activate:
    """What stands in one record of the decision log.

    Raises:
        RecordError: UNDECODABLE, the record was not written by refold.
    """
    headers = dict(headers_of(message))
    try:
        if headers.get(_KIND) == b"activate":
            return msgspec.json.decode(message.value() or b"", type=Activate)
        return Decision(
            Coordinates.parse(_text(headers, "refold-source")).offset,
            Verdict(_text(headers, "refold-verdict")),
            Reason(Code(_text(headers, "refold-code")), _text(headers, "refold-text")),
        )
    except (ValueError, msgspec.DecodeError) as error:
        raise _foreign(message, error) from error


def original(message: Message) -> Original:
    """The record that a decision is about, byte by byte.

    Raises:
        RecordError: UNDECODABLE, the record is no decision of refold's.
    """
    pairs = headers_of(message)
    headers = dict(pairs)
    try:
        return Original(
            source=Coordinates.parse(_text(headers, "refold-source")),
            origin=Coordinates.parse(_text(headers, "refold-origin")),
            attempt=int(_text(headers, "refold-attempt")),
            key=message.key(),
            value=message.value(),
            headers=[
                (name.removeprefix(ORIGINAL), held)
                for name, held in pairs
                if name.startswith(ORIGINAL)
            ],
            stub=_text(headers, "refold-stub") if "refold-stub" in headers else None,
        )
    except ValueError as error:
        raise _foreign(message, error) from error


def redrive_headers(kept: Original, headers: RawHeaders) -> Headers:
    """The original headers with the one that names the origin and the next attempt."""
    return [*headers, (REDRIVE, f"{kept.origin}/{kept.attempt + 1}".encode())]


def redrive_of(headers: RawHeaders) -> tuple[Coordinates, int] | None:
    """Origin and attempt of a redriven event; None for any other record."""
    for name, held in headers:
        if name == REDRIVE and held is not None:
            try:
                origin, _, attempt = held.decode().rpartition("/")
                return Coordinates.parse(origin), int(attempt)
            except ValueError:  # somebody else's header of that name: an ordinary one
                return None
    return None


def unwrapped(source: Coordinates, headers: RawHeaders) -> tuple[Coordinates, int, RawHeaders]:
    """Origin, attempt and the sender's own headers of a record on the event topic."""
    redriven = redrive_of(headers)
    if redriven is None:
        return source, 1, headers
    origin, attempt = redriven
    return origin, attempt, [pair for pair in headers if pair[0] != REDRIVE]


def record_hash(key: bytes | None, value: bytes | None, headers: RawHeaders) -> str:
    """SHA-256 over every byte of a record, null and empty told apart."""
    digest = sha256()
    for part in (key, value, *(each for name, held in headers for each in (name.encode(), held))):
        digest.update(b"-" if part is None else b"%d:%b" % (len(part), part))
    return digest.hexdigest()


def _size(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, object]]) -> int:
    size = len(key or b"") + len(value or b"")
    for name, held in headers:
        held_bytes = len(held) if isinstance(held, bytes) else 0
        size += len(name.encode()) + held_bytes + _HEADER_FRAME
    return size


def _text(headers: dict[str, bytes | None], name: str) -> str:
    held = headers.get(name)
    if held is None:
        raise ValueError(f"has no header {name}")
    return held.decode()


def _foreign(message: Message, error: Exception) -> RecordError:
    return RecordError(
        Code.UNDECODABLE,
        f"a record of the decision log was not written by refold: {error}.",
        "Find out who else writes to this topic; only workers may (docs/security.md).",
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
    )
