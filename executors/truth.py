"""How the truth about an action can be learned, after a call whose outcome nobody knows.

Law of this module: every action declares one of four; none is a default. They decide what may
happen to an unknown outcome, and nothing else does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

from refold.executors.outcome import Answer

Reconcile = Callable[[Any, Any], Answer | Awaitable[Answer]]
"""`reconcile(command, call)`: asks the other side what became of `call.key`; does nothing else."""


class Mode(StrEnum):
    """The truth modes as they stand in the ledger."""

    BY_KEY = "by_key"
    QUERYABLE = "queryable"
    LOCAL = "local"
    NEITHER = "neither"


class Then(StrEnum):
    """What happens to an unknown outcome that nobody can be asked about."""

    STOP = "stop"
    """A person decides (`refold ledger settle`)."""
    REPEAT = "repeat"
    """The call is made again: a second effect is accepted."""
    ASSUME_DONE = "assume_done"
    """It counts as done: a missing effect is accepted."""


@dataclass(frozen=True, slots=True)
class ByKey:
    """The other side does a key once, and answers a repeated one as it did the first time.

    Args:
        remembers_s: It keeps keys for so many seconds; longer after the first call it counts as
            `Neither()`: a person decides.
    """

    remembers_s: float
    mode: Mode = Mode.BY_KEY


@dataclass(frozen=True, slots=True)
class Queryable:
    """The other side can be asked what became of a key.

    Args:
        reconcile: Asks it; says `Done`, `Undone` or `CannotTell`. It may run at the same time
            as the call that it asks about, and more than once.
        visible_after_s: Longest time after the end of a call in which it may not yet show what
            it did: "not done" said earlier than that counts as "cannot tell" (P31).
        poll_s: Of what the other side has only accepted, it is asked each so many seconds, less
            often the longer it takes; None: not before the deadline.
    """

    reconcile: Reconcile
    visible_after_s: float
    poll_s: float | None = None
    mode: Mode = Mode.QUERYABLE


@dataclass(frozen=True, slots=True)
class Local:
    """The effect is a write in the ledger's own database: it commits with the ledger row.

    The handler is an ordinary function and gets a connection as its third argument; what it
    writes there is done exactly once. It must not commit, and must not call anybody outside.
    """

    mode: Mode = Mode.LOCAL


@dataclass(frozen=True, slots=True)
class Neither:
    """Nobody can be asked.

    Args:
        then: What to do about an unknown outcome.
    """

    then: Then = Then.STOP
    mode: Mode = Mode.NEITHER


Truth = ByKey | Queryable | Local | Neither


def fault_of(truth: object, deadline_s: float) -> str:
    """Why a truth mode cannot be kept, as the end of a sentence; empty where it can."""
    if not isinstance(truth, ByKey | Queryable | Local | Neither):
        return "declares no truth mode: one of ByKey, Queryable, Local and Neither is wanted"
    if isinstance(truth, ByKey) and not truth.remembers_s > deadline_s:
        return "is remembered by the other side for less than one call may take"
    if isinstance(truth, Queryable) and not 0 <= truth.visible_after_s < inf:
        return "needs a visible_after_s of 0 s or more"
    if isinstance(truth, Queryable) and truth.poll_s is not None and not 0 < truth.poll_s < inf:
        return "needs a poll_s above 0 s, or none"
    if isinstance(truth, Queryable) and not callable(truth.reconcile):
        return "needs a function that asks the other side"
    return ""


def repeatable(truth: Truth, first_s: float) -> bool:
    """True where an unknown outcome is cleared up by calling again with the same key.

    Args:
        truth: Of the action.
        first_s: Seconds since its first call.
    """
    if isinstance(truth, ByKey):
        return first_s < truth.remembers_s
    return isinstance(truth, Neither) and truth.then is Then.REPEAT
