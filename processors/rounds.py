"""One round: the records of one consume become at most one transaction.

Law of this module: PostgreSQL is read before the transaction begins and never inside it (P8);
memory changes only when the commit is known (P9); what is put back is read again from the
partition's position.
"""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Unanswered
from dataclasses import dataclass
from time import monotonic

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from refold.processors.assignment import Assignment
from refold.processors.batch import Pair, Released, fold_run, past
from refold.processors.divergence import LINES_MOST
from refold.processors.emission import Emission, TooLarge
from refold.processors.keeping import Keeper
from refold.processors.loading import Fetched, Loader
from refold.processors.options import Options
from refold.processors.partition import Key, Name, Overlay, Partition
from refold.processors.payloads import Fetching, Payloads, run_end
from refold.processors.ringing import Ringing
from refold.processors.suspects import BLAMED, SUSPECT_TIMES, Suspects
from refold.processors.transaction import Aborted, Transactor
from refold.processors.troubles import not_marked, out_of_range, reading_back
from refold.processors.vocabulary import Vocabulary
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, FenceError, InvariantViolation, RefoldError, ServerError
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.snapshots.ports import Store
from refold.topics.reading import offset_of
from refold.topics.records import CommandWriter, Fault

_LOG = structlog.get_logger("refold.rounds")
LOAD_S = 1.0
"""P11: loads of a round that take longer let the loop poll meanwhile."""
CAREFUL_AFTER_ABORTS = 2

