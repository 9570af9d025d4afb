"""The group's offsets, which follow the ledger's position: they tell a restored ledger what it
has lost (P32).

Law of this module: an offset that the group did not take is offered again; one of a partition
that goes is offered before it goes. None is ever ahead of the ledger.
"""

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_LOG = structlog.get_logger("refold.offsets")
COMMIT_S: Final = 0.1
"""The group's offset follows the ledger's position at least that soon."""


class Offsets:
    """The offsets of one consumer; on its thread, where its callbacks run too.

    Args:
        consumer: Whose; its `on_commit` is to call `told`.
        topic: The command topic.
    """

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._ends: dict[int, int] = {}
        """Partition → where the group's offset is to go."""
        self._next_s = 0.0

    def planned(self, partition: int, position: int) -> None:
        """The ledger has planned a partition up to here."""
        self._ends[partition] = position

    def follow(self) -> None:
        """Commit what is due, without waiting for the answer."""
        if self._ends and monotonic() > self._next_s:
            self._next_s = monotonic() + COMMIT_S
            self._commit(list(self._ends), wait=False)

    def leave(self, partitions: Iterable[int]) -> None:
        """These are about to be another's: the offset goes first."""
        self._commit([each for each in partitions if each in self._ends], wait=False)

    def drop(self, partitions: Iterable[int]) -> None:
        """These are another's: their offsets are for it to commit."""
        for each in partitions:
            self._ends.pop(each, None)

    def end(self) -> None:
        """Commit the rest and wait for the answer."""
        self._commit(list(self._ends), wait=True)

    def told(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """The group's answer to a commit: what it did not take is offered again."""
        refused = [each for each in places if error is not None or each.error is not None]
        if not refused:
            return
        ours = {each.partition for each in self._consumer.assignment()}
        for each in refused:
            if each.partition in ours and each.offset > self._ends.get(each.partition, -1):
                self._ends[each.partition] = each.offset
        why = error or refused[0].error
        _LOG.warning("the group's offsets do not move; they are offered again", error=str(why))

    def _commit(self, partitions: Sequence[int], *, wait: bool) -> None:
        ends = {each: self._ends.pop(each) for each in partitions}
        if not ends:
            return
        offsets = [TopicPartition(self._topic, each, end) for each, end in ends.items()]
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as failure:
            self._ends = ends | self._ends
            _LOG.warning("the group's offsets do not move", error=str(failure))
