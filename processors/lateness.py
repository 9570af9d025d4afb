"""How late timers are written: a histogram that a thread may read while the loop counts.

Law of this module: counts only; a snapshot of it is immutable.
"""

from bisect import bisect_left
from typing import Final

import msgspec

BUCKETS_S: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0,
)  # fmt: skip
"""Upper bounds; one more bucket has no bound."""


class Lateness(msgspec.Struct, frozen=True):
    """Timers of one workflow that a worker has written since it began."""

    workflow: str
    counts: tuple[int, ...]
    """In each bucket alone; the last one is above every bound."""
    sum_s: float


class Latenesses:
    """Counts the timers of a worker.

    What an aborted transaction wrote is not counted.
    """

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def add(self, workflow: str, late_s: float) -> None:
        """A timer was written so long after it was due; below 0 counts as 0."""
        counts = self._counts.setdefault(workflow, [0] * (len(BUCKETS_S) + 1))
        counts[bisect_left(BUCKETS_S, late_s)] += 1
        self._sums_s[workflow] = self._sums_s.get(workflow, 0.0) + max(0.0, late_s)

    def status(self) -> tuple[Lateness, ...]:
        """As of now."""
        return tuple(
            Lateness(name, tuple(counts), self._sums_s[name])
            for name, counts in self._counts.items()
        )
