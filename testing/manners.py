"""What a system of the outside may do wrong, how it is declared, and what it may answer.

Law of this module: words and data, which `refold.testing.world` uses; nothing here acts.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

import msgspec

from refold.executors.outcome import Answer, CannotTell, Done, Unavailable, Undone

Keys = Literal["ignore", "repeat", "refuse"]


class Fault(StrEnum):
    """What may go wrong with a call or a question."""

    NONE = "none"
    DECLINE = "decline"
    """The system refuses, for a reason of its business."""
    BUSY = "busy"
    """Nothing is done; another time, it says."""
    UNREACHED = "unreached"
    """The line breaks before anything is done."""
    DROP = "drop"
    """It is done, and the answer never comes."""
    LATE = "late"
    """It is done, and the answer comes late."""
    TWICE = "twice"
    """It is accepted, and answered twice later on."""
    CANNOT_TELL = "cannot_tell"
    """Asked, the system says that it does not know."""
    LIE = "lie"
    """Asked, the system says the opposite of what is true."""


class Manners(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a system behaves. Shares are from 0 to 1, of calls or of questions; times in seconds."""

    keys: Keys = "ignore"
    """What a key that was done before means: nothing; the first answer again; `AlreadyDone`.
    The same key with another request is `KeyReused` in the latter two."""
    forgets_after_s: float | None = None
    """A key is a new one so long after it was done, and who asks hears that it was not done."""
    declines: float = 0.0
    """Share of keys that are refused."""
    declinable: tuple[str, ...] = ()
    """Actions that the share is of; empty: all."""
    busy: float = 0.0
    retry_after_s: float = 0.0
    """What a busy system asks for."""
    unreached: float = 0.0
    drops: float = 0.0
    delay_s: tuple[float, float] = (0.0, 0.0)
    """Least and most time before it is done."""
    late: float = 0.0
    late_s: float = 0.0
    """Time between doing and a late answer."""
    accepts: float = 0.0
    """Share of calls that are only accepted, and answered through `World.answers`."""
    answers_after_s: float = 0.0
    twice: float = 0.0
    """Share of the accepted that are answered twice."""
    visible_after_s: float = 0.0
    """What was done is not shown to who asks before that."""
    cannot_tell: float = 0.0
    lies: float = 0.0


class Reply(msgspec.Struct, frozen=True):
    """A system's answer to a call."""

    reference: str
    """Its own name for what it did, the same whenever it speaks of it."""
    accepted: bool = False
    """Not done yet, as far as it says."""
    repeated: bool = False
    """Done by an earlier call under this key."""


class Said(msgspec.Struct, frozen=True):
    """A system's answer to a question."""

    word: Literal["done", "not_done", "cannot_tell"]
    reference: str = ""

    def answer(self, told: Callable[[str], Any]) -> Answer:
        """The same as what a `reconcile` answers.

        Args:
            told: Makes the event of the system's own name for it; None: that it is done is enough.
        """
        match self.word:
            case "done":
                return Done(told(self.reference))
            case "not_done":
                return Undone()
        return CannotTell()


class Refused(Exception):  # noqa: N818  # an answer, not an error
    """The system refuses, for a reason of its business; nothing was done."""


class AlreadyDone(Exception):  # noqa: N818  # likewise
    """The system has done this key before, and says so in place of its first answer.

    Attributes:
        reference: Of what it did.
    """

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.reference = reference


class KeyReused(Exception):  # noqa: N818  # likewise
    """The key was done before, with another request; nothing was done."""


class Busy(Unavailable):
    """The system is busy; nothing was done. A handler that lets it pass says the right thing."""


class LineDead(ConnectionResetError):  # noqa: N818  # likewise
    """The connection broke: who called cannot know whether it was done."""
