"""In which order recovering partitions are folded: the shortest tail first, one after another.

Law of this module: decides and touches no client. One loop folds all tails, so the last partition
goes live at the same time in any order; folded side by side, all of them go live only then.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from refold.processors.partition import Name, Partition

STUCK_S: Final = 1.0
"""A tail that does not move for so long lets another have its turn (O6)."""


class Turns:
    """Recovering partitions that stay paused until it is their turn.

    Args:
        batch_records: The next begins when fewer than these are left, so that a batch is full
            and its first records are fetched meanwhile.
        clock: Monotonic seconds.
    """

    def __init__(self, batch_records: int, clock: Callable[[], float]) -> None:
        self.waiting: set[Name] = set()
        self._batch_records = batch_records
        self._clock = clock
        self._left = 0
        self._moved_s = clock()

    def due(
        self, partitions: Mapping[Name, Partition], held_back: Collection[Name]
    ) -> list[Partition]:
        """The partitions whose turn begins now; their fold begins with it.

        Args:
            partitions: All that are owned.
            held_back: Those that wait for something else, and hold up nobody meanwhile.
        """
        if not self.waiting:
            return []
        now_s = self._clock()
        left = sum(
            _tail(each)
            for name, each in partitions.items()
            if each.silent and name not in self.waiting and name not in held_back
        )
        if left != self._left:
            self._moved_s = now_s
        stuck = now_s - self._moved_s >= STUCK_S
        begun: list[Partition] = []
        waiting = (partitions[name] for name in self.waiting)
        for each in sorted(waiting, key=lambda each: (_tail(each), each.name)):
            if left >= self._batch_records and not stuck:
                break
            stuck = False
            self.waiting.discard(each.name)
            self._moved_s = each.taken_s = now_s
            left += _tail(each)
            begun.append(each)
        self._left = left
        return begun


def _tail(partition: Partition) -> int:
    return partition.silent_to - partition.position
