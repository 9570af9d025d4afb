"""Dispatch: begins calls whose rows are in flight, and hands over how they ended.

Law of this module: a call begins at once, for its slot was taken before its row was leased. At
its deadline it counts as unknown; what it says later still counts, until its lease is over. A
slot is free when the handler has really ended, not when its time is over.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import takewhile
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple

import structlog

from refold.executors.calls import (
    End,
    asked,
    call_of,
    overdue,
    perform,
    perform_async,
    perform_local,
)
from refold.executors.circuit import Sign
from refold.executors.executor import Action, Call, is_asynchronous
from refold.executors.lanes import Lanes
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed
from refold.executors.outcome import CannotTell
from refold.executors.reading import Schemas
from refold.executors.threads import Threads
from refold.executors.truth import Local, Queryable
from refold.schemas.errors import RefoldError

_LOG = structlog.get_logger("refold.dispatch")
LEASE_MARGIN_S: Final = 5.0
"""The lease outlives the deadline by this (P31)."""
LEASE_MOST_S: Final = 30.0
"""A longer call renews its lease, so that its process's death is noticed before its deadline."""
LATE_S: Final = 30.0
"""So long after its deadline an asynchronous handler may still say what happened."""
SWEEP_S: Final = 0.1
QUESTIONS_MOST: Final = 128
"""Questions on threads at a time, those that nobody waits for any more among them."""
ABANDON_S: Final = 1.0
"""Longest wait for handlers that were told to end at a stop."""


class Started(NamedTuple):
    """A row in flight that is to be called."""

    claimed: Claimed
    command: Any
    claimed_s: float
    """Monotonic seconds directly before the claim was asked for."""


class _Flight:
    __slots__ = ("action", "call", "claimed", "claimed_s", "lease_s", "task", "told")

    def __init__(self, claimed: Claimed, action: Action, call: Call, claimed_s: float) -> None:
        self.claimed = claimed
        self.action = action
        self.call = call
        self.claimed_s = claimed_s
        self.lease_s = lease_of(action)
        self.told = False
        self.task: asyncio.Task[None] | None = None


def lease_of(action: Action) -> float:
    """Seconds for which a claim of this action is leased."""
    return min(action.deadline_s, LEASE_MOST_S) + LEASE_MARGIN_S


