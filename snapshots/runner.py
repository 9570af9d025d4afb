"""One unit of work against PostgreSQL: run, run again where that is right, else a named error.

Law of this module: the work that is passed in may run more than once and must mean the same each
time. How often and how soon depends on the fault: a conflict at once with jitter (B039), a
statement over its time-out later and later (B040), a lost connection once on a new one (B036,
B038), anything else never.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import psycopg
from tenacity import RetryCallState, Retrying, retry_if_exception

from refold.schemas.errors import Code, ServerError
from refold.snapshots.faults import Fault, fault, server_error
from refold.snapshots.sessions import CommitUnknownError, Connection, Sessions

Result = TypeVar("Result")

ATTEMPTS: Final = {Fault.CONFLICT: 6, Fault.SLOW: 3, Fault.LOST: 2, Fault.READ_ONLY: 2}
"""Runs in all, by the last fault; a fault that is not named here is not tried again."""

_FIRST_WAIT_S: Final = {
    Fault.CONFLICT: 0.02,
    Fault.SLOW: 0.5,
    Fault.LOST: 0.0,
    Fault.READ_ONLY: 0.0,
}
_LONGEST_WAIT_S: Final = 4.0


class Runner:
    """Runs work on borrowed connections.

    Args:
        sessions: Where connections come from.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    def run(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """Run `work`, again where the fault allows.

        Args:
            doing: What it is, as a noun, for the error: "the load of order/3".
            work: Opens its own transaction; harmless when it runs twice.

        Raises:
            ServerError: POSTGRES_AWAY, POSTGRES_REFUSED or SCHEMA_VERSION.
        """
        return self.patiently(doing, lambda: self._once(work))

    def patiently(self, doing: str, act: Callable[[], Result]) -> Result:
        """Like `run`, for an act that borrows by itself."""
        retrying = Retrying(
            retry=retry_if_exception(lambda error: _fault_of(error) in ATTEMPTS),
            stop=_stop,
            wait=_wait,
            reraise=True,
        )
        with _named(doing):
            return retrying(act)

    def once(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """Run work that can run once only, such as work that reads an iterator."""
        with _named(doing):
            return self._once(work)

    def _once(self, work: Callable[[Connection], Result]) -> Result:
        with self.sessions.borrow() as connection:
            return work(connection)


@contextmanager
def _named(doing: str) -> Iterator[None]:
    """Errors of psycopg leave as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise server_error(error, doing) from error
    except CommitUnknownError as error:
        raise ServerError(
            Code.POSTGRES_AWAY,
            f"PostgreSQL went away at the end of {doing}; whether it stands is not known.",
            "It is read back and tried again by itself.",
        ) from error


def _fault_of(error: BaseException | None) -> Fault | None:
    if isinstance(error, CommitUnknownError):
        return Fault.LOST
    return fault(error) if isinstance(error, psycopg.Error) else None


def _last_fault(state: RetryCallState) -> Fault | None:
    return _fault_of(state.outcome.exception() if state.outcome else None)


def _stop(state: RetryCallState) -> bool:
    what = _last_fault(state)
    return what is None or state.attempt_number >= ATTEMPTS.get(what, 1)


def _wait(state: RetryCallState) -> float:
    """Exponential from the fault's first wait, jittered between half and all of it."""
    what = _last_fault(state)
    first = _FIRST_WAIT_S.get(what, 0.0) if what else 0.0
    full = min(first * 2.0 ** (state.attempt_number - 1), _LONGEST_WAIT_S)
    return float(full) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
