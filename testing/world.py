"""`World`: the outside, for tests. It does what it is told, journals it by key, and misbehaves.

    world = World(seed=7)
    hotel = world.system("hotel", declines=0.05, drops=0.02, visible_after_s=3)
    hotel.call("book", call.key, nights=2).reference
    hotel.ask(call.key)
    world.doubles()

Law of this module: the journal says what was done, whatever the answers say. What goes wrong is
drawn from the seed, the system, the key and the number of the call, so that it does not depend on
the order in which calls of different keys come. It forgives nothing that was not declared: a key
is an unknown word unless `keys` says otherwise, so that a second call is a second effect.
"""

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from time import sleep, time
from typing import Any, Final, Protocol

import msgspec

from refold.testing.journal import Effect, Journal, Late, Request
from refold.testing.manners import (
    AlreadyDone,
    Busy,
    Fault,
    KeyReused,
    Keys,
    LineDead,
    Manners,
    Refused,
    Reply,
    Said,
)

__all__ = [
    "AlreadyDone",
    "Busy",
    "Effect",
    "Fault",
    "KeyReused",
    "Keys",
    "Late",
    "LineDead",
    "LocalSystem",
    "Manners",
    "Outside",
    "Refused",
    "Reply",
    "Request",
    "Said",
    "System",
    "World",
]

_STEPS: Final = float(1 << 64)


class System(Protocol):
    """One system of the outside, in this process or in another one."""

    def call(
        self, action: str, key: str, *, timeout_s: float | None = None, **request: Any
    ) -> Reply:
        """Have something done.

        Args:
            action: What.
            key: Idempotency key.
            timeout_s: The answer is waited for so long.
            request: Values that JSON can hold.

        Raises:
            Refused, AlreadyDone, KeyReused or Busy: the system's answers.
            LineDead: The connection broke before or after it was done.
            TimeoutError: No answer in time; it may have been done, or may be yet.
        """
        ...

    def ask(self, key: str) -> Said:
        """Ask what became of a key."""
        ...


class Outside(Protocol):
    """Where systems are found: a `World`, or a `RemoteWorld`."""

    def system(self, name: str) -> System:
        """A system by its name."""
        ...

    def answers(self) -> list[Late]:
        """Answers to accepted calls that are due now; each is handed out as often as it comes."""
        ...


class World:
    """An outside world in memory or in a file, with any number of systems.

    Args:
        seed: What goes wrong follows from it.
        journal: File of the journal; None: in memory.
        real_time: True: delays are waited for. False: they only move the world's own clock, which
            begins at 0 and is in the test's hand.
        now_s: Another clock, such as `lambda: driver.now_ms / 1000`; what passes is added to it.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        journal: Path | None = None,
        real_time: bool = False,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self.seed = seed
        self.kept = Journal(journal)
        self._real_time = real_time
        self._now_s = now_s or (time if real_time else lambda: 0.0)
        self._passed_s = 0.0
        self._systems: dict[str, LocalSystem] = {}

    def system(self, name: str, **manners: Any) -> "LocalSystem":
        """A system by its name; with `manners` (the fields of `Manners`) it behaves so from now on.

        Raises:
            TypeError: There is no such field.
        """
        if name not in self._systems or manners:
            self._systems[name] = LocalSystem(self, name, Manners(**manners))
        return self._systems[name]

    def journal(self, system: str = "", key: str = "") -> list[Effect]:
        """What was done, in order; in one system or under one key, if given."""
        return self.kept.effects(system, key)

    def requests(self, system: str = "", key: str = "") -> list[Request]:
        """Calls and questions, in order, and what each came to."""
        return self.kept.requests(system, key)

    def doubles(self) -> dict[tuple[str, str], int]:
        """(system, key) → how often it was done, where that is more than once."""
        return self.kept.doubles()

    def answers(self) -> list[Late]:
        """Answers to accepted calls that are due now; each is handed out as often as it comes."""
        return self.kept.fetch(self.now_s())

    def now_s(self) -> float:
        """The world's time."""
        return self._now_s() + self._passed_s

    def pass_s(self, seconds: float) -> None:
        """Let time pass out there, without waiting for it."""
        self._passed_s += seconds

    def wait_s(self, seconds: float) -> None:
        """A delay: waited for in real time, otherwise only passed."""
        if self._real_time:
            sleep(seconds)
        else:
            self._passed_s += seconds

    def draw(self, *parts: str) -> float:
        """A number from 0 to below 1 that follows from the seed and these words."""
        words = msgspec.json.encode((self.seed, *parts))
        return int.from_bytes(blake2b(words, digest_size=8).digest(), "big") / _STEPS


