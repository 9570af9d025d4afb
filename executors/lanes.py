"""Lanes: how many calls of each action may be in flight, and whether they may begin at all.

Law of this module: a slot is taken before a row is leased, so that no lease runs while its task
waits, and is given back when the handler has really ended. A slot of a system that is down, or of
an action that is not let in, is not given.
"""

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from time import monotonic
from typing import Final

import msgspec
import structlog

from refold.executors.circuit import Circuit, Sign, State
from refold.executors.executor import Action

_LOG = structlog.get_logger("refold.lanes")
DOWN_LIMIT: Final = 5
"""Calls in a row that say that a system is down, before it is left alone."""
DOWN_FIRST_S: Final = 0.5
DOWN_MOST_S: Final = 2.0
"""Pause between two tries: what is unknown is to be settled soon after it can be."""
SHUT_FIRST_S: Final = 10.0
"""An action that is not let in is tried again so much later: somebody may have mended it."""
SHUT_MOST_S: Final = 300.0


class Gate(msgspec.Struct, frozen=True):
    """A circuit that is not closed, for people."""

    name: str
    """Name of a system, or of an action."""
    kind: str
    """`system`: it is down; `action`: we are not let in."""
    state: State
    reason: str


class _Lane:
    __slots__ = ("free", "shut", "slots", "system")

    def __init__(self, slots: int, system: Circuit, shut: Circuit) -> None:
        self.slots = slots
        self.free = slots
        self.system = system
        self.shut = shut


class Lanes:
    """The slots of one process; from any thread.

    Args:
        actions: By command type.
        clock: Monotonic seconds.
    """

    def __init__(
        self, actions: Mapping[str, Action], clock: Callable[[], float] = monotonic
    ) -> None:
        self._lock = Lock()
        self._systems = {
            each.system: Circuit(DOWN_LIMIT, DOWN_FIRST_S, DOWN_MOST_S, clock)
            for each in actions.values()
        }
        self._lanes = {
            name: _Lane(
                each.concurrency,
                self._systems[each.system],
                Circuit(1, SHUT_FIRST_S, SHUT_MOST_S, clock),
            )
            for name, each in actions.items()
        }

    @property
    def in_flight(self) -> int:
        """Slots that are taken."""
        return sum(each.slots - each.free for each in self._lanes.values())

    def take(self, name: str) -> bool:
        """Take a slot for a call of this action; False: none is to be had now."""
        lane = self._lanes.get(name)
        if lane is None or lane.free <= 0:
            return False
        with self._lock:
            if lane.free <= 0 or not lane.shut.begin():
                return False
            if not lane.system.begin():
                lane.shut.withdraw()
                return False
            lane.free -= 1
        return True

    def take_all(self, most: int) -> dict[str, int]:
        """Take every slot that is to be had, at most so many of an action, by action."""
        taken: dict[str, int] = {}
        for name in self._lanes:
            count = 0
            while count < most and self.take(name):
                count += 1
            if count:
                taken[name] = count
        return taken

    def untake(self, name: str, count: int = 1) -> None:
        """Give back slots for which no call began."""
        lane = self._lanes[name]
        with self._lock:
            lane.free += count
        if count:
            lane.system.withdraw()
            lane.shut.withdraw()

    def free(self, name: str) -> None:
        """The handler has ended: its slot may be taken again."""
        lane = self._lanes[name]
        with self._lock:
            lane.free += 1

    def learn(self, name: str, sign: Sign, reason: str) -> None:
        """What a call's end says about the other side."""
        lane = self._lanes[name]
        if sign is Sign.SHUT:
            lane.system.withdraw()
            if lane.shut.fail(reason, at_once=True):
                _LOG.error("not let in: the action pauses", action=name, reason=reason)
            return
        if sign is Sign.DOWN:
            lane.shut.withdraw()
            if lane.system.fail(reason):
                _LOG.error("the other side is down: its calls wait", action=name, reason=reason)
        elif sign is Sign.ANSWERED:
            if lane.shut.succeed() | lane.system.succeed():
                _LOG.info("the other side answers again", action=name)
        else:
            lane.shut.withdraw()
            lane.system.withdraw()

    def down(self, name: str) -> bool:
        """Whether the system of an action is left alone, or tried with one call."""
        return self._lanes[name].system.state is not State.CLOSED

    @property
    def gates(self) -> list[Gate]:
        """Circuits that are not closed."""
        return [*_gates("system", self._systems.items()), *_gates("action", (
            (name, lane.shut) for name, lane in self._lanes.items()
        ))]  # fmt: skip


def _gates(kind: str, circuits: Iterable[tuple[str, Circuit]]) -> list[Gate]:
    return [
        Gate(name, kind, each.state, each.reason)
        for name, each in circuits
        if each.state is not State.CLOSED
    ]
