"""Rows of the ledger as data.

Law of this module: frozen, no SQL. Times are seconds on the database's clock, which is the only
one that leases are compared with.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from refold.topics.headers import RawHeaders


class Status(StrEnum):
    """Life of an action: planned → in_flight → succeeded | failed | unknown, or cancelled."""

    PLANNED = "planned"
    IN_FLIGHT = "in_flight"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


class Intent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    independent: bool = False
    """It need not wait for earlier commands of its instance."""
    lease_s: float = 0.0
    """Above 0: it is claimed in the same transaction if it may begin now."""


class Place(msgspec.Struct, frozen=True):
    """How far a partition of a command topic is planned."""

    topic: str
    partition: int
    topic_id: str
    position: int
    """The next offset."""


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a command topic that is no command."""

    topic: str
    partition: int
    offset: int
    record_key: bytes | None
    headers: RawHeaders
    value: bytes | None
    code: str
    text: str


class Planned(msgspec.Struct, frozen=True):
    """What became of commands that were planned."""

    claimed: Mapping[str, int]
    """Key → epoch of those that are in flight now, claimed by this."""
    clashes: Sequence[str] = ()
    """Keys that stand with another request: refused, to be shown to a person."""


class Wanted(msgspec.Struct, frozen=True):
    """Rows that may be claimed of one action."""

    type: str
    most: int
    lease_s: float


class Claimed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    known: Status
    """Status before the claim: planned, or unknown where an earlier call may have done it."""
    since_s: float = 0.0
    """Seconds since the last call may have been sent; 0 where this is the first."""
    first_s: float = 0.0
    """Seconds since the first call may have been sent."""
    lost: bool = False
    """The last call's process did not come back."""
    forward_type: str = ""
    """Of an undoing: type of the event that told that its forward action was done."""
    forward_result: bytes | None = None
    """That event, encoded."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a call ended."""

    key: str
    epoch: int
    attempt: int = 1
    status: Status
    outcome: str = ""
    """For the answer's header; empty where nothing is told."""
    already: bool = False
    type: str = ""
    value: bytes = b""
    event_id: str = ""
    reason: str = ""
    retry_after_s: float = 0.0
    """Not called, and not asked about, before that."""
    reference: str = ""
    """The other side's name for what it has accepted."""
    until_s: float = 0.0
    """For what was accepted: seconds after which it counts as unknown."""


class Settled(msgspec.Struct, frozen=True):
    """What of a number of ends counts."""

    keys: frozenset[str]
    """Settled by this; the others had been settled otherwise, and what was said is kept."""
    later: frozenset[str] = frozenset()
    """Of these, whose result must not overtake an earlier one: the relay publishes both."""
    contradictions: Sequence[Ended] = ()
    """Said against what stands: kept with their attempt and on the row, not told (P30)."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What the other side, or a person, says about an action after its call."""

    status: Status
    """SUCCEEDED or FAILED."""
    type: str
    """Of the event that tells the workflow; `json` where it is plain data."""
    value: bytes
    reason: str = ""
    plain: bytes = b"null"
    """The same as JSON: what the next run of a `with` block gets."""


class Heard(StrEnum):
    """What a word did."""

    SETTLED = "settled"
    KEPT = "kept"
    """No row bears this reference yet: it settles the one that comes to bear it."""
    KNOWN = "known"
    """It had been settled so before, or a newer attempt is under way."""
    CONTRADICTS = "contradicts"
    """It had been settled otherwise: kept on the row, and shown."""
    STRANGE = "strange"
    """There is no such key."""


class Result(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that waits until Kafka has it."""

    key: str
    topic: str
    instance: str
    tenant: str
    event_id: str
    type: str
    value: bytes
    attempt: int
    outcome: str
    trace: str


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of a target are unsettled, and for how long."""

    planned: int = 0
    in_flight: int = 0
    unknown: int = 0
    stuck: int = 0
    """In flight or unknown for longer than the limit."""
    contradicted: int = 0
    """Settled rows of which the opposite was said later."""
    oldest_planned_s: float = 0.0
    oldest_unknown_s: float = 0.0
