"""Intake: commands of one target become rows of the ledger, and only then the group's offsets move.

Law of this module: read committed; one ledger transaction holds the rows of a batch and how far
it reaches. Nothing is passed in silence: what is no command is kept with its bytes, and what
nobody here handles is planned and shown. While the ledger is away nothing is read.
"""

from collections import Counter
from collections.abc import Iterable
from threading import Event
from time import monotonic
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import Consumer, KafkaError, Message

from refold.executors.claiming import Claimer
from refold.executors.dispatch import Dispatch, Started, lease_of
from refold.executors.executor import Action, Executor
from refold.executors.lanes import Lanes
from refold.executors.ledger import LINGER_S, Ledger
from refold.executors.model import Claimed, Intent, Place, Planned, Rejected, Status
from refold.executors.offsets import Offsets
from refold.executors.placing import Placing
from refold.executors.reading import Schemas
from refold.executors.truth import Mode
from refold.processors.health import BACK
from refold.processors.keys import COMPENSATE, FORWARD
from refold.schemas.envelope import CommandRecord
from refold.schemas.errors import Code, RecordError, ServerError
from refold.snapshots.faults import unfit
from refold.topics.command_reader import CommandReader
from refold.topics.failures import kafka_error
from refold.topics.headers import headers_of
from refold.topics.reading import offset_of

_LOG = structlog.get_logger("refold.intake")
BATCH_RECORDS: Final = 500
WAIT_S: Final = 0.1
PAUSE_S: Final = 0.5
BATCH_BYTES: Final = 8_000_000
"""Of one transaction, unless a single command is larger."""
_DIRECTIONS: Final = frozenset({FORWARD, COMPENSATE})
WAITING_MOST: Final = 20_000
"""Rows that wait for a slot before no more commands are read."""


class Batch(NamedTuple):
    """Commands that were read, as the ledger takes them."""

    intents: list[Intent]
    commands: dict[str, Any]
    """Decoded, by key, of those that hold a slot."""
    forgotten: list[Intent]
    rejected: list[Rejected]
    places: list[Place]


