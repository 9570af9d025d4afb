"""How the truth about an action can be learned, after a call whose outcome nobody knows.

Law of this module: every action declares one of four; none is a default. They decide what may
happen to an unknown outcome, and nothing else does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
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
        remembers_s: For so many seconds after the first call; afterwards it counts as `Neither`.
    """

    remembers_s: float
    mode: Mode = Mode.BY_KEY


@dataclass(frozen=True, slots=True)
class Queryable:
    """The other side can be asked what became of a key.

    Args:
        reconcile: Asks it.
        visible_after_s: Longest time after which it shows what it did: "not done" said earlier
            than that counts as "cannot tell".
    """

    reconcile: Reconcile
    visible_after_s: float
    mode: Mode = Mode.QUERYABLE


@dataclass(frozen=True, slots=True)
class Local:
    """The effect is a write in the executor's own database: it commits with the ledger row."""

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