Pairs = list[Pair]


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition that are ready to be folded, with what a redrive releases."""

    partition: Partition
    pairs: Pairs
    released: Released


class Rounds:
    """Runs rounds for a worker; see the module's law."""

    def __init__(
        self,
        options: Options,
        assignment: Assignment,
        loader: Loader,
        keeper: Keeper,
        store: Store,
        payloads: Payloads,
        vocabulary: Vocabulary,
        ringing: Ringing,
        clock: Callable[[], float],
    ) -> None:
        self.transactions = 0
        self.aborts = 0
        self._options = options
        self._assignment = assignment
        self._loader = loader
        self._keeper = keeper
        self._suspects = Suspects(store)
        self._fetching = Fetching(payloads)
        self._vocabulary = vocabulary
        self._ringing = ringing
        self._clock = clock
        self._aborts_in_a_row = 0
        self._careful = 0
        self._spent_s, self._folded, self._wait_until_s = 0.0, 0, 0.0
        self.throttled: set[Name] = set()
        """Partitions that are paused because too much of them is unsaved."""
        self._loads: dict[Name, tuple[Partition, Future[Fetched]]] = {}
        self._stalled: dict[Name, tuple[float, ServerError]] = {}
        """Partitions whose load failed, when they are read again, and why it failed."""
        self.awaited: set[Name] = set()
        """Partitions that a slow load has just brought what their next run needs (P16)."""
        self._writers: dict[str, CommandWriter] = {}

    @property
    def busy(self) -> bool:
        """True while a slow load is awaited."""
        return bool(self._loads)

    def settle(self) -> None:
        """Take in slow loads that ended; hold back partitions whose saves lag behind."""
        self._throttle()
        for name, (asked, load) in list(self._loads.items()):
            partition = self._assignment.partitions.get(name)
            if partition is asked and not load.done():
                continue
            del self._loads[name]
            if partition is asked:
                if self._admit(asked, load):
                    self.awaited.add(name)
                    self._resume(asked)
            elif partition is not None:  # taken anew meanwhile: those records are of another time
                self._resume(partition)
        for name in [each for each, (at_s, _) in self._stalled.items() if self._clock() >= at_s]:
            del self._stalled[name]
            partition = self._assignment.partitions.get(name)
            if partition is not None:
                self._resume(partition)
        for partition in self._assignment.next_turns(self.held_back()):
            self._resume(partition)

    def trouble(self, partition: Partition) -> ServerError | None:
        """What a partition waits for before it can be folded on, None if nothing is known."""
        return self._stalled.get(partition.name, (0.0, None))[1]

    def close(self) -> None:
        """End the threads that work beside the loop."""
        self._fetching.close()
        self._suspects.close()

    def run(self, consumer: Consumer, messages: list[Message], transactor: Transactor) -> None:
        """Fold, emit and commit what these records want, and the timers that are due.

        Raises:
            Finished: The producer is finished; every partition must be taken again.
        """
        began_s = monotonic()
        self._wait_until_s = began_s + LOAD_S
        runs = self._sorted(consumer, messages)
        self._spent_s, self._folded = monotonic() - began_s, 0
        live: list[Run] = []
        for partition, pairs in runs:
            try:
                ready = self._ready(partition, pairs)
            except ServerError as away:
                _LOG.warning("put back", partition=partition.number, error=str(away))
                self._stall(partition, away)
                ready = None
            except FenceError as error:  # the schema topic is not what it was
                self._stop(partition, error)
                continue
            if ready is None:
                self._put_back(consumer, partition, pause=True)
                continue
            rest = self._silently(ready)
            if rest.pairs:
                live.append(rest)
        careful = self._careful > 0 or any(each.partition.careful for each in live)
        if live and careful:
            live = self._one(consumer, live)
        quiet = self._ringing.plan([each.partition for each in live], self.held_back, careful)
        live += [Run(each, [], {}) for each in quiet]
        if live:
            self._commit(consumer, live, transactor)
        self._keeper.learn(self._folded, self._spent_s)

    def _throttle(self) -> None:
        """Pause partitions with too much unsaved state, resume them when it is saved (design 6)."""
        bound = self._options.held_records
        consumer = self._assignment.consumer
        for name, partition in list(self._assignment.partitions.items()):
            backlog = self._keeper.backlog(partition)
            if backlog > bound and name not in self.throttled and consumer is not None:
                _LOG.warning(
                    "paused until PostgreSQL takes more", partition=name[1], unsaved=backlog
                )
                self.throttled.add(name)
                self._put_back(consumer, partition, pause=True)
            elif name in self.throttled and backlog <= bound // 2:
                self.throttled.discard(name)
                self._resume(partition)
        self.throttled &= self._assignment.partitions.keys()
        self.awaited &= self._assignment.partitions.keys()

    # Before the transaction.

    def _sorted(self, consumer: Consumer, messages: list[Message]) -> list[tuple[Partition, Pairs]]:
        """Records by partition, in log order, of partitions that are still ours (P2)."""
        partitions = self._assignment.partitions
        runs: dict[Name, Pairs] = {}
        name: Name = ("", -1)
        pairs: Pairs = []
        read: Callable[[Message, int], EventRecord | Fault] | None = None
        for message in messages:
            if message.error() is not None:
                self._failed(message)
                continue
            if message.partition() != name[1] or message.topic() != name[0]:  # a stretch begins
                name = (message.topic(), message.partition())  # type: ignore[assignment]
                partition = partitions.get(name)
                if partition is None or name in self._loads or name in self._stalled:
                    read = None
                else:
                    read, pairs = partition.reader.read, runs.setdefault(name, [])
            if read is not None:
                pairs.append((message, read(message, name[1])))
        cut = [
            (partitions[name], self._until_redrive(consumer, partitions[name], fresh))
            for name, pairs in runs.items()
            if name in partitions  # an error message in between may have fenced it
            and (fresh := past(partitions[name], pairs))
        ]
        return [each for each in cut if each[0].name in partitions]

    def _failed(self, message: Message) -> None:
        error = message.error()
        name = (message.topic() or "", message.partition() or 0)
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._assignment.fence(name, out_of_range(name, error))
        else:
            _LOG.warning("kafka says", topic=name[0], partition=name[1], error=str(error))

    def _until_redrive(self, consumer: Consumer, partition: Partition, pairs: Pairs) -> Pairs:
        """A redrive begins a run, so that its instance's queue is known before it is folded."""
        end = run_end(pairs)
        if end == len(pairs):
            return pairs
        self._seek(consumer, partition, offset_of(pairs[end][0]))
        return pairs[:end]

    def _ready(self, partition: Partition, pairs: Pairs) -> Run | None:
        """See that schemas, instances and payloads are there; None: wait, and poll meanwhile."""
        if self._vocabulary.unknown(partition.workflow.name, pairs):
            self._vocabulary.refresh(partition.workflow.name, pairs)
        if not self._loaded(partition, pairs):
            return None
        given = self._fetching.ask(partition, pairs)
        if given is None:
            self._stall(partition, reading_back(partition))
            return None
        return Run(partition, pairs, given)

    def _loaded(self, partition: Partition, pairs: Pairs) -> bool:
        """See that memory holds what the run needs; False: put it back and poll."""
        self.awaited.discard(partition.name)
        if partition.complete:
            return True
        held = partition.held
        missing: dict[Key, None] = {}
        for _, event in pairs:
            if isinstance(event, EventRecord):
                key = (event.tenant, event.instance)
                if key not in held:
                    missing[key] = None
        if not missing:
            return True
        load = self._loader.submit(partition, list(missing))
        try:
            load.exception(max(0.0, self._wait_until_s - monotonic()))
        except Unanswered:
            self._loads[partition.name] = partition, load
            return False
        return self._admit(partition, load)

    def _admit(self, partition: Partition, load: Future[Fetched]) -> bool:
        try:
            partition.held.update(load.result().records)
        except (FenceError, InvariantViolation) as error:
            self._stop(partition, error)
            return False
        except ServerError as away:
            _LOG.warning("not loaded", partition=partition.number, error=str(away))
            self._stall(partition, away)
            return False
        return True

    def _silently(self, run: Run) -> Run:
        """Fold what was already sent (O5), give the rest; at its end compare the digest (P19)."""
        partition, pairs = run.partition, run.pairs
        if not partition.silent:
            return run
        ends = next(
            (
                place
                for place, (message, _) in enumerate(pairs)
                if offset_of(message) >= partition.silent_to
            ),
            len(pairs),
        )
        overlay = partition.overlay()
        try:
            self._timed(partition, overlay, pairs[:ends], None, run.released)
        except RefoldError as error:
            self._stop(partition, error)
            return Run(partition, [], {})
        if len(partition.tail) < LINES_MOST:
            partition.tail += overlay.folds
        overlay.close()
        if ends < len(pairs):
            overlay.position = max(overlay.position, partition.silent_to)
        partition.merge(overlay, self._clock(), rows=self._options.rows)
        difference = partition.diverged()
        if difference is not None:
            self._assignment.diverge(partition, difference)
            return Run(partition, [], {})
        if not partition.silent:
            partition.tail = []
            if partition.worded_otherwise():
                _LOG.error(
                    "commands of the tail were sent with other values than this code gives them",
                    topic=partition.topic,
                    partition=partition.number,
                    code=str(Code.REPLAY_DIVERGED),
                )
        return Run(partition, pairs[ends:], {} if ends else run.released)

    # The transaction.

    def _commit(self, consumer: Consumer, live: list[Run], transactor: Transactor) -> None:
        member = consumer.consumer_group_metadata()
        overlays: list[tuple[Partition, Overlay]] = []
        transactor.begin()
        try:
            for run in live:
                overlays.append((run.partition, self._fold(run, transactor)))
            ends = [_offset(each, overlay) for each, overlay in overlays]
            transactor.commit(ends, member, self._keeper.encode)
        except (Aborted, TooLarge, FenceError, InvariantViolation, KafkaException) as failure:
            self._undo(consumer, live, transactor, failure)
            return
        transactor.producer.poll(0)
        self.transactions += 1
        self._aborts_in_a_row = 0
        self._absolve(live)
        self._ringing.committed([each for each, _ in overlays])
        now_s = self._clock()
        for partition, overlay in overlays:
            if overlay.activations:
                partition.pending = None
            overlay.activations = []
            partition.merge(overlay, now_s, rows=self._options.rows)

    def _fold(self, run: Run, transactor: Transactor) -> Overlay:
        partition = run.partition
        overlay = partition.overlay()
        emission = self._emission(partition, overlay, transactor)
        if partition.pending is not None:
            emission.activate(partition.pending)
            overlay.activations.append(partition.pending)
        try:
            self._timed(partition, overlay, run.pairs, emission, run.released)
        except TooLarge as refusal:
            partition.forced[refusal.decision.offset] = refusal.decision
            raise
        except (FenceError, InvariantViolation) as error:
            self._stop(partition, error)
            raise
        self._ringing.ring(partition, overlay, emission)
        overlay.close()
        return overlay

    def _undo(
        self, consumer: Consumer, live: list[Run], transactor: Transactor, failure: Exception
    ) -> None:
        """Forget the overlays, put every partition back where its state stands (P9)."""
        self.aborts += 1
        _LOG.warning("aborted", error=str(failure))
        if isinstance(failure, KafkaException):
            try:
                transactor.judge(failure)
            except Aborted as aborted:
                failure = aborted
        elif not isinstance(failure, Aborted):
            transactor.abort()
        if isinstance(failure, Aborted):
            self._blame(live, failure)
        self._ringing.aborted([run.partition for run in live])
        for run in live:
            if run.partition.name in self._assignment.partitions:
                self._put_back(consumer, run.partition)

    # Careful mode (P12).

    def _one(self, consumer: Consumer, live: list[Run]) -> list[Run]:
        """One record of one partition, marked before it is folded; the others are put back."""
        first = next((each for each in live if each.partition.careful), live[0])
        partition, offset = first.partition, offset_of(first.pairs[0][0])
        for run in live:
            if run is not first:
                self._put_back(consumer, run.partition)
        wait_s = max(0.0, self._wait_until_s - monotonic())
        times = self._suspects.mark(partition, offset, wait_s)
        if times is None:
            self._stall(partition, not_marked(partition, offset))
            self._put_back(consumer, partition, pause=True)
            return []
        if len(first.pairs) > 1:
            self._seek(consumer, partition, offset + 1)
        if times > SUSPECT_TIMES:
            self._force(partition, offset, f"this record ended {times - 1} workers before")
        return [Run(partition, first.pairs[:1], first.released)]

    def _blame(self, live: list[Run], aborted: Aborted) -> None:
        """Enter careful mode after aborts in a row; in it, the record whose abort it was parks."""
        self._aborts_in_a_row += 1
        alone = len(live) == 1 and len(live[0].pairs) == 1
        if alone and aborted.error.code() in BLAMED and not self._ringing.rang(live[0].partition):
            partition, offset = live[0].partition, offset_of(live[0].pairs[0][0])
            self._force(partition, offset, f"its transaction aborts: {aborted.error.str()}")
        if self._aborts_in_a_row >= CAREFUL_AFTER_ABORTS:
            self._careful = self._options.careful_records

    def _absolve(self, live: list[Run]) -> None:
        """After a good transaction: a suspect is clear, and careful mode comes nearer its end."""
        for run in live:
            partition = run.partition
            if not self._careful and not partition.careful:
                continue
            partition.careful = max(0, partition.careful - 1)
            if run.pairs:  # else it has written one timer
                self._suspects.clear(partition, offset_of(run.pairs[0][0]))
        self._careful = max(0, self._careful - 1)

    def _force(self, partition: Partition, offset: int, text: str) -> None:
        reason = Reason(Code.SUSPECT, bounded_text(text))
        partition.forced.setdefault(offset, Decision(offset, Verdict.PARKED, reason))

    # Common.

    def _timed(
        self,
        partition: Partition,
        overlay: Overlay,
        pairs: Pairs,
        emission: Emission | None,
        given: Released,
    ) -> None:
        """Fold, and learn how long it takes: the snapshot cadence follows from it."""
        began_s = monotonic()
        fold_run(partition, overlay, pairs, emission, given, rows=self._options.rows)
        self._spent_s += monotonic() - began_s
        self._folded += len(pairs)

    def _emission(self, partition: Partition, overlay: Overlay, transactor: Transactor) -> Emission:
        namespace, workflow = self._options.namespace, partition.workflow.name
        writer = self._writers.get(workflow)
        if writer is None:
            writer = self._writers[workflow] = CommandWriter(namespace, workflow)

        def decided(offset: int) -> None:  # in the overlay: a cut must not know it before (P13)
            overlay.decided_to = max(overlay.decided_to, offset + 1)

        return Emission(
            transactor.producer,
            namespace,
            writer,
            partition.topic,
            f"{namespace}.{workflow}.rejected",
            partition.number,
            decided,
            self._vocabulary.frame,
        )

    def _stall(self, partition: Partition, away: ServerError) -> None:
        self._stalled[partition.name] = self._clock() + self._options.retry_s, away

    def _put_back(self, consumer: Consumer, partition: Partition, *, pause: bool = False) -> None:
        if pause:
            consumer.pause([TopicPartition(partition.topic, partition.number)])
        self._seek(consumer, partition, partition.position)

    def _seek(self, consumer: Consumer, partition: Partition, offset: int) -> None:
        try:
            consumer.seek(TopicPartition(partition.topic, partition.number, offset))
        except KafkaException as failure:  # a gap must not open: begin again from the marker
            self._assignment.drop(partition.name, f"it could not be put back: {failure}")

    def held_back(self) -> set[Name]:
        """Partitions that are paused: they wait for something."""
        return {*self.throttled, *self._loads, *self._stalled, *self._assignment.turns.waiting}

    def _resume(self, partition: Partition) -> None:
        consumer, name = self._assignment.consumer, partition.name
        if consumer is not None and name not in self.held_back():  # else its last reason does
            place = TopicPartition(partition.topic, partition.number, partition.position)
            try:
                consumer.seek(place)
                consumer.resume([place])
            except KafkaException as failure:
                self._assignment.drop(partition.name, f"it could not be resumed: {failure}")

    def _stop(self, partition: Partition, error: RefoldError) -> None:
        if error.code == Code.FENCED:
            self._assignment.drop(partition.name, str(error))
        else:
            self._assignment.fence(partition.name, error)


def _offset(partition: Partition, overlay: Overlay) -> TopicPartition:
    metadata = overlay.digests.metadata(partition.epoch)
    return TopicPartition(partition.topic, partition.number, overlay.position, metadata)