class LocalSystem:
    """One system of a `World`; made by `World.system`."""

    def __init__(self, world: World, name: str, manners: Manners) -> None:
        self.name = name
        self.manners = manners
        self._world = world
        self._journal = world.kept
        self._next: dict[str, list[Fault]] = {"call": [], "ask": []}

    def next(self, *faults: Fault | str) -> None:
        """The next calls go like this, one each, whatever was declared."""
        self._next["call"].extend(map(Fault, faults))

    def next_asked(self, *faults: Fault | str) -> None:
        """The next questions go like this."""
        self._next["ask"].extend(map(Fault, faults))

    def call(
        self, action: str, key: str, *, timeout_s: float | None = None, **request: Any
    ) -> Reply:
        """As `System.call`."""
        with self._journal.lock:
            fault = self._fault("call", key)
            if fault in (Fault.UNREACHED, Fault.BUSY):
                self._note("call", action, key, fault)
        if fault is Fault.UNREACHED:
            raise LineDead(f"{self.name} was not reached")
        if fault is Fault.BUSY:
            raise Busy(f"{self.name} is busy", self.manners.retry_after_s)
        least_s, most_s = self.manners.delay_s
        delay_s = least_s + (most_s - least_s) * self._draw("delay", key)
        if delay_s:
            self._world.wait_s(delay_s)
        reply = self._do(action, key, msgspec.json.encode(request, order="sorted"), fault)
        if fault is Fault.LATE:
            self._world.wait_s(self.manners.late_s)
            delay_s += self.manners.late_s
        if fault is Fault.DROP:
            raise LineDead(f"{self.name} hung up")
        if timeout_s is not None and delay_s > timeout_s:
            raise TimeoutError(f"{self.name} has not answered within {timeout_s:g} s")
        return reply

    def ask(self, key: str) -> Said:
        """As `System.ask`."""
        with self._journal.lock:
            fault = self._fault("ask", key)
            effect = self._known(key)
            done = effect is not None and effect.shown_s <= self._world.now_s()
            said = Said("done", effect.reference) if done and effect else Said("not_done")
            if fault is Fault.LIE:
                said = Said("not_done") if done else Said("done", self._reference(key, 1))
            if fault is Fault.CANNOT_TELL:
                said = Said("cannot_tell")
            self._note("ask", "", key, said.word)
        return said

    def _do(self, action: str, key: str, request: bytes, fault: Fault) -> Reply:
        """What becomes of a call that arrives: decided and written as one."""
        with self._journal.lock:
            known = self._known(key)
            if known is not None and self.manners.keys != "ignore":
                return self._again(action, known, request)
            if fault is Fault.DECLINE or self._declines(action, key):
                self._note("call", action, key, Fault.DECLINE)
                raise Refused(f"{self.name} refuses to {action}")
            now_s, manners = self._world.now_s(), self.manners
            accepted = fault is Fault.TWICE or self._drawn("accepts", key) < manners.accepts
            answered_s = now_s + manners.answers_after_s
            shown_s = max(now_s + manners.visible_after_s, answered_s if accepted else now_s)
            reference = self._reference(key, len(self._journal.effects(self.name, key)) + 1)
            self._journal.done(self.name, action, key, request, reference, now_s, shown_s)
            if accepted:
                twice = fault is Fault.TWICE or self._drawn("twice", key) < manners.twice
                self._journal.promise(self.name, key, reference, answered_s, 1 + twice)
            self._note("call", action, key, "accepted" if accepted else fault)
            return Reply(reference, accepted)

    def _declines(self, action: str, key: str) -> bool:
        """Whether this key is refused, now and whenever it comes again."""
        own = self.manners
        declinable = not own.declinable or action in own.declinable
        return declinable and self._draw("declines", key) < own.declines

    def _again(self, action: str, known: Effect, request: bytes) -> Reply:
        if msgspec.json.encode(known.request, order="sorted") != request or known.action != action:
            self._note("call", action, known.key, "reused")
            raise KeyReused(f"{self.name} has done {known.key} with another request")
        self._note("call", action, known.key, "repeated")
        if self.manners.keys == "refuse":
            raise AlreadyDone(known.reference)
        return Reply(known.reference, repeated=True)

    def _known(self, key: str) -> Effect | None:
        forgets_s, now_s = self.manners.forgets_after_s, self._world.now_s()
        for effect in self._journal.effects(self.name, key):
            if forgets_s is None or now_s < effect.done_s + forgets_s:
                return effect
        return None

    def _fault(self, kind: str, key: str) -> Fault:
        """What goes wrong this time: as the test wants, else as it is drawn."""
        if self._next[kind]:
            return self._next[kind].pop(0)
        return next(
            (fault for fault, share in self._shares(kind) if self._drawn(fault, key) < share),
            Fault.NONE,
        )

    def _shares(self, kind: str) -> list[tuple[Fault, float]]:
        own = self.manners
        if kind == "ask":
            return [(Fault.CANNOT_TELL, own.cannot_tell), (Fault.LIE, own.lies)]
        return [
            (Fault.UNREACHED, own.unreached), (Fault.BUSY, own.busy), (Fault.DROP, own.drops),
            (Fault.LATE, own.late),
        ]  # fmt: skip

    def _drawn(self, what: str, key: str) -> float:
        """Another number at each call of a key."""
        times = (self._journal.times(self.name, kind, key) for kind in ("call", "ask"))
        return self._draw(what, key, *map(str, times))

    def _draw(self, what: str, key: str, *parts: str) -> float:
        return self._world.draw(self.name, what, key, *parts)

    def _reference(self, key: str, times: int) -> str:
        mark = blake2b(key.encode(), digest_size=6).hexdigest()
        return f"{self.name}-{mark}" if times == 1 else f"{self.name}-{mark}-{times}"

    def _note(self, kind: str, action: str, key: str, outcome: str) -> None:
        self._journal.note(self.name, kind, action, key, outcome, self._world.now_s())
