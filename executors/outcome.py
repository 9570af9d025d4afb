"""What a handler may say about its call, and what the other side may say about a key.

Law of this module: data. Returning an event means that the other side did it; only the classes
here say that it did not; everything else that can happen to a call means unknown.

    Done(event)                  it is done                            succeeded
    Accepted(reference)          taken, and answered later             in flight until then
    raise Declined(event)        refused, as the graph expects         failed, with that event
    raise Incurable(code)        no repetition can cure it             failed, not tried again
    raise NotDone(reason)        certainly nothing happened            failed, tried again
    raise Unavailable(reason)    likewise: the other side is down      … and counts for its circuit
    raise Unauthorized(reason)   likewise: we are not let in           planned, the action pauses
    anything else                time-out, lost line, a bug            unknown
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time
from typing import Any, Final, NoReturn

from refold.schemas.limits import bounded_text

REFERENCE_BYTES: Final = 1024
"""What an index of the ledger holds."""
CODE_BYTES: Final = 128
LONGEST_S: Final = 315_360_000.0
"""Ten years: what is longer is a mistake."""


def said(value: object) -> str:
    """Any value as text, whatever it is: for reasons, which must never be what fails."""
    try:
        return value if isinstance(value, str) else str(value)
    except Exception as error:
        return f"a {type(value).__name__} whose text cannot be made: {type(error).__name__}"


def shown(value: object) -> str:
    """Any value as programmers see it, likewise."""
    try:
        return repr(value)
    except Exception:
        return said(value)


def reference_fault(reference: object) -> str:
    """Why something cannot be the other side's name for an action; empty where it can."""
    if not isinstance(reference, str):
        return f"is a {type(reference).__name__}, and text is wanted"
    size = len(reference.encode(errors="backslashreplace"))
    return "" if 0 < size <= REFERENCE_BYTES else f"has {size} bytes, of 1 to {REFERENCE_BYTES:,}"


def _seconds(value: object) -> float:
    """A time to wait; none where it is no such thing."""
    if not isinstance(value, int | float) or not isfinite(value):
        return 0.0
    return min(max(float(value), 0.0), LONGEST_S)


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and this event says so.

    Args:
        event: Goes to the workflow; None: the workflow is told that it is done, and no more.
        already: The other side had done it before.
    """

    event: Any = None
    already: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The other side has taken it and answers later: through `Ledger.answer`, or when asked.

    It is asked before the deadline where its truth declares `poll_s`.

    Args:
        reference: The other side's name for it; what its answer will bear.
        deadline_s: Seconds after which it is unknown: its truth is learned as declared.
    """

    reference: str
    deadline_s: float

    def __post_init__(self) -> None:
        """What cannot be kept is said at once: the call's outcome is unknown then.

        Raises:
            ValueError: The reference is no text of 1 to 1,024 bytes; the deadline no number of
                seconds above 0 and of ten years at most.
        """
        fault = reference_fault(self.reference)
        if fault:
            raise ValueError(f"accepted, and its reference {fault}")
        if not isinstance(self.deadline_s, int | float) or not 0 < self.deadline_s <= LONGEST_S:
            raise ValueError(f"accepted, with the deadline {self.deadline_s!r:.40}")
        object.__setattr__(self, "deadline_s", float(self.deadline_s))


class Ending(Exception):  # noqa: N818  # answers, not errors
    """A call that ended without an effect, by the other side's word or before it was sent.

    Whatever its parts are, they are made fit: that nothing happened must not be lost.
    """

    code = "NOT_DONE"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = said(reason)


class Declined(Ending):
    """The other side refused, in a way that the graph knows: it moves by this event.

    Args:
        event: Goes to the workflow.
        reason: For people.
    """

    code = "DECLINED"

    def __init__(self, event: Any, reason: str = "") -> None:
        super().__init__(reason or type(event).__name__)
        self.event = event


class Incurable(Ending):
    """Certainly nothing happened, and no other attempt will change that: a wrong argument.

    Args:
        code: Class of the failure, for the graph's `Retry.never` and for people.
        reason: For people.
    """

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(reason)
        self.code = bounded_text(said(code), CODE_BYTES)


