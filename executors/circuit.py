"""A circuit: stops calling somebody who is down, and tries with one call whether he is back.

Law of this module: closed → open after so many failures in a row → half open after a pause, one
probe at a time → closed, or open for twice as long. It holds calls back and fails none of them.
"""

from collections.abc import Callable
from enum import StrEnum
from threading import Lock
from time import monotonic
from typing import Final

MANY: Final = 1_000_000
"""Calls that a closed circuit lets begin."""


class State(StrEnum):
    """Where a circuit stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Sign(StrEnum):
    """What the end of a call says about the other side."""

    ANSWERED = "answered"
    DOWN = "down"
    SHUT = "shut"
    """It is there, and does not let us in."""
    NOTHING = "nothing"


class Circuit:
    """One circuit; from any thread.

    Args:
        limit: Failures in a row that open it, 1 or more.
        first_s: Pause before the first probe.
        most_s: Longest pause: each failed probe doubles it up to this.
        clock: Monotonic seconds.
    """

    def __init__(
        self, limit: int, first_s: float, most_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._limit = limit
        self._first_s = first_s
        self._most_s = most_s
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._pause_s = first_s
        self._open_until_s: float | None = None
        self._probing = False
        self.reason = ""
        """What the last failure said."""

    @property
    def state(self) -> State:
        """Where it stands now."""
        if self._open_until_s is None:
            return State.CLOSED
        return State.OPEN if self._clock() < self._open_until_s else State.HALF_OPEN

    def room(self) -> int:
        """How many calls may begin now."""
        state = self.state
        if state is State.CLOSED:
            return MANY
        return int(state is State.HALF_OPEN and not self._probing)

    def begin(self) -> bool:
        """A call wants to begin; False: it may not. Each True is followed by one of the others."""
        if self._open_until_s is None:
            return True
        with self._lock:
            if not self.room():
                return False
            self._probing = self.state is State.HALF_OPEN
            return True

    def succeed(self) -> bool:
        """The other side answered; True where that closes the circuit."""
        if not self._failures and self._open_until_s is None:
            return False
        with self._lock:
            closes = self._open_until_s is not None
            self._failures, self._open_until_s, self._probing = 0, None, False
            self._pause_s, self.reason = self._first_s, ""
            return closes

    def fail(self, reason: str, *, at_once: bool = False) -> bool:
        """The other side is down.

        Args:
            reason: For people.
            at_once: Open now, whatever went before.

        Returns:
            True where that opens a closed circuit.
        """
        with self._lock:
            self._failures += 1
            self.reason = reason
            if self._open_until_s is None:
                if self._failures < self._limit and not at_once:
                    return False
                self._open_until_s = self._clock() + self._pause_s
                return True
            if self._probing:  # calls that began before it opened do not make the pause longer
                self._pause_s = min(2 * self._pause_s, self._most_s)
                self._open_until_s = self._clock() + self._pause_s
                self._probing = False
            return False

    def withdraw(self) -> None:
        """A call that began says nothing about the other side, or was not made."""
        if self._probing:
            with self._lock:
                self._probing = False
