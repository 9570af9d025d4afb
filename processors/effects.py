"""The closed set of what a step may decide and want. Data only; `fold` makes it, others act.

Law of this module: no function with an effect, no import that does I/O.
"""

import msgspec

from refold.processors.instance import Instance
from refold.schemas.verdicts import Reason, Verdict


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
    transition: str = ""


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
