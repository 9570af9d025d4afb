"""What is due soon in one partition: which timers ring next, which rang and are not folded yet.

Law of this module: plain data of the loop thread, no clock, no I/O. It only decides what is
written and when: a timer event that is not armed any more is a duplicate (P26), so a slip here
costs a record on the log and no effect. Memory is bounded by a horizon: what is due later stands
in the rows of the instances, and is asked for when its time comes near.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

from refold.processors.instance import NOTHING_MORE, Instance, Timer
from refold.processors.spec import Schedule

Key = tuple[str, str]
"""(tenant, instance id)."""
_due_ms: Final = attrgetter("due_ms")
"""Sorts timers of one instance; those that are due at once keep the order of their arming."""
Place = tuple[int, str, str]
"""(due in ms, tenant, instance id): the order of the due index."""
Known = tuple[int, tuple[Timer, ...]]
"""When an instance is listed, and its timers as last known."""
Look = Callable[[Key], Instance | None]
"""The record that memory holds of an instance, if it holds one."""

BEFORE_ALL: Final[Place] = (-(1 << 62), "", "")
SPARE: Final = 1_000
"""Dead entries that the heap may always hold."""


@dataclass(slots=True)
class Volley:
    """Timers that one transaction writes, and what was listed of their instances before."""

    rung: list[tuple[Key, Timer]] = field(default_factory=list)
    before: list[tuple[Key, Known]] = field(default_factory=list)
    announces: bool = False
    """True where it has the declarations of schedules in the place of timers."""
    last: int = -1
    """Highest offset of its events, once they are delivered."""

    def delivered(self, offset: int) -> None:
        """An event of it stands on the log."""
        self.last = max(self.last, offset)


@dataclass(slots=True)
class Dues:
    """The timers of one owned partition that are due within the horizon.

    Attributes:
        ready_at: Nothing rings before the partition's position has come here: what an earlier
            owner wrote is folded first (P26).
        end: What is due up to this place is listed.
        announce: Schedules whose declarations the owner has still to write; nothing rings before
            they are folded.
    """

    ready_at: int
    end: Place = BEFORE_ALL
    announce: tuple[Schedule, ...] = ()
    open: Volley | None = None
    _heap: list[Place] = field(default_factory=list)
    _listed: dict[Key, Known] = field(default_factory=dict)
    _sent: set[str] = field(default_factory=set)
    """Ids of timers that are written and not folded yet: they are not written again (B044)."""
    _volleys: deque[Volley] = field(default_factory=deque)

    def __len__(self) -> int:
        """Instances that are listed."""
        return len(self._listed)

    @property
    def write_ms(self) -> int | None:
        """When something is to be written next: a declaration at once, else `next_ms`."""
        return BEFORE_ALL[0] if self.announce else self.next_ms

    @property
    def on_the_way(self) -> int:
        """Timer events that are written and not folded yet."""
        return len(self._sent)

    @property
    def next_ms(self) -> int | None:
        """When the next listed timer is due; None when nothing is listed."""
        heap, listed = self._heap, self._listed
        while heap:
            due_ms, tenant, instance = heap[0]
            known = listed.get((tenant, instance))
            if known is not None and known[0] == due_ms:
                return due_ms
            heappop(heap)  # it was armed anew or is dead
        return None

    def overdue(self, now_ms: int, most: int) -> int:
        """How many entries are due by now, counted up to a bound."""
        heap, found, open_ = self._heap, 0, [0]
        while open_ and found < most:
            place = open_.pop()
            if place < len(heap) and heap[place][0] <= now_ms:
                found += 1
                open_ += (2 * place + 1, 2 * place + 2)
        return found

    def merged(self, instances: Mapping[Key, Instance], position: int, look: Look) -> None:
        """A transaction is committed, or records were folded silently.

        Args:
            instances: What it made of instances.
            position: Next offset to fold.
            look: Into the merged memory.
        """
        if self.open is not None:
            if self.open.announces:
                self.announce, self.ready_at = (), max(self.ready_at, self.open.last + 1)
            self._volleys.append(self.open)
            self.open = None
        while self._volleys and self._volleys[0].last < position:
            self._folded(self._volleys.popleft(), look)
        for key, record in instances.items():
            more = record.more
            if more is NOTHING_MORE or more.parked is not None or not more.timers:
                self._listed.pop(key, None)
            else:
                self._list(key, more.timers)
        if len(self._heap) > 2 * len(self._listed) + SPARE:
            self._heap = [(due_ms, *key) for key, (due_ms, _) in self._listed.items()]
            heapify(self._heap)

    def found(self, rows: Iterable[tuple[Key, tuple[Timer, ...]]], look: Look) -> None:
        """List what the due index says; what memory knows is newer.

        Args:
            rows: Instances with their timers.
            look: Into memory.
        """
        for key, timers in rows:
            if key not in self._listed:
                self._list(key, _of(look(key), timers))

    def choose(self, now_ms: int, most: int, look: Look) -> Volley:
        """Take the timers that ring now, in due order; they are on the way until `merged`.

        Args:
            now_ms: The owner's wall clock.
            most: Timers of this volley.
            look: Into memory, with what this transaction has made of it.
        """
        self.open = volley = Volley()
        while len(volley.rung) < most:
            due_ms = self.next_ms
            if due_ms is None or due_ms > now_ms:
                break
            _, tenant, instance = heappop(self._heap)
            key = tenant, instance
            known = self._listed.pop(key)
            volley.before.append((key, known))
            timers = _of(look(key), known[1])
            ripe = (one for one in timers if one.due_ms <= now_ms and one.id not in self._sent)
            for one in sorted(ripe, key=_due_ms)[: most - len(volley.rung)]:
                volley.rung.append((key, one))
                self._sent.add(one.id)
            self._list(key, timers)
        return volley

    def announcing(self) -> Volley:
        """Write the declarations of schedules; they are to be announced until `merged`."""
        self.open = Volley(announces=True)
        return self.open

    def forget(self) -> None:
        """The transaction is aborted: what it wrote was seen by nobody."""
        volley, self.open = self.open, None
        if volley is None:
            return
        self._sent.difference_update(timer.id for _, timer in volley.rung)
        for key, known in reversed(volley.before):
            self._listed[key] = known
            heappush(self._heap, (known[0], *key))

    def _folded(self, volley: Volley, look: Look) -> None:
        """Its events were folded: what is armed still, was refused for a while and rings again."""
        self._sent.difference_update(timer.id for _, timer in volley.rung)
        for key, timer in volley.rung:
            record = look(key)
            if record is not None and record.more.parked is None and timer in record.more.timers:
                self._list(key, record.more.timers)

    def _list(self, key: Key, timers: tuple[Timer, ...]) -> None:
        due_ms = min((one.due_ms for one in timers if one.id not in self._sent), default=None)
        if due_ms is None or (due_ms, *key) > self.end:
            self._listed.pop(key, None)
            return
        known = self._listed.get(key)
        self._listed[key] = due_ms, timers
        if known is None or known[0] != due_ms:
            heappush(self._heap, (due_ms, *key))


def _of(record: Instance | None, otherwise: tuple[Timer, ...]) -> tuple[Timer, ...]:
    """The timers that may ring: those of memory where it holds the instance."""
    if record is None:
        return otherwise
    return () if record.more.parked is not None else record.more.timers
