"""Suspects of careful mode: records marked in PostgreSQL before they are folded alone (P12).

Law of this module: PostgreSQL is asked on a thread of its own, one request after the other, and
the loop waits for it no longer than it says: a server that hangs must not stop its polls (P11).
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as Unanswered
from typing import Final

import structlog
from confluent_kafka import KafkaError

from refold.processors.partition import Partition
from refold.schemas.errors import ServerError
from refold.snapshots.ports import Store

_LOG = structlog.get_logger("refold.suspects")
CLOSE_S: Final = 2.0
SUSPECT_TIMES: Final = 2
"""A record may end one worker by chance; the second time it is the record."""
BLAMED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Errors that a record of the transaction causes; any other abort is nobody's fault here."""
_Place = tuple[str, int, int, int]
"""Topic, partition, epoch, offset."""


class Suspects:
    """Marks suspects and clears them.

    Args:
        store: PostgreSQL.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="suspects")
        self._asked: dict[tuple[str, int], tuple[_Place, Future[int]]] = {}
        self._last: Future[int] | None = None

    def mark(self, partition: Partition, offset: int, wait_s: float) -> int | None:
        """Mark a record of a partition before it is folded alone.

        Args:
            partition: Its partition.
            offset: Where it stands.
            wait_s: Longest wait for the answer, in seconds; asked again, it is not waited for.

        Returns:
            How often it was marked, this time included; once where PostgreSQL refused, for a
            server that is away shall stop no fold; None while there is no answer: ask again.
        """
        place = (partition.topic, partition.number, partition.epoch, offset)
        asked, times = self._asked.get(partition.name, (None, None))
        if asked != place or times is None:
            times = self._submit(lambda: self._store.suspect(partition.topic, place[1], offset))
            self._asked[partition.name] = place, times
        else:
            wait_s = 0.0
        try:
            found = times.result(wait_s)
        except Unanswered:
            return None
        except ServerError as away:
            _LOG.warning("the suspect is not marked", error=str(away))
            found = 1
        del self._asked[partition.name]
        return found

    def clear(self, partition: Partition, offset: int) -> None:
        """Unmark a record that did no harm, when its turn comes."""

        def work() -> int:
            try:
                self._store.clear(partition.topic, partition.number, offset)
            except ServerError as away:
                _LOG.warning("the suspect is not cleared", error=str(away))
            return 0

        self._submit(work)

    def close(self) -> None:
        """Let what was asked for be done, within a bound, and end the thread."""
        if self._last is not None:
            wait([self._last], CLOSE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], int]) -> Future[int]:
        self._last = self._pool.submit(work)
        return self._last
