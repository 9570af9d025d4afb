"""What the log says about an event or a command, apart from its value.

Law of this module: frozen data and its derivations, no Kafka. `refold.topics.records` turns
records into these and back. Names follow CloudEvents 1.0 (github.com/cloudevents/spec).
"""

from enum import StrEnum
from hashlib import blake2b
from typing import Final

import msgspec

WORKFLOW_SOURCE: Final = "/refold/workflow/"
"""Sources of events that one workflow sends to another begin so; its name follows."""


class Outcome(StrEnum):
    """What an answer says about its action."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It certainly was not done by this attempt."""
    UNKNOWN = "unknown"
    """Nobody knows yet whether it was done."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What an executor's event says about the action that it answers (P30)."""

    key: str
    """Idempotency key of the action."""
    attempt: int
    outcome: Outcome


class Parent(msgspec.Struct, frozen=True, gc=False):
    """For whom an instance was started as a part of its work: who gets one answer, when it ends."""

    workflow: str
    instance: str
    """Of that workflow, in the same tenant."""
    key: str
    """Key of the parent's action: forward in the event that starts, compensate in one that asks
    for the undoing."""


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of an event topic, its envelope read and checked, its value still bytes.

    Identity of the instance is (tenant, workflow, instance); the workflow is the topic's.
    """

    tenant: str
    instance: str
    source: str
    id: str
    type: str
    value: bytes
    offset: int
    log_time_ms: int
    """Milliseconds since the epoch, stamped by the broker (`LogAppendTime`)."""
    identity: bytes
    """16 bytes: `event_identity(source, id)`."""
    body: bytes
    """8 bytes: `body_digest(type, value)`."""
    time: str | None = None
    """`ce_time` as sent: data, never the fold's time."""
    expected_state: str | None = None
    expected_version: int | None = None
    traceparent: bytes | None = None
    answer: Answer | None = None
    """The action that it answers; None for an event of anybody else."""
    parent: Parent | None = None
    """Whose action starts this instance, or undoes it; None for all other events."""


class CommandRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of a command topic, its envelope read and checked, its value still bytes."""

    tenant: str
    instance: str
    workflow: str
    """Who asks: the last part of `ce_source`, `/<ns>/<workflow>`."""
    type: str
    key: str
    """Idempotency key: at most one effect each, however often the command arrives."""
    attempt: int
    state: str
    """State whose entry sent the command."""
    reply_to: str
    """Event topic that waits for the result."""
    value: bytes
    offset: int
    time: str
    """Fold time as RFC 3339."""
    traceparent: bytes | None = None


def event_identity(source: str, event_id: str) -> bytes:
    """16 bytes that stand for (source, id) in dedup memory; injective parts, BLAKE2b-128."""
    head = source.encode()
    return blake2b(b"%d:%b%b" % (len(head), head, event_id.encode()), digest_size=16).digest()


def body_digest(event_type: str, value: bytes) -> bytes:
    """8 bytes over type and value: tells a repeated event from another one under its id."""
    head = event_type.encode()
    return blake2b(b"%d:%b%b" % (len(head), head, value), digest_size=8).digest()


def derived_id(kind: str, *parts: str) -> str:
    """`<kind>-` and 32 hex digits of BLAKE2b-128 over the length-prefixed parts, for ever."""
    encoded = [part.encode() for part in parts]
    body = b"".join(b"%d:%b" % (len(part), part) for part in encoded)
    return f"{kind}-{blake2b(body, digest_size=16).hexdigest()}"