class Dispatch:
    """The calls of one process.

    Args:
        actions: By command type.
        lanes: Their slots, taken already.
        ledger: For `Local` actions.
        schemas: Decodes what handlers want to know of what they undo.
        ended: Gets how each call ended, on any thread; to be recorded.
        recorded: Gets how a `Local` action ended, which is recorded already, and whether its
            result must wait for an earlier one.

    Contract: `bind` and `sweep` on the loop; `start` and `ask` from any thread after `bind`.
    """

    def __init__(
        self,
        actions: Mapping[str, Action],
        lanes: Lanes,
        ledger: Ledger,
        schemas: Schemas,
        ended: Callable[[End], None],
        recorded: Callable[[End, bool], None],
    ) -> None:
        self._actions = actions
        self._lanes = lanes
        self._ledger = ledger
        self._read = schemas.read
        self._ended = ended
        self._recorded = recorded
        self._threads = Threads("handler")
        self._lock = Lock()
        self._flights: dict[str, dict[tuple[str, int], _Flight]] = {name: {} for name in actions}
        """By action, in the order in which they began: the first one's time is over first."""
        self._asking: set[asyncio.Task[None]] = set()
        self.swept_s = monotonic()
        """When the loop last looked for calls that have not ended in their time."""
        self.hanging_questions = 0
        """Questions on threads that have not ended."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Asynchronous handlers run on this loop."""
        self._loop = loop

    @property
    def in_flight(self) -> int:
        """Calls whose handler has not ended."""
        return sum(map(len, self._flights.values()))

    @property
    def pending(self) -> int:
        """Of these, how many may still say something in their time."""
        with self._lock:
            return sum(not each.told for some in self._flights.values() for each in some.values())

    def hanging(self) -> dict[str, int]:
        """By action, handlers that go on long after their time is over, each in its slot."""
        late_s = monotonic() - LATE_S
        with self._lock:
            counted = {
                name: sum(each.call.until_s < late_s for each in some.values())
                for name, some in self._flights.items()
            }
        return {name: count for name, count in counted.items() if count}

    def start(self, started: Iterable[Started]) -> None:
        """Begin calls."""
        tasks: list[tuple[_Flight, Any]] = []
        for claimed, command, claimed_s in started:
            action = self._actions[claimed.type]
            call = call_of(claimed, action, claimed_s + action.deadline_s, self._read)
            flight = _Flight(claimed, action, call, claimed_s)
            call.lease_until_s = claimed_s + flight.lease_s
            with self._lock:
                self._flights[claimed.type][claimed.key, claimed.epoch] = flight
            if action.asynchronous:
                tasks.append((flight, command))
            elif isinstance(action.truth, Local):
                self._threads.run(partial(self._local, flight, command))
            else:
                self._threads.run(partial(self._sync, flight, command))
        if tasks:
            self._on_loop(self._begin, tasks)

    def ask(self, claimed: Claimed, command: Any, then: Callable[[End], None]) -> None:
        """Ask the other side about an unknown outcome; `then` gets what came of it."""
        action = self._actions[claimed.type]

        self._on_loop(self._ask, claimed, action, command, then)

    async def abandon(self) -> None:
        """Give up what still runs on the loop; what it says is not heard any more."""
        left = [*self._asking, *(
            each.task for some in self._flights.values() for each in some.values() if each.task
        )]  # fmt: skip
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left, timeout=ABANDON_S)

    async def sweep(self) -> None:
        """Say for ever which calls have not ended in their time."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now_s = self.swept_s = monotonic()
            for name in self._flights:
                for flight in self._late(name, now_s):
                    self._expire(flight, now_s)

    def renewable(self) -> list[tuple[Claimed, float]]:
        """Long calls whose lease is half over, with the lease that they are to have from now."""
        now_s = monotonic()
        with self._lock:
            return [
                (each.claimed, each.lease_s)
                for some in self._flights.values()
                for each in some.values()
                if now_s < each.call.until_s
                and each.call.until_s > each.call.lease_until_s - LEASE_MARGIN_S
                and each.call.lease_until_s - now_s < each.lease_s / 2
            ]

    def renewed(self, claimed: Claimed, asked_s: float) -> None:
        """The lease was renewed; it counts from when that was asked for."""
        flight = self._flights[claimed.type].get((claimed.key, claimed.epoch))
        if flight is not None:
            flight.call.lease_until_s = asked_s + flight.lease_s

    def _on_loop(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended: what is in flight is left to a successor
                self._loop.call_soon_threadsafe(function, *arguments)

    def _ask(
        self, claimed: Claimed, action: Action, command: Any, then: Callable[[End], None]
    ) -> None:
        async def run() -> None:
            then(await asked(claimed, action, self._answer(claimed, action, command)))

        task = asyncio.ensure_future(run())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _answer(self, claimed: Claimed, action: Action, command: Any) -> Any:
        """What the other side says; an exception is a value here, for some would end the loop."""
        if not isinstance(action.truth, Queryable):
            return CannotTell("nobody can be asked")
        reconcile, call = action.truth.reconcile, call_of(claimed, action, read=self._read)
        if is_asynchronous(reconcile):
            try:
                return await reconcile(command, call)  # type: ignore[misc]  # it is one
            except BaseException as error:
                return error
        if self.hanging_questions >= QUESTIONS_MOST:
            return CannotTell(f"{QUESTIONS_MOST} earlier questions have not ended")
        self.hanging_questions += 1
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()  # who asked may stop waiting, not take it back
        answer.add_done_callback(lambda _: self._on_loop(self._question_ended))
        self._threads.run(lambda: answer.set_result(_answered(reconcile, command, call)))
        return await asyncio.wrap_future(answer)

    def _question_ended(self) -> None:
        self.hanging_questions -= 1

    def _begin(self, tasks: Iterable[tuple[_Flight, Any]]) -> None:
        for flight, command in tasks:
            flight.task = asyncio.ensure_future(self._async(flight, command))

    async def _async(self, flight: _Flight, command: Any) -> None:
        self._end(flight, await perform_async(flight.claimed, flight.action, flight.call, command))

    def _sync(self, flight: _Flight, command: Any) -> None:
        self._end(flight, perform(flight.claimed, flight.action, flight.call, command))

    def _local(self, flight: _Flight, command: Any) -> None:
        claimed, action, call = flight.claimed, flight.action, flight.call
        try:
            told = self._ledger.local(
                claimed,
                lambda connection: perform_local(claimed, action, call, command, connection),
            )
        except RefoldError as away:
            # Whether it was committed, the row knows: planned again when its lease is over.
            _LOG.warning("a local action is not recorded yet", key=claimed.key, error=str(away))
            told = None
        except BaseException:  # the slot must come back whatever happens
            _LOG.exception("a local action failed in a way of its own", key=claimed.key)
            told = None
        self._finish(flight)
        self._lanes.learn(claimed.type, Sign.NOTHING, "")
        if told is not None:
            ended, later = told
            self._recorded(End(claimed, ended, Sign.NOTHING), later)

    def _end(self, flight: _Flight, end: End) -> None:
        if flight.told:
            end = end._replace(sign=Sign.NOTHING)
        else:
            self._lanes.learn(flight.claimed.type, end.sign, end.ended.reason)
        self._ended(end)  # before it is no flight any more: a stop waits for flights
        self._finish(flight)

    def _finish(self, flight: _Flight) -> None:
        claimed = flight.claimed
        with self._lock:
            self._flights[claimed.type].pop((claimed.key, claimed.epoch), None)
        self._lanes.free(claimed.type)

    def _late(self, name: str, now_s: float) -> list[_Flight]:
        with self._lock:
            return list(takewhile(lambda each: each.call.until_s <= now_s,
                                  self._flights[name].values()))  # fmt: skip

    def _expire(self, flight: _Flight, now_s: float) -> None:
        if isinstance(flight.action.truth, Local):
            return  # its transaction says what became of it
        if not flight.told:
            flight.told = True
            end = overdue(flight.claimed, flight.action.deadline_s)
            self._lanes.learn(flight.claimed.type, end.sign, end.ended.reason)
            self._ended(end)
        elif flight.task is not None and now_s > flight.call.until_s + LATE_S:
            flight.task.cancel()


def _answered(reconcile: Callable[..., Any], command: Any, call: Call) -> Any:
    try:
        answer = reconcile(command, call)
        return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer
    except BaseException as error:
        return error
