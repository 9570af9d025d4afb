"""The closed set of what a step may decide and want. Data only; `fold` makes it, others act.

Law of this module: no function with an effect, no import that does I/O.
"""

from enum import StrEnum

import msgspec

from refold.processors.instance import Instance
from refold.schemas.errors import Code


class Verdict(StrEnum):
    """What the fold decided about one record, exactly one each (O3)."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    ALREADY = "already"
    CONFLICT = "conflict"
    REFUSED = "refused"
    LATE = "late"
    DEFERRED = "deferred"
    PARKED = "parked"
    POISON = "poison"


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why a record was not applied: a code with a page, and one sentence."""

    code: Code
    text: str


class Send(msgspec.Struct, frozen=True, gc=False):
    """A command to put on `<ns>.<target>.commands`, encoded, with its idempotency key."""

    target: str
    type: str
    action: str
    key: str
    state: str
    value: bytes
    attempt: int = 1


Effect = Send
"""Timers and cancellations join this union when they come."""


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """What became, by this step, of an earlier record that was deferred or parked."""

    offset: int
    verdict: Verdict
    reason: Reason | None = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one record: what was decided, the new instance record, what is wanted.

    `instance` is the very object that went in when nothing changed, None if there is none.
    """

    verdict: Verdict
    instance: Instance | None
    effects: tuple[Effect, ...] = ()
    reason: Reason | None = None
    transition: str = ""
    """`<from>/<type>/<n>` of the transition that consumed the event, empty if none."""
    resolutions: tuple[Resolution, ...] = ()


class Decision(msgspec.Struct, frozen=True, gc=False):
    """A verdict that stands on the partition's decision log and is obeyed, not asked again."""

    offset: int
    verdict: Verdict
    reason: Reason


class Activate(msgspec.Struct, frozen=True, gc=False):
    """From this offset on, new instances begin with this version of the definition."""

    offset: int
    version: int
    fingerprint: str
    fold_version: int
    tenant: str
    """Default tenant of the topic; empty: a record without a tenant is refused."""
    partitions: int
    """Partition count that f(key) uses from this offset on."""
