"""One round: the records of one consume become at most one transaction.

Law of this module: PostgreSQL is read before the transaction begins and never inside it (P8);
memory changes only when the commit is known (P9); what is put back is read again from the
partition's position.
"""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Unanswered

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from refold.processors.assignment import Assignment, Name, diverged
from refold.processors.batch import fold_run
from refold.processors.emission import Emission, TooLarge
from refold.processors.keeping import Keeper
from refold.processors.loading import Fetched, Loader
from refold.processors.options import Options
from refold.processors.partition import Key, Overlay, Partition
from refold.processors.payloads import Payloads, released, run_end
from refold.processors.transaction import Aborted, Transactor
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, FenceError, InvariantViolation, RefoldError, ServerError
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.snapshots.ports import Store
from refold.topics.reading import offset_of
from refold.topics.records import CommandWriter, Fault

_LOG = structlog.get_logger("refold.rounds")
LOAD_S = 1.0
"""P11: a load that takes longer lets the loop poll meanwhile."""
CAREFUL_AFTER_ABORTS = 2

Pairs = list[tuple[Message, EventRecord | Fault]]


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
        clock: Callable[[], float],
    ) -> None:
        self.transactions = 0
        self.aborts = 0
        self._options = options
        self._assignment = assignment
        self._loader = loader
        self._keeper = keeper
        self._store = store
        self._payloads = payloads
        self._clock = clock
        self._aborts_in_a_row = 0
        self._careful = 0
        self.throttled: set[Name] = set()
        """Partitions that are paused because too much of them is unsaved."""
        self._loads: dict[Name, Future[Fetched]] = {}
        self._stalled: dict[Name, float] = {}
        """Partitions whose load failed, and when they are read again."""
        self._writers: dict[str, CommandWriter] = {}

    @property
    def busy(self) -> bool:
        """True while a slow load is awaited."""
        return bool(self._loads)

    def settle(self) -> None:
        """Take in slow loads that ended; hold back partitions whose saves lag behind."""
        self._throttle()
        for name, load in list(self._loads.items()):
            if not load.done():
                continue
            del self._loads[name]
            partition = self._assignment.partitions.get(name)
            if partition is not None and self._admit(partition, load):
                self._resume(partition)
        now_s = self._clock()
        for name in [each for each, at_s in self._stalled.items() if now_s >= at_s]:
            del self._stalled[name]
            partition = self._assignment.partitions.get(name)
            if partition is not None:
                self._resume(partition)

    def run(self, consumer: Consumer, messages: list[Message], transactor: Transactor) -> None:
        """Fold, emit and commit what these records want.

        Raises:
            Finished: The producer is finished; every partition must be taken again.
        """
        runs = self._sorted(consumer, messages)
        live: list[tuple[Partition, Pairs]] = []
        for partition, pairs in runs:
            if not self._loaded(partition, pairs):
                self._put_back(consumer, partition, pause=True)
                continue
            rest = self._silently(partition, pairs)
            if rest:
                live.append((partition, rest))
        if live:
            if self._careful:
                live = self._one(consumer, live)
            self._commit(consumer, live, transactor)

    def _throttle(self) -> None:
        """Pause partitions with too much unsaved state, resume them when it is saved (design 6)."""
        bound = self._options.held_records
        consumer = self._assignment.consumer
        for name, partition in self._assignment.partitions.items():
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

    # Before the transaction.

    def _sorted(self, consumer: Consumer, messages: list[Message]) -> list[tuple[Partition, Pairs]]:
        """Records by partition, in log order, of partitions that are still ours (P2)."""
        partitions = self._assignment.partitions
        runs: dict[Name, Pairs] = {}
        reads = {}
        for message in messages:
            if message.error() is not None:
                self._failed(message)
                continue
            name: Name = (message.topic(), message.partition())  # type: ignore[assignment]
            pairs = runs.get(name)
            if pairs is None:
                partition = partitions.get(name)
                if partition is None or name in self._loads or name in self._stalled:
                    continue
                pairs = runs[name] = []
                reads[name] = partition.reader.read
            pairs.append((message, reads[name](message, name[1])))
        return [
            (partitions[name], self._until_redrive(consumer, partitions[name], pairs))
            for name, pairs in runs.items()
        ]

    def _failed(self, message: Message) -> None:
        error = message.error()
        name = (message.topic() or "", message.partition() or 0)
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._assignment.fence(name, _out_of_range(name, error))
        else:
            _LOG.warning("kafka says", topic=name[0], partition=name[1], error=str(error))

    def _until_redrive(self, consumer: Consumer, partition: Partition, pairs: Pairs) -> Pairs:
        """A redrive begins a run, so that its instance's queue is known before it is folded."""
        end = run_end(pairs)
        if end == len(pairs):
            return pairs
        place = offset_of(pairs[end][0])
        consumer.seek(TopicPartition(partition.topic, partition.number, place))
        return pairs[:end]

    def _loaded(self, partition: Partition, pairs: Pairs) -> bool:
        """See that memory holds what the run needs; False: put it back and poll."""
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
            load.exception(LOAD_S)
        except Unanswered:
            self._loads[partition.name] = load
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
            self._stalled[partition.name] = self._clock() + self._options.retry_s
            return False
        return True

    def _silently(self, partition: Partition, pairs: Pairs) -> Pairs:
        """Fold what was already sent (O5); at its end compare the digest (P19)."""
        if not partition.silent:
            return pairs
        ends = next(
            (
                place
                for place, (message, _) in enumerate(pairs)
                if offset_of(message) >= partition.silent_to
            ),
            len(pairs),
        )
        overlay = partition.overlay()
        rows = self._options.rows
        try:
            fold_run(
                partition,
                overlay,
                pairs[:ends],
                None,
                released(partition, pairs, self._payloads),
                rows=rows,
            )
        except RefoldError as error:
            self._stop(partition, error)
            return []
        overlay.close()
        if ends < len(pairs):
            overlay.position = max(overlay.position, partition.silent_to)
        partition.merge(overlay, self._clock(), rows=rows)
        difference = partition.diverged()
        if difference is not None:
            self._stop(partition, diverged(partition, difference))
            return []
        return pairs[ends:]

    # The transaction.

    def _commit(
        self, consumer: Consumer, live: list[tuple[Partition, Pairs]], transactor: Transactor
    ) -> None:
        member = consumer.consumer_group_metadata()
        overlays: list[tuple[Partition, Overlay]] = []
        transactor.begin()
        try:
            for partition, pairs in live:
                overlays.append((partition, self._fold(partition, pairs, transactor)))
            transactor.commit([_offset(each, overlay) for each, overlay in overlays], member)
        except (Aborted, TooLarge, FenceError, InvariantViolation, KafkaException) as failure:
            self._undo(consumer, live, transactor, failure)
            return
        transactor.producer.poll(0)
        self.transactions += 1
        self._aborts_in_a_row = 0
        self._careful = max(0, self._careful - 1)
        now_s = self._clock()
        for partition, overlay in overlays:
            if overlay.activations:
                partition.pending = None
            overlay.activations = []
            partition.merge(overlay, now_s, rows=self._options.rows)

    def _fold(self, partition: Partition, pairs: Pairs, transactor: Transactor) -> Overlay:
        overlay = partition.overlay()
        emission = self._emission(partition, transactor)
        if partition.pending is not None:
            emission.activate(partition.pending)
            overlay.activations.append(partition.pending)
        given = released(partition, pairs, self._payloads)
        try:
            fold_run(partition, overlay, pairs, emission, given, rows=self._options.rows)
        except TooLarge as refusal:
            partition.forced[refusal.decision.offset] = refusal.decision
            raise
        except (FenceError, InvariantViolation) as error:
            self._stop(partition, error)
            raise
        overlay.close()
        return overlay

    def _undo(
        self,
        consumer: Consumer,
        live: list[tuple[Partition, Pairs]],
        transactor: Transactor,
        failure: Exception,
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
            self._aborts_in_a_row += 1
            if self._aborts_in_a_row >= CAREFUL_AFTER_ABORTS:
                self._careful = self._options.careful_records
        for partition, _ in live:
            if partition.name in self._assignment.partitions:
                self._put_back(consumer, partition)
        if self._careful and len(live) == 1 and len(live[0][1]) == 1:
            self._suspect(live[0][0], live[0][1][0][0], failure)

    # Careful mode (P12).

    def _one(
        self, consumer: Consumer, live: list[tuple[Partition, Pairs]]
    ) -> list[tuple[Partition, Pairs]]:
        """One record of one partition; the others are put back."""
        first, pairs = live[0]
        for partition, _ in live[1:]:
            self._put_back(consumer, partition)
        offset = offset_of(pairs[0][0])
        if len(pairs) > 1:
            consumer.seek(TopicPartition(first.topic, first.number, offset + 1))
        try:
            times = self._store.suspect(first.topic, first.number, offset)
        except ServerError as away:
            _LOG.warning("the suspect is not marked", error=str(away))
            times = 1
        if times > 1:
            self._force(first, offset, f"this record ended {times - 1} worker(s) before")
        return [(first, pairs[:1])]

    def _suspect(self, partition: Partition, message: Message, failure: Exception) -> None:
        offset = offset_of(message)
        if offset not in partition.forced:
            self._force(partition, offset, f"its transaction aborted alone: {failure}")

    def _force(self, partition: Partition, offset: int, text: str) -> None:
        partition.forced[offset] = Decision(
            offset, Verdict.PARKED, Reason(Code.SUSPECT, text[:500])
        )

    # Common.

    def _emission(self, partition: Partition, transactor: Transactor) -> Emission:
        namespace, workflow = self._options.namespace, partition.workflow.name
        writer = self._writers.get(workflow)
        if writer is None:
            writer = self._writers[workflow] = CommandWriter(namespace, workflow)

        def decided(offset: int) -> None:
            partition.decided_to = max(partition.decided_to, offset + 1)

        return Emission(
            transactor.producer,
            namespace,
            writer,
            f"{namespace}.{workflow}.rejected",
            partition.number,
            decided,
        )

    def _put_back(self, consumer: Consumer, partition: Partition, *, pause: bool = False) -> None:
        place = TopicPartition(partition.topic, partition.number, partition.position)
        if pause:
            consumer.pause([place])
        consumer.seek(place)

    def _resume(self, partition: Partition) -> None:
        consumer = self._assignment.consumer
        if consumer is not None:
            place = TopicPartition(partition.topic, partition.number, partition.position)
            consumer.seek(place)
            consumer.resume([place])

    def _stop(self, partition: Partition, error: RefoldError) -> None:
        if error.code == Code.FENCED:
            self._assignment.drop(partition.name, str(error))
        else:
            self._assignment.fence(partition.name, error)


def _offset(partition: Partition, overlay: Overlay) -> TopicPartition:
    metadata = overlay.digests.metadata(partition.epoch)
    return TopicPartition(partition.topic, partition.number, overlay.position, metadata)


def _out_of_range(name: Name, error: KafkaError) -> FenceError:
    return FenceError(
        Code.OFFSETS_OUT_OF_RANGE,
        f"Partition {name[0]}[{name[1]}] is fenced: the log does not hold its next offset"
        f" ({error.str()}).",
        "Records were removed before they were folded; see the code's page.",
        topic=name[0],
        partition=name[1],
    )
