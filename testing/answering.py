"""`Answering`: executors in memory, for a driver. Each command is answered by a rule, time skips.

Law of this module: it decides nothing about the workflow; what an executor and the outside world
may say is said by rules of the test, in the order of the times at which they say it.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import count
from typing import Any, Final

from refold.processors.effects import Send
from refold.testing.driver import Driver

AT_ONCE: Final = timedelta(0)
_MILLISECOND: Final = timedelta(milliseconds=1)


class End(StrEnum):
    """How an attempt of an action may end."""

    DONE = "done"
    DECLINED = "declined"
    """The other side refused; the event says how."""
    FAILED = "failed"
    """It certainly did nothing."""
    UNKNOWN = "unknown"
    SILENT = "silent"
    """Nobody says anything, ever."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is said about one attempt, and when."""

    end: End
    fact: Any = None
    """Event of the user's; None with DONE: the engine's own."""
    after: timedelta = AT_ONCE
    times: int = 1
    """How often it is said."""
    code: str = "BUSY"
    """Of a failure; likewise whether another attempt can cure it."""
    retry: bool = True


Rule = Ending | Callable[[Any, Send], "Ending | list[Ending]"]
"""An ending for every attempt, or a function (command, send) → ending or endings."""


@dataclass(order=True, slots=True)
class _Due:
    at_ms: int
    number: int
    send: Send = field(compare=False)
    ending: Ending = field(compare=False)


class Answering:
    """Answers the commands of a driver.

    Args:
        driver: Whose commands.
        rules: By command type.
        other: For types without a rule; by default they are done, without an event.
    """

    def __init__(
        self, driver: Driver, rules: Mapping[type, Rule], other: Rule = Ending(End.DONE)
    ) -> None:
        self.driver = driver
        self.rules = dict(rules)
        self.other = other
        self._seen = 0
        self._numbers = count()
        self._due: list[_Due] = []

    def run(self, most: timedelta = timedelta(days=366), steps: int = 10_000) -> None:
        """Answer, and let time pass, until nothing is on its way and no timer is armed.

        Args:
            most: Time that may pass.
            steps: Answers and rings that may come.

        Raises:
            AssertionError: It did not come to an end.
        """
        until_ms = self.driver.now_ms + most // _MILLISECOND
        for _ in range(steps):
            self._take()
            rings_ms = min(self._rings(), default=until_ms + 1)
            says_ms = self._due[0].at_ms if self._due else until_ms + 1
            at_ms = max(min(rings_ms, says_ms), self.driver.now_ms)
            if min(rings_ms, says_ms) > until_ms:
                return
            if rings_ms <= says_ms:
                self.driver.pass_time((at_ms - self.driver.now_ms) * _MILLISECOND)
                continue
            self.driver.now_ms = at_ms
            self._say(heapq.heappop(self._due))
        raise AssertionError(f"after {steps} answers and rings it still goes on")

    def _take(self) -> None:
        fresh, self._seen = self.driver.sent[self._seen :], len(self.driver.sent)
        for send in fresh:
            for ending in self._endings(send):
                at_ms = self.driver.now_ms + ending.after // _MILLISECOND
                heapq.heappush(self._due, _Due(at_ms, next(self._numbers), send, ending))

    def _endings(self, send: Send) -> list[Ending]:
        command = self.driver.command(send)
        rule = self.rules.get(type(command), self.other)
        said = rule if isinstance(rule, Ending) else rule(command, send)
        several = said if isinstance(said, list) else [said]
        return [each for one in several for each in [one] * one.times]

    def _rings(self) -> list[int]:
        records = self.driver.instances.values()
        dues = [one.more.due_ms for one in records if one.more.parked is None]
        return [due for due in dues if due is not None]

    def _say(self, due: _Due) -> None:
        send, ending, driver = due.send, due.ending, self.driver
        match ending.end:
            case End.DONE:
                driver.done(send, ending.fact)
            case End.DECLINED:
                driver.declined(send, ending.fact)
            case End.FAILED:
                driver.failed(send, ending.code, retry=ending.retry)
            case End.UNKNOWN:
                driver.unknown(send)
            case End.SILENT:
                pass