class NotDone(Ending):
    """Certainly nothing happened, and a later attempt may do it.

    Args:
        reason: For people.
        retry_after_s: No attempt before that, as the other side asks (RFC 9110, Retry-After).
        code: Class of the failure, for the graph's `Retry.never` and for people.
    """

    def __init__(self, reason: str, retry_after_s: float = 0.0, *, code: str = "NOT_DONE") -> None:
        super().__init__(reason)
        self.retry_after_s = _seconds(retry_after_s)
        self.code = bounded_text(said(code), CODE_BYTES)


class Unavailable(NotDone):
    """Certainly nothing happened: the other side is down, or refuses everybody for a while."""

    def __init__(
        self, reason: str, retry_after_s: float = 0.0, *, code: str = "UNAVAILABLE"
    ) -> None:
        super().__init__(reason, retry_after_s, code=code)


class TooLate(NotDone):
    """The time of the call was over before it was sent: the row waits for another claim."""


class Unauthorized(Ending):
    """We are not let in: the action pauses and a person is called; no attempt is used up."""

    code = "UNAUTHORIZED"


@dataclass(frozen=True, slots=True)
class Undone:
    """The other side's word that it has not done it."""


@dataclass(frozen=True, slots=True)
class CannotTell:
    """The other side does not know, or could not be asked."""

    reason: str = ""


Answer = Done | Undone | CannotTell

_PAUSES: Final = frozenset({401, 403, 407})
_DOWN: Final = frozenset({503})
_LATER: Final = frozenset({425, 429})
RETRY_MOST_S: Final = 86_400.0
"""A longer Retry-After is a mistake of the other side's."""


class AnswerLostError(Exception):
    """The other side, or something before it, failed in the middle: nobody knows what it did."""


def refused(status: int, reason: str = "", retry_after: str | None = None) -> NoReturn:
    """Raise what an HTTP status says about a call; for statuses of 300 and more.

    401, 403, 407 pause the action; 425, 429 ask for a later attempt; 503 says that the other side
    is down; other 4xx are incurable; everything else, 408, 500, 502 and 504 among them, was said
    by somebody who does not know whether the effect took place: unknown. What a provider means by
    a status is its own affair: where it differs (409 for "already applied", 402 for "declined"),
    look at it before calling this (RFC 9110, 15).

    Args:
        status: HTTP status code.
        reason: For people.
        retry_after: The header of that name, in seconds or as a date.

    Raises:
        Unauthorized, NotDone, Unavailable, Incurable or AnswerLostError: always one of them.
    """
    text = f"HTTP {status} {reason}".strip()
    if status in _PAUSES:
        raise Unauthorized(text)
    if status in _LATER:
        raise NotDone(text, retry_after_s(retry_after), code=f"HTTP_{status}")
    if status in _DOWN:
        raise Unavailable(text, retry_after_s(retry_after), code=f"HTTP_{status}")
    if 400 <= status < 500 and status != 408:
        raise Incurable(f"HTTP_{status}", text)
    raise AnswerLostError(text)


@contextmanager
def connecting() -> Iterator[None]:
    """Around the opening of a connection, before anything is sent on it: failing, nothing happened.

        with connecting():
            line = socket.create_connection(address, timeout=2)

    A client that tries again by itself must not stand here: its first try may have been done.

    Raises:
        Unavailable: The line could not be opened.
    """
    try:
        yield
    except OSError as error:
        raise Unavailable(f"not reached: {error}", code="NOT_REACHED") from error


def retry_after_s(header: str | None) -> float:
    """Seconds that a Retry-After header asks for; 0 where it says nothing that can be read."""
    if not header:
        return 0.0
    try:
        asked = float(header)
    except ValueError:
        try:
            asked = parsedate_to_datetime(header).timestamp() - time()
        except ValueError:
            return 0.0
    return min(max(asked, 0.0), RETRY_MOST_S) if isfinite(asked) else 0.0
