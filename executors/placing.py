"""Where each partition of the command topic is read from: the ledger's own position (P32).

Law of this module: callbacks of the group, which run inside the intake's `poll` only. The ledger
is asked until it answers, for a position that is guessed would lose commands or plan forgotten
ones. A position that the log does not hold is told; it never moves in silence.
"""

from collections.abc import Callable, Iterable
from functools import partial
from threading import Event
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from refold.executors.ledger import Ledger
from refold.executors.model import Place
from refold.schemas.errors import ServerError
from refold.topics.clients import admin_config, opened
from refold.topics.facts import topic_id
from refold.topics.failures import kafka_error
from refold.topics.lookup import bounds_of
from refold.topics.settings import Settings
from refold.topics.specs import commands_topic

_LOG = structlog.get_logger("refold.placing")
ANSWER_S: Final = 10.0
PAUSE_S: Final = 0.5
Told = Callable[[Iterable[int]], None]


class Placing:
    """The partitions that the group gives to one intake.

    Args:
        settings: Where Kafka is.
        target: Whose commands.
        ledger: Knows how far they are planned.
    """

    def __init__(self, settings: Settings, target: str, ledger: Ledger) -> None:
        self.topic = commands_topic(settings.namespace, target)
        self.joined = False
        self.lost: dict[int, int] = {}
        """Partition → commands that were removed from the log before they were planned."""
        self._target = target
        self._ledger = ledger
        self._admin: AdminClient = opened(AdminClient, admin_config(settings))
        self._topic_id = ""
        self._committed: dict[int, int] = {}
        """Partition → the group's offset when it was assigned."""
        self._stopping = Event()
        self._leaving: Told = lambda _: None
        self._changed: Told = lambda _: None

    def subscribe(self, consumer: Consumer, leaving: Told, changed: Told) -> None:
        """Join the group.

        Args:
            consumer: The intake's.
            leaving: Told which partitions are about to go, while they are still ours.
            changed: Told with every change of what is assigned which partitions have gone.
        """
        self._leaving, self._changed = leaving, changed
        consumer.subscribe(
            [self.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def stop(self) -> None:
        """Wait for no answer any more."""
        self._stopping.set()

    def place(self, partition: int, position: int) -> Place:
        """A position as the ledger keeps it."""
        return Place(self.topic, partition, self._topic_id, position)

    def forgotten_below(self, partition: int) -> int:
        """Commands below this were planned once, whatever the ledger says now."""
        return self._committed.get(partition, 0)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = True
        placed = []
        for each in partitions:
            offset = self._insist(partial(self._position, consumer, each.partition))
            if offset is not None:
                each.offset = offset
                placed.append(each)
        consumer.incremental_assign(placed)
        self._changed([])
        _LOG.info("assigned", partitions={each.partition: each.offset for each in placed})

    def find_again(self, consumer: Consumer, partition: int) -> None:
        """What was to be read next is not on the log any more: go on where the ledger stands."""
        self._topic_id = ""  # it may have been made anew
        offset = self._insist(partial(self._position, consumer, partition))
        if offset is not None:  # a seek is refused where the position is lost
            consumer.incremental_unassign([TopicPartition(self.topic, partition)])
            consumer.incremental_assign([TopicPartition(self.topic, partition, offset)])
            self._changed([])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leaving([each.partition for each in partitions])
        self._lost(consumer, partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self._changed([each.partition for each in partitions])
        if partitions:
            _LOG.info("revoked", partitions=[each.partition for each in partitions])

    def _insist(self, ask: Callable[[], int]) -> int | None:
        while not self._stopping.is_set():
            try:
                return ask()
            except ServerError as away:
                _LOG.warning("a partition is not read yet", error=str(away))
                self._stopping.wait(PAUSE_S)
        return None

    def _position(self, consumer: Consumer, partition: int) -> int:
        """Where to read from, and what the group has passed already."""
        self._topic_id = self._topic_id or topic_id(self._admin, self.topic, ANSWER_S)
        try:
            (committed,) = consumer.committed([TopicPartition(self.topic, partition)], ANSWER_S)
        except KafkaException as failure:
            raise kafka_error(failure, f"asking for the offset of {self.topic}") from failure
        # After the offset: a predecessor that still plans moves the ledger first.
        known = self._ledger.position(self.topic, partition)
        if known is not None and known[0] not in ("", self._topic_id):
            _LOG.warning("the command topic was made anew: it is read from its beginning",
                         topic=self.topic, partition=partition)  # fmt: skip
            known, self._committed[partition] = None, 0
        else:
            self._committed[partition] = max(0, committed.offset)
        wanted = known[1] if known is not None else 0
        if self._committed[partition] > wanted:
            self._tell_restored(partition, wanted)
        first, end = bounds_of(consumer, self.topic, partition)
        return self._inside(partition, wanted, first, end, fresh=known is None)

    def _tell_restored(self, partition: int, position: int) -> None:
        """The ledger is older than the group's offset: what it says is planned may be done."""
        doubtful = self._ledger.distrust(self._target, partition)
        _LOG.error(
            "the ledger knows less than the group has passed: it was restored. What it has planned"
            " or forgotten below the group's offset counts as unknown",
            partition=partition, position=position, committed=self._committed[partition],
            doubtful=doubtful,
        )  # fmt: skip

    def _inside(self, partition: int, wanted: int, first: int, end: int, *, fresh: bool) -> int:
        if first <= wanted <= end or fresh:
            return max(wanted, first)
        self.lost[partition] = first - wanted if wanted < first else 0
        _LOG.error(
            "the log does not hold what is to be planned next: it was removed, or the log is"
            " shorter than it was",
            topic=self.topic, partition=partition, position=wanted, first=first, end=end,
        )  # fmt: skip
        return first if wanted < first else end