class Intake:
    """Reads the commands of a target into a ledger.

    Args:
        executor: What is done here.
        consumer: Of the command topic, not subscribed yet; closed here.
        placing: Where each partition is read from.
        ledger: Where the commands are planned.
        lanes: Gives the slots of calls that begin at once.
        schemas: Decodes commands.
        dispatch: Begins calls.
        claimer: Begins the others.

    Contract: `run` on one thread.
    """

    def __init__(
        self,
        executor: Executor,
        consumer: Consumer,
        placing: Placing,
        ledger: Ledger,
        lanes: Lanes,
        schemas: Schemas,
        dispatch: Dispatch,
        claimer: Claimer,
    ) -> None:
        self._executor = executor
        self._consumer = consumer
        self._placing = placing
        self._ledger = ledger
        self._lanes = lanes
        self._schemas = schemas
        self._dispatch = dispatch
        self._claimer = claimer
        self._reader = CommandReader()
        self._company = False
        """The last command that was read did not come alone."""
        self._stopping = Event()
        self._held: list[Message] = []
        """Records that were read and not planned yet."""
        self.offsets = Offsets(consumer, placing.topic)
        self._paused: bool | None = False
        """None: of some partitions this is not known."""
        self._alone = 0
        """So many of the held records are planned one by one: one of them was refused."""
        self.at_s = monotonic()
        """When this thread last turned."""
        self.unhandled: Counter[str] = Counter()
        """Commands that nobody here handles, by type, since the start."""
        self.planned = 0
        self.rejected = 0
        self.clashes = 0
        self.away = ""
        """Code of what keeps commands from being read or planned; empty where nothing does."""

    @property
    def joined(self) -> bool:
        """True when the group has given partitions, or none, to this process."""
        return self._placing.joined

    @property
    def lost(self) -> dict[int, int]:
        """Partition → commands that the log had lost before they were planned."""
        return self._placing.lost

    @property
    def waiting(self) -> int:
        """Rows that were planned here and have not begun."""
        return self._claimer.waiting

    def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        self._placing.stop()

    def run(self) -> None:
        """Plan commands until stopped."""
        self._placing.subscribe(self._consumer, self.offsets.leave, self._dropped)
        try:
            while not self._stopping.is_set():
                self.at_s = monotonic()
                self._turn()
            self.offsets.end()
        finally:
            self._consumer.close()

    def _turn(self) -> None:
        full = self._claimer.waiting > WAITING_MOST
        self._pause(full or bool(self._held))
        read = self._read(0.0 if self._held else WAIT_S)
        self._held += read  # what was held may have gone to another process while this was read
        while self._held and not self._stopping.is_set():
            planned = self._plan(self._next())
            if not planned:
                self._stopping.wait(PAUSE_S)
                break
            self._held = self._held[planned:]
            self._alone = max(0, self._alone - planned)
        self.offsets.follow()

    def _next(self) -> list[Message]:
        """Records for one transaction, from the front of what is held."""
        if self._alone:
            return self._held[:1]
        count = size = 0
        for each in self._held:
            size += len(each.value() or b"")
            if count and size > BATCH_BYTES:
                break
            count += 1
        return self._held[:count]

    def _read(self, wait_s: float) -> list[Message]:
        first = self._consumer.poll(wait_s)  # wakes at once; consume alone waits for a full batch
        if first is None:
            return []
        linger_s = LINGER_S if self._company else 0.0
        found = [first, *self._consumer.consume(BATCH_RECORDS - 1, linger_s)]
        self._company = len(found) > 1
        return [each for each in found if self._good(each)]

    def _good(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._placing.find_again(self._consumer, message.partition() or 0)
        elif error.code() != KafkaError._PARTITION_EOF:
            told = kafka_error(error, "reading commands")
            self.away = str(told.code)
            _LOG.warning("commands are not read", error=str(told))
        return False

    def _pause(self, pause: bool) -> None:
        if pause is self._paused:
            return
        places = self._consumer.assignment()
        (self._consumer.pause if pause else self._consumer.resume)(places)
        self._paused = pause

    def _dropped(self, partitions: Iterable[int]) -> None:
        """These are another process's now: what was read of them is for it to plan."""
        gone = set(partitions)
        self._held = [each for each in self._held if each.partition() not in gone]
        self.offsets.drop(gone)
        self._paused = None  # what was assigned anew is not paused, and the others may be

    def _plan(self, messages: list[Message]) -> int:
        """Write a batch, or its first one; gives how many, 0: ledger or schemas are away."""
        try:
            batch = self._batch(messages)
        except ServerError as away:
            self._tell_away(away)
            return 0
        claimed_s = monotonic()
        try:
            if batch.forgotten:
                self._ledger.plan(batch.forgotten, [], Status.UNKNOWN)
            planned = self._ledger.plan(batch.intents, batch.places, rejected=batch.rejected)
        except ServerError as away:
            self._give_back(batch.intents)
            if unfit(away):
                return self._refused(messages, batch, away)
            self._tell_away(away)
            return 0
        self._tell_back()
        self._begin(batch, planned, claimed_s)
        for each in batch.places:
            self.offsets.planned(each.partition, each.position)
        return len(messages)

    def _refused(self, messages: list[Message], batch: Batch, error: ServerError) -> int:
        """The ledger cannot hold something of these: the others must not wait for it."""
        if len(messages) > 1:
            self._alone = len(messages)
            return self._plan(messages[:1])
        told = RecordError(Code.NOT_STORABLE, f"a command cannot be planned: {error.what}")
        try:
            self._ledger.plan([], batch.places, rejected=[_rejected(messages[0], told)])
        except ServerError as away:
            self._tell_away(away)
            return 0
        self.rejected += 1
        return len(messages)

    def _batch(self, messages: Iterable[Message]) -> Batch:
        batch = Batch([], {}, [], [], [])
        ends: dict[int, int] = {}
        busy: set[tuple[str, str, str]] = set()
        """Instances of which this batch has an earlier command: the later ones wait."""
        try:
            for message in messages:
                partition, offset = message.partition() or 0, offset_of(message)
                ends[partition] = offset + 1
                try:
                    record = self._reader.read(message)
                except RecordError as error:
                    batch.rejected.append(_rejected(message, error))
                    continue
                self._add(batch, busy, record, partition)
        except ServerError:
            self._give_back(batch.intents)
            raise
        batch.places.extend(self._placing.place(each, end) for each, end in ends.items())
        return batch

    def _add(
        self, batch: Batch, busy: set[tuple[str, str, str]], record: CommandRecord, partition: int
    ) -> None:
        action = self._executor.actions.get(record.type)
        if action is None:
            self.unhandled[record.type] += 1
            _LOG.error("nobody here handles this command", type=record.type, key=record.key)
        forgotten = record.offset < self._placing.forgotten_below(partition)
        if forgotten and (action is None or action.truth.mode != Mode.LOCAL):
            batch.forgotten.append(self._intent(record, partition, action))
            return
        if action is None:
            batch.intents.append(self._intent(record, partition, None))
            return
        instance = (record.tenant, record.workflow, record.instance)
        first = action.independent or instance not in busy
        busy.add(instance)
        lease_s = 0.0
        try:
            command = self._schemas.decode(action, record.value)
            twice = record.key in batch.commands
            if first and not twice and not self._claimer.waiting and self._lanes.take(record.type):
                lease_s = lease_of(action)
                batch.commands[record.key] = command
        except RecordError as error:  # the claimer meets it again and says so to the workflow
            _LOG.error("a command cannot be decoded", key=record.key, error=str(error))
        batch.intents.append(self._intent(record, partition, action, lease_s))

    def _intent(
        self, record: CommandRecord, partition: int, action: Action | None, lease_s: float = 0.0
    ) -> Intent:
        """A command as its ledger row; without an action as nobody's who handles it."""
        target = self._executor.target
        parts = record.key.split(":")
        readable = parts[0] == "r1" and len(parts) == 8
        return Intent(
            key=record.key,
            tenant=record.tenant,
            workflow=record.workflow,
            instance=record.instance,
            state=record.state,
            action=parts[5] if readable else record.type,
            direction=parts[-1] if parts[-1] in _DIRECTIONS else FORWARD,
            target=target,
            target_system=target if action is None else action.system,
            truth=Mode.NEITHER if action is None else action.truth.mode,
            type=record.type,
            request=record.value,
            attempt=record.attempt,
            reply_to=record.reply_to,
            trace=(record.traceparent or b"").decode(),
            partition=partition,
            offset=record.offset,
            independent=action is not None and action.independent,
            lease_s=lease_s,
        )

    def _begin(self, batch: Batch, planned: Planned, claimed_s: float) -> None:
        """Begin what was claimed with its planning; give back the slots of the rest."""
        started = []
        left = 0
        for intent in batch.intents:
            epoch = planned.claimed.get(intent.key)
            if not intent.lease_s:
                left += intent.type in self._executor.actions
            elif epoch is None:
                self._lanes.untake(intent.type)
                left += 1
            else:
                claimed = _claimed(intent, epoch)
                started.append(Started(claimed, batch.commands[intent.key], claimed_s))
        self._dispatch.start(started)
        if left:
            undoing = any(each.direction == COMPENSATE for each in batch.intents)
            self._claimer.wait_for(left, undoing=undoing)
        for key in planned.clashes:
            _LOG.error("a key came again with another request: refused", key=key)
        self.planned += len(batch.intents) + len(batch.forgotten)
        self.rejected += len(batch.rejected)
        self.clashes += len(planned.clashes)

    def _give_back(self, intents: Iterable[Intent]) -> None:
        for each in intents:
            if each.lease_s:
                self._lanes.untake(each.type)

    def _tell_away(self, error: ServerError) -> None:
        self.away = str(error.code)
        _LOG.warning("commands are not planned yet", error=str(error), held=len(self._held))

    def _tell_back(self) -> None:
        if self.away:
            _LOG.info(BACK, code=self.away)
            self.away = ""


def _claimed(intent: Intent, epoch: int) -> Claimed:
    return Claimed(
        key=intent.key, tenant=intent.tenant, workflow=intent.workflow, instance=intent.instance,
        state=intent.state, action=intent.action, direction=intent.direction, type=intent.type,
        request=intent.request, attempt=intent.attempt, epoch=epoch, reply_to=intent.reply_to,
        trace=intent.trace, known=Status.PLANNED,
    )  # fmt: skip


def _rejected(message: Message, error: RecordError) -> Rejected:
    _LOG.error("a record is no command: it is kept", error=str(error))
    return Rejected(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=offset_of(message),
        record_key=message.key(),
        headers=headers_of(message),
        value=message.value(),
        code=str(error.code),
        text=error.what,
    )
