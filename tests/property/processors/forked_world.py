"""Two workflows in memory, and a world that answers them in any order, twice, late, or wrongly.

Each record that is folded is judged by the laws at once; what only the whole run shows is asked
for at its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.processors.forking import Did, Go, Not, Quit

from refold.processors.definition import Definition
from refold.processors.effects import Send, Step
from refold.processors.forks import holds
from refold.processors.instance import Instance
from refold.schemas.envelope import EventRecord
from refold.schemas.verdicts import Decision
from refold.testing.driver import Driver
from refold.testing.exchanging import exchange, receive

Law = Callable[["Watched", Instance | None, EventRecord, Step], None]
"""(driver, record before, event, what was decided): raises AssertionError."""
TURNS: Final = 1_000
"""Longest way of a world to rest."""


class Watched(Driver):
    """A driver that asks the laws about every step."""

    def __init__(self, definition: Definition, laws: tuple[Law, ...]) -> None:
        super().__init__(definition, tenant="t")
        self.definition = definition
        self._laws = laws

    def fold(self, event: EventRecord, decision: Decision | None = None) -> Step:
        before = self.instances.get((event.tenant, event.instance))
        step = super().fold(event, decision)
        for law in self._laws:
            law(self, before, event, step)
        return step


@dataclass(frozen=True)
class Move:
    """One thing that happens: what, to which of those that it may happen to, and how."""

    what: str
    pick: int
    how: int
    kid: bool
    passed_ms: int


MOVES: Final = st.lists(
    st.builds(
        Move,
        what=st.sampled_from(
            ["answer"] * 6 + ["carry"] * 3 + ["go"] * 2 + ["ring", "repeat", "quit", "redrive"]
            + ["terminate"]
        ),
        pick=st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8, 13]),
        how=st.sampled_from([3, 2, 1, 6, 7, 9, 10, 11, 0]),
        kid=st.sampled_from([False, False, True]),
        passed_ms=st.sampled_from([0, 0, 100, 1_500, 6_000]),
    ),
    min_size=15,
    max_size=50,
)  # fmt: skip


class World:
    """Parents, children, and everybody else.

    Args:
        top: The parents' workflow.
        low: The children's.
        laws: Asked about every step.
    """

    def __init__(self, top: Definition, low: Definition, *laws: Law) -> None:
        self.top = Watched(top, laws)
        self.low = Watched(low, laws)

    @property
    def both(self) -> tuple[Watched, Watched]:
        """Parents first."""
        return self.top, self.low

    def move(self, one: Move) -> None:
        """Let it happen, where there is something to happen to."""
        for driver in self.both:
            driver.pass_ms(one.passed_ms)
        driver, other = (self.low, self.top) if one.kid else (self.top, self.low)
        name = f"p{one.pick % 2}"
        if one.what == "go":
            self.top.send(name, Go(one.how))
        elif one.what == "quit" and not one.kid:
            self.top.send(name, Quit())
        elif one.what == "carry":
            receive(driver, other, most=1 + one.how % 3)
        elif one.what == "answer" and driver.sent:
            say(driver, driver.sent[-1 - one.pick % len(driver.sent)], one.how)
        elif one.what == "repeat" and driver.log:
            event = driver.log[-1 - one.pick % len(driver.log)].event
            driver.fold(replace(event, offset=driver.log[-1].event.offset + 1))
        else:
            self._order(driver, one)

    def _order(self, driver: Watched, one: Move) -> None:
        """What is done to an instance that is there."""
        names = [key[1] for key in sorted(driver.instances)]
        if not names:
            return
        name = names[one.pick % len(names)]
        record = driver.instance(name)
        if one.what == "ring" and record.more.timers:
            driver.ring(name, record.more.timers[one.how % len(record.more.timers)])
        elif one.what == "redrive":
            driver.redrive(name)
        elif one.what == "terminate" and one.how == 0:
            driver.terminate(name)
        elif one.what == "quit":
            driver.send(name, Quit())

    def rest(self) -> None:
        """Let everybody else do what is asked of them, until nothing is asked any more."""
        for _ in range(TURNS):
            exchange(*self.both)
            busy = [self._answered(driver) or self._rung(driver) for driver in self.both]
            if not any(busy):
                return
        raise AssertionError(f"after {TURNS} turns it still goes on")

    def _answered(self, driver: Watched) -> bool:
        asked = [send for send in driver.sent if self.waits(driver, send)]
        for send in asked:
            if self.waits(driver, send):  # the answer before may have changed that
                say(driver, send, 0)
        return bool(asked)

    @staticmethod
    def waits(driver: Watched, send: Send) -> bool:
        """Whether somebody waits for the end of this attempt."""
        tenant, name = driver.whose(send.key)
        more = driver.instance(name, tenant).more
        if more.parked is not None or more.ended:  # terminated: nobody waits for its actions
            return False
        for one in more.actions:
            if one.key == send.key:
                return one.attempt == send.attempt and one.known != "retrying"
        return any(holds(fork, send.key) for fork in more.forks)

    def _rung(self, driver: Watched) -> bool:
        for (tenant, name), record in sorted(driver.instances.items()):
            if record.more.timers and record.more.parked is None:
                driver.ring(name, record.more.timers[0], tenant=tenant)
                return True
        return False


def say(driver: Watched, send: Send, how: int) -> None:
    """What an executor says about an attempt; some of it contradicts what it said before."""
    undoes = send.key.endswith(":compensate")
    fact: Any = None if undoes else Did(how)
    match how:
        case 6:
            driver.failed(send) if undoes else driver.declined(send, Not())
        case 7 | 8:
            driver.failed(send)
        case 9:
            driver.failed(send, retry=False)
        case 10:
            driver.unknown(send)
        case 11:
            driver.done(send)
        case _:
            driver.done(send, fact)
