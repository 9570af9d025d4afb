"""Intake: commands of one target become planned rows, and only then the group's offsets move.

Law of this module: read committed; one ledger transaction holds the rows of a batch and how far it
reaches, and the ledger's own position is where a partition is read from (P32). Commands below the
group's offset without a row are those of a ledger that was restored: they are born unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from refold.executors.executor import Action
from refold.executors.ledger import Ledger, Place
from refold.executors.model import Intent, Status
from refold.schemas.envelope import CommandRecord
from refold.schemas.errors import RecordError, ServerError
from refold.topics.clients import executor_consumer_config, opened
from refold.topics.reading import offset_of
from refold.topics.records import read_command
from refold.topics.settings import Settings
from refold.topics.specs import commands_topic

_LOG = structlog.get_logger("refold.intake")
BATCH_RECORDS: Final = 1000
WAIT_S: Final = 0.1
PAUSE_S: Final = 1.0


class Intake:
    """Reads the commands of a target into a ledger.

    Args:
        settings: Where Kafka is.
        target: Whose commands.
        actions: What this executor does, by command type.
        ledger: Where they are planned.
        planned: Called after each batch that brought something.
        stopping: Ends `run`.

    Contract: one thread.
    """

    def __init__(
        self,
        settings: Settings,
        target: str,
        actions: Mapping[str, Action],
        ledger: Ledger,
        planned: Callable[[], None],
        stopping: Event,
    ) -> None:
        self.topic = commands_topic(settings.namespace, target)
        self._target = target
        self._actions = actions
        self._ledger = ledger
        self._planned = planned
        self._stopping = stopping
        group = f"{settings.namespace}.{target}.executors"
        self._consumer = opened(Consumer, executor_consumer_config(settings, group))
        self._committed: dict[int, int] = {}
        """Partition → the group's offset when it was assigned."""

    def run(self) -> None:
        """Plan commands until stopping."""
        self._consumer.subscribe([self.topic], on_assign=self._assigned)
        try:
            while not self._stopping.is_set():
                messages = [m for m in self._consumer.consume(BATCH_RECORDS, WAIT_S) if _good(m)]
                if messages:
                    self._plan(messages)
        finally:
            self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in consumer.committed(partitions, 10):
            self._committed[place.partition] = max(0, place.offset)
            known = self._ledger.position(self.topic, place.partition)
            place.offset = 0 if known is None else known
            consumer.incremental_assign([place])

    def _plan(self, messages: Sequence[Message]) -> None:
        fresh: list[Intent] = []
        forgotten: list[Intent] = []
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition() or 0, offset_of(message)
            ends[partition] = offset + 1
            intent = self._intent(message)
            if intent is not None:
                below = offset < self._committed.get(partition, 0)
                (forgotten if below else fresh).append(intent)
        places = [Place((self.topic, partition, "", end)) for partition, end in ends.items()]
        while not self._stopping.is_set():
            try:
                clashes = self._ledger.plan(forgotten, [], Status.UNKNOWN) if forgotten else []
                clashes += self._ledger.plan(fresh, places)
            except ServerError as away:
                _LOG.warning("not planned", error=str(away))
                self._stopping.wait(PAUSE_S)
                continue
            for key in clashes:
                _LOG.error("a key came again with another request: refused", key=key)
            self._passed(ends)
            self._planned()
            return

    def _passed(self, ends: Mapping[int, int]) -> None:
        offsets = [TopicPartition(self.topic, partition, end) for partition, end in ends.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as failure:  # the ledger's position is what counts
            _LOG.warning("the group's offset did not move", error=str(failure))

    def _intent(self, message: Message) -> Intent | None:
        try:
            record = read_command(message)
        except RecordError as error:
            _LOG.error("a record is no command", error=str(error))
            return None
        action = self._actions.get(record.type)
        if action is None:
            _LOG.error("no handler for this command", type=record.type, key=record.key)
            return None
        return intent_of(record, action, self._target, message.partition() or 0)


def intent_of(record: CommandRecord, action: Action, target: str, partition: int) -> Intent:
    """A command as its ledger row."""
    parts = record.key.split(":")
    readable = parts[0] == "r1" and len(parts) == 8
    return Intent(
        key=record.key,
        tenant=record.tenant,
        workflow=record.workflow,
        instance=record.instance,
        state=record.state,
        action=parts[5] if readable else record.type,
        direction=parts[-1] if parts[-1] in ("forward", "compensate") else "forward",
        target=target,
        target_system=action.system,
        truth=action.truth.mode,
        type=record.type,
        request=record.value,
        attempt=record.attempt,
        reply_to=record.reply_to,
        trace=(record.traceparent or b"").decode(),
        partition=partition,
        offset=record.offset,
    )


def _good(message: Message) -> bool:
    error = message.error()
    if error is not None:
        _LOG.warning("kafka says", error=str(error))
    return error is None
