"""An executor with its ledger in memory, that answers a driver's commands as it pleases.

Law of this module: what P30 to P33 let a real one do, and nothing else: a key is called again only
by a higher attempt after a failure, an undoing waits until its forward action is settled, one that
was never called is cancelled. What the outside world has done is counted by key.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from refold.processors.effects import Send
from refold.processors.keys import compensate_key
from refold.testing.driver import Driver

Answers = Mapping[str, tuple[Any, Any]]
"""By command type: the event that says done, and the one that says no."""


@dataclass
class Row:
    """One action: planned, unknown, succeeded, failed or cancelled."""

    send: Send
    state: str = "planned"


@dataclass
class Ledger:
    """Executors of every target of one driver."""

    driver: Driver
    chance: Random
    answers: Answers
    rows: dict[str, Row] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    """How often the outside world did what a key stands for."""
    out: list[tuple[str, Send, Any]] = field(default_factory=list)
    """What is said and not delivered yet, in order."""
    seen: int = 0

    def take(self) -> None:
        """Take in the commands that were sent meanwhile.

        Raises:
            AssertionError: A command came that must not: the same attempt twice, another body
                under one key, or an attempt of what is being undone.
        """
        for send in self.driver.sent[self.seen :]:
            row = self.rows.get(send.key)
            if row is None:
                self.rows[send.key] = Row(send)
                continue
            assert row.send.value == send.value, f"{send.key} came with another body"
            if row.state == "cancelled":
                continue
            assert row.state == "failed", f"{send.key} came again, and it is {row.state}"
            assert send.attempt > row.send.attempt, f"attempt {send.attempt} of {send.key} twice"
            if send.key.endswith(":forward"):
                undoing = compensate_key(send.key)
                assert undoing not in self.rows, f"{send.key} is tried while it is being undone"
            self.rows[send.key] = Row(send)
        self.seen = len(self.driver.sent)

    def work(self, key: str, *, calm: bool) -> None:
        """Do something about one action, if anything is to be done."""
        row = self.rows[key]
        if row.state not in ("planned", "unknown"):
            return
        if key.endswith(":compensate") and not self._settled(key):
            return
        how = "done" if calm else self.chance.choice(HOW)
        if how == "unknown" and row.state == "unknown":
            return
        row.state = {"done": "succeeded", "unknown": "unknown"}.get(how, "failed")
        if how == "done":
            self.done[key] += 1
        self._say(how, row.send)

    def _settled(self, key: str) -> bool:
        """Whether what an undoing undoes is done; if it was not, the undoing ends by that (P33)."""
        forward = key.removesuffix(":compensate") + ":forward"
        found = self.rows.get(forward)
        if found is not None and found.state == "unknown":
            return False
        if found is not None and found.state == "succeeded":
            return True
        row = self.rows[key]
        if found is None or found.state == "planned":
            self.rows[forward] = Row(row.send, "cancelled")
        row.state = "succeeded"
        self.out.append(("done", row.send, None))
        return False

    def _say(self, how: str, send: Send) -> None:
        yes, no = self.answers.get(send.type, (None, None))
        self.out.append((how, send, yes if how == "done" else no if how == "declined" else None))

    def deliver(self, times: int = 1) -> None:
        """Tell the workflow the next thing that was said."""
        how, send, fact = self.out.pop(0)
        for _ in range(times):
            if how == "done":
                self.driver.done(send, fact)
            elif how == "declined" and fact is not None:
                self.driver.declined(send, fact)
            elif how == "unknown":
                self.driver.unknown(send)
            else:
                self.driver.failed(send, retry=how == "busy")
            self.take()


HOW = ("done", "done", "done", "busy", "incurable", "declined", "unknown")
"""How an attempt may end, some ways more often than others."""
