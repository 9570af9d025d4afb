"""Rows of the ledger as data.

Law of this module: frozen, no SQL. Times are seconds on the database's clock, which is the only
one that leases are compared with.
"""

from enum import StrEnum

import msgspec


class Status(StrEnum):
    """Life of an action: planned → in_flight → succeeded | failed | unknown, or cancelled."""

    PLANNED = "planned"
    IN_FLIGHT = "in_flight"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A command as the ledger plans it."""

    key: str
    tenant: str
    workflow: str
    instance: str
    state: str
    action: str
    direction: str
    target: str
    target_system: str
    truth: str
    type: str
    request: bytes
    attempt: int
    reply_to: str
    trace: str
    partition: int
    offset: int


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """An action that this worker may call, or ask about, until its lease runs out."""

    key: str
    tenant: str
    workflow: str
    instance: str
    state: str
    action: str
    direction: str
    type: str
    request: bytes
    attempt: int
    epoch: int
    reply_to: str
    trace: str
    since_s: float
    """Seconds since the last call may have been sent; 0 where this is the first."""
    known: Status
    """Status before the claim: planned, or unknown where the other side is to be asked."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended."""

    key: str
    epoch: int
    status: Status
    already: bool = False
    type: str = ""
    value: bytes = b""
    event_id: str = ""
    reason: str = ""
    retry_after_s: float = 0.0


class Result(msgspec.Struct, frozen=True):
    """An event that waits until Kafka has it."""

    id: int
    key: str
    topic: str
    instance: str
    tenant: str
    event_id: str
    type: str
    value: bytes
    trace: str
