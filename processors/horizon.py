"""The horizon: asks the due index for the timers that come near, page by page, beside the loop.

Law of this module: first the horizon of a partition moves, so that what is armed from now on is
listed by the fold itself; only when the rows stand behind the position of that moment is the
index asked for the rest. So nothing falls between the two, and no instance has to be in memory.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from refold.processors.dues import Dues, Place
from refold.processors.instance import Timer
from refold.processors.partition import Key, Name, Partition
from refold.processors.projection import timers_of
from refold.schemas.errors import Code, FenceError, ServerError
from refold.snapshots.model import Due, DueRow
from refold.snapshots.ports import Store

_LOG = structlog.get_logger("refold.horizon")
PAGE_ROWS: Final = 5_000
LISTED_MOST: Final = 50_000
"""Instances of one partition that are listed before the horizon stops short of its end."""
_BEHIND_ALL: Final = chr(0x10FFFF)
"""No tenant comes behind it."""

Found = list[tuple[Key, tuple[Timer, ...]]]


@dataclass(slots=True)
class Extension:
    """A horizon that has moved and whose pages are read."""

    partition: Partition
    after: Place
    position: int
    """Rows must stand behind it before the index is asked."""
    page: Future[tuple[Due, Found]] | None = None
    retry_at_s: float = 0.0


class Horizon:
    """Extends the horizons of owned partitions.

    Args:
        store: PostgreSQL.
        length_s: How far the horizon reaches; it is extended when half of it is left.
        retry_s: Pause after an answer that did not come.
        clock: Monotonic seconds.
        drop: Called with a partition that turns out to be somebody else's, and why.
    """

    def __init__(
        self,
        store: Store,
        length_s: float,
        retry_s: float,
        clock: Callable[[], float],
        drop: Callable[[Name, str], None],
    ) -> None:
        self._store = store
        self._length_ms = int(length_s * 1000)
        self._retry_s = retry_s
        self._clock = clock
        self._drop = drop
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="horizon")
        self._extensions: dict[Name, Extension] = {}

    @property
    def busy(self) -> bool:
        """True while a page is awaited."""
        return any(each.page is not None for each in self._extensions.values())

    def settle(self, partitions: Mapping[Name, Partition], now_ms: int) -> None:
        """Take in pages that came, ask for those that are wanted; between two batches.

        Args:
            partitions: All that are owned.
            now_ms: The owner's wall clock.
        """
        for name in self._extensions.keys() - partitions.keys():
            del self._extensions[name]
        for name, partition in list(partitions.items()):
            if partition.dues is not None:
                self._advance(name, partition, partition.dues, now_ms)

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _advance(self, name: Name, partition: Partition, dues: Dues, now_ms: int) -> None:
        extension = self._extensions.get(name)
        if extension is None or extension.partition is not partition:  # taken anew meanwhile
            self._extensions.pop(name, None)
            if dues.end[0] - now_ms < self._length_ms // 2 and len(dues) <= LISTED_MOST // 2:
                self._begin(name, partition, dues, now_ms)
        elif extension.page is None:
            if partition.rows_to >= extension.position and self._clock() >= extension.retry_at_s:
                extension.page = self._pool.submit(self._read, extension, dues.end[0])
        elif extension.page.done():
            self._take(name, extension, dues, extension.page)

    def _begin(self, name: Name, partition: Partition, dues: Dues, now_ms: int) -> None:
        """At take-over this comes before the first record: rows are never behind the marker."""
        self._extensions[name] = Extension(partition, dues.end, partition.position)
        dues.end = (now_ms + self._length_ms, _BEHIND_ALL, "")

    def _read(self, extension: Extension, until_ms: int) -> tuple[Due, Found]:
        partition = extension.partition
        due = self._store.due(
            partition.topic,
            partition.number,
            partition.workflow.name,
            extension.after,
            until_ms,
            PAGE_ROWS,
        )
        if due.epoch != partition.epoch or due.rows_to < extension.position:
            raise FenceError(
                Code.FENCED,
                f"Partition {partition.topic}[{partition.number}] changed hands or lost commits:"
                f" expected epoch {partition.epoch} and rows to {extension.position} at least,"
                f" found epoch {due.epoch} and rows to {due.rows_to}.",
                "It is taken again from what stands in PostgreSQL.",
            )
        return due, list(_readable(due.rows))

    def _take(
        self, name: Name, extension: Extension, dues: Dues, page: Future[tuple[Due, Found]]
    ) -> None:
        extension.page = None
        try:
            due, found = page.result()
        except FenceError as error:
            del self._extensions[name]
            self._drop(name, str(error))
            return
        except ServerError as away:
            _LOG.warning("timers are not read", partition=name[1], error=str(away))
            extension.retry_at_s = self._clock() + self._retry_s
            return
        dues.found(found, extension.partition.held.get)
        if len(due.rows) < PAGE_ROWS:
            del self._extensions[name]
            return
        last = due.rows[-1]
        extension.after = last.due_ms, last.tenant, last.instance
        if len(dues) >= LISTED_MOST:  # it goes on when most of these have rung
            dues.end = extension.after
            del self._extensions[name]


def _readable(rows: Collection[DueRow]) -> Found:
    found: Found = []
    for row in rows:
        try:
            timers = timers_of(row.timers)
        except msgspec.MsgspecError as error:  # changed by hand: the log has it still
            _LOG.error("a row's timers do not load", instance=row.instance, error=str(error))
        else:
            found.append(((row.tenant, row.instance), timers))
    return found
