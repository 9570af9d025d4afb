"""What a handler may say about its call, and what the other side may say about a key.

Law of this module: data. Returning an event means that the other side did it; only `Declined` and
`NotDone` say that it did not; everything else that can happen to a call means unknown.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and this event says so.

    Args:
        event: Goes to the workflow.
        already: The other side had done it before.
    """

    event: Any
    already: bool = False


class Declined(Exception):  # noqa: N818  # an answer of the other side
    """The other side refused for good: no repetition under this attempt cures it.

    Args:
        event: Goes to the workflow.
        reason: For people.
    """

    def __init__(self, event: Any, reason: str = "") -> None:
        super().__init__(reason or type(event).__name__)
        self.event = event
        self.reason = reason


class NotDone(Exception):  # noqa: N818  # an answer of the other side
    """Certainly nothing happened, and a later call may do it: overload, a closed door, no line.

    Args:
        reason: For people.
        retry_after_s: No call before that, as the other side asks (RFC 9110, Retry-After).
    """

    def __init__(self, reason: str, retry_after_s: float = 1.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Undone:
    """The other side's word that it has not done it."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The other side does not know, or could not be asked."""

    reason: str = ""


Answer = Done | Undone | CannotTell
