"""Which partitions are ours: the group's callbacks, takes in progress, fences, giving back.

Law of this module: changed by the loop thread only, in callbacks or between batches. A partition
is paused from the moment it is assigned until its take has ended well; what the group takes away
is given back with a last cut, what it says is lost is dropped without a word.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from msgspec.structs import replace

from refold.processors.announcing import of_partition
from refold.processors.decisions import activations_of
from refold.processors.definition import Workflow
from refold.processors.digest import unpacked
from refold.processors.dues import Dues
from refold.processors.examination import Examined
from refold.processors.fold import FOLD_VERSION
from refold.processors.jobs import NoteJob, ReleaseJob
from refold.processors.keeping import Keeper
from refold.processors.options import Options
from refold.processors.ownership import Contested, Taken, Taker
from refold.processors.partition import Name, Partition, Phase
from refold.processors.saver import Saver
from refold.processors.troubles import diverged
from refold.processors.turns import Turns
from refold.schemas.errors import (
    FenceError,
    RecordError,
    RefoldError,
    ServerError,
)
from refold.schemas.verdicts import Activate
from refold.snapshots.model import CRASH_LOOP_CLAIMS
from refold.topics.records import EventReader

_LOG = structlog.get_logger("refold.assignment")
LONGEST_PAUSE_S = 30.0


@dataclass(slots=True)
class Waiting:
    """An assigned partition that is not folded yet."""

    phase: Phase
    take: Future[Taken] | None = None
    retry_at_s: float = 0.0
    fence: RefoldError | None = None
    taken: Taken | None = None


class Assignment:
    """The partitions that the group gave to this worker.

    Args:
        options: Settings.
        topics: Event topic → workflow.
        taker: Takes partitions on other threads.
        keeper: Saves and releases.
        saver: Waited for when partitions are given back; notes fences.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        options: Options,
        topics: Mapping[str, Workflow],
        taker: Taker,
        keeper: Keeper,
        saver: Saver,
        clock: Callable[[], float],
    ) -> None:
        self.partitions: dict[Name, Partition] = {}
        """Recovering and live ones."""
        self.waiting: dict[Name, Waiting] = {}
        self.alarms: dict[Name, str] = {}
        """What of our partitions goes on and a person should see: its code."""
        self.parked: dict[Name, int] = {}
        """Parked instances as last counted."""
        self.unchecked: ServerError | None = None
        """Why the last check of what is owned could not be made."""
        self.turns = Turns(options.batch_records, clock)
        """Recovering partitions that are paused until the loop has time for them."""
        self.consumer: Consumer | None = None
        self.joined = False
        """True from the group's first answer until it says that everything is lost."""
        self.retired = False
        """True when the producer must not be used again (P6)."""
        self._options = options
        self._topics = topics
        self._taker = taker
        self._keeper = keeper
        self._saver = saver
        self._clock = clock
        self._explained: dict[tuple[Name, int], str] = {}
        self._examining: Future[Examined] | None = None
        self._examine_at_s = clock() + options.preflight_s

    @property
    def busy(self) -> bool:
        """True while a take is in progress."""
        return any(each.take is not None for each in self.waiting.values())

    def workflow(self, topic: str) -> str:
        """Name of the workflow whose event topic this is."""
        return self._topics[topic].name

    def next_turns(self, held_back: Collection[Name]) -> list[Partition]:
        """Recovering partitions whose turn begins now: they are paused still.

        Args:
            held_back: Those that wait for something else.
        """
        return self.turns.due(self.partitions, held_back)

    def lag(self, partition: Partition) -> int:
        """Records between the position and the end as the client last heard it; loop only."""
        if self.consumer is None:
            return 0
        place = TopicPartition(partition.topic, partition.number)
        marks = self.consumer.get_watermark_offsets(place, cached=True)
        return max(0, marks[1] - partition.position) if marks else 0

    # Callbacks of the group: they run inside `consume` only.

    def assigned(self, consumer: Consumer, added: list[TopicPartition]) -> None:
        """Partitions are ours: paused until they are taken."""
        self.consumer = consumer
        for each in added:
            # Never meant: the take seeks before it resumes. Should the client's look-up of the
            # beginning answer only after that seek, what it reads again is dropped (`past`). A
            # number would be an error where retention has taken the log's beginning.
            each.offset = OFFSET_BEGINNING
            self.waiting[(each.topic, each.partition)] = Waiting(Phase.TAKING)
        self.joined = True
        consumer.incremental_assign(added)
        consumer.pause(added)
        _LOG.info("assigned", partitions=_names(added))

    def revoked(self, consumer: Consumer, removed: list[TopicPartition]) -> None:
        """Partitions go to another worker: last cut, release, within P11's bound."""
        _LOG.info("revoked", partitions=_names(removed))
        self._give_back([(each.topic, each.partition) for each in removed])
        consumer.incremental_unassign(removed)

    def lost(self, consumer: Consumer, removed: list[TopicPartition]) -> None:
        """The group has given our partitions away: drop them, write nothing (P6)."""
        _LOG.warning("lost", partitions=_names(removed))
        self.joined = False
        for each in removed:
            self._forget((each.topic, each.partition))
        self.retire()
        consumer.incremental_unassign(removed)

    # Between two batches.

    def advance(self, owner: str) -> None:
        """Begin takes that are due, take in those that ended."""
        now_s = self._clock()
        for name, waiting in list(self.waiting.items()):
            if waiting.take is not None:
                if waiting.take.done():
                    self._taken(name, waiting)
            elif waiting.taken is not None:
                if now_s >= waiting.retry_at_s:
                    self._enter(name, waiting.taken)
            elif now_s >= waiting.retry_at_s:
                topic, number = name
                waiting.take = self._taker.submit(topic, number, self._topics[topic], owner)

    def examine(self) -> None:
        """Check what is owned again from time to time; fence what fails (O7)."""
        if self._examining is not None:
            if self._examining.done():
                self._examined(self._examining)
                self._examining = None
            return
        now_s = self._clock()
        if self.partitions and now_s >= self._examine_at_s:
            self._examine_at_s = now_s + self._options.preflight_s
            self._examining = self._taker.submit_examine(list(self.partitions.values()))

    def _examined(self, answer: Future[Examined]) -> None:
        try:
            found = answer.result()
        except ServerError as away:
            _LOG.warning("not checked", error=str(away))
            self.unchecked = away
            return
        self.unchecked = None
        self.parked = {
            name: count for name, count in found.parked.items() if name in self.partitions
        }
        for name, fence in found.fences.items():
            if name in self.partitions:
                self.fence(name, fence)
        for partition in self.partitions.values():
            wanted = found.wanted.get(partition.topic)
            if wanted is not None and partition.pending is None and not partition.silent:
                self._activate(partition, wanted)

    def retire(self) -> None:
        """The producer is finished: no transaction of it may be trusted any more."""
        self.retired = True

    def restart(self) -> None:
        """A new producer is there: every partition is taken again under its id (P6)."""
        self.retired = False
        for name in list(self.partitions):
            self.drop(name, "its producer was finished")
        for name, waiting in list(self.waiting.items()):
            if waiting.take is not None or waiting.taken is not None:  # claimed for the old id
                self._forget(name)
                self.waiting[name] = Waiting(Phase.TAKING)

    def drop(self, name: Name, why: str) -> None:
        """Forget a partition's memory and take it again, if the group still says it is ours."""
        if name not in self.partitions:
            return
        _LOG.warning("dropped", topic=name[0], partition=name[1], why=why)
        self._forget(name)
        self._pause(name)
        self.waiting[name] = Waiting(Phase.TAKING)

    def fence(self, name: Name, error: RefoldError, entering: Partition | None = None) -> None:
        """Stop one partition with a named error; the others go on (O6)."""
        partition = self.partitions.get(name, entering)
        if partition is None and name not in self.waiting:
            return  # the group has taken it away meanwhile: it is another worker's
        _LOG.error(
            "fenced", topic=name[0], partition=name[1], code=str(error.code), error=str(error)
        )
        self._forget(name)
        self._pause(name)
        retry_at_s = self._clock() + self._options.fence_retry_s
        self.waiting[name] = Waiting(Phase.FENCED, retry_at_s=retry_at_s, fence=error)
        if partition is not None:
            self._note(name, partition.epoch, error)

    def diverge(self, partition: Partition, difference: str) -> None:
        """Fence a partition whose replay decided otherwise; say what, once it is known (P19)."""
        place = (partition.name, partition.silent_to)
        known = self._explained.get(place, "")
        self.fence(partition.name, diverged(partition, difference, known), partition)
        # Nothing of it was sent: it is free, and looking at it again is no crash loop.
        self._saver.submit(
            ReleaseJob(topic=partition.topic, partition=partition.number, epoch=partition.epoch)
        )
        if known:
            return

        def tell(answer: Future[str]) -> None:
            if answer.cancelled() or answer.exception() is not None:
                return
            self._explained[place] = answer.result()
            error = diverged(partition, difference, answer.result())
            _LOG.error("diverged", partition=partition.number, differs=answer.result())
            self._note(partition.name, partition.epoch, error)

        self._taker.submit_explanation(partition).add_done_callback(tell)

    def give_back(self) -> None:
        """Give everything back: the worker stops."""
        self._give_back([*self.partitions, *self.waiting])

    def _taken(self, name: Name, waiting: Waiting) -> None:
        future, waiting.take = waiting.take, None
        assert future is not None  # noqa: S101  # the caller looked
        try:
            taken = future.result()
        except (FenceError, RecordError) as error:  # of its row, its decision log (O6)
            self.fence(name, error)
            return
        except (Contested, ServerError) as error:
            _LOG.warning("not taken yet", topic=name[0], partition=name[1], error=str(error))
            waiting.retry_at_s = self._clock() + self._options.retry_s
            waiting.fence = error if isinstance(error, ServerError) else None
            return
        pause_s = 0.0
        if taken.row.takeovers > CRASH_LOOP_CLAIMS:
            pause_s = min(LONGEST_PAUSE_S, 0.5 * 2 ** (taken.row.takeovers - CRASH_LOOP_CLAIMS))
            _LOG.warning("a crash loop backs off", partition=name[1], pause_s=pause_s)
        waiting.taken, waiting.retry_at_s = taken, self._clock() + pause_s
        self._enter(name, taken) if pause_s == 0.0 else None

    def _enter(self, name: Name, taken: Taken) -> None:
        """Seek, and resume: records come with the next consume, or when it is its turn."""
        assert self.consumer is not None  # noqa: S101  # nothing is assigned without one
        place = TopicPartition(name[0], name[1], taken.start.position)
        try:
            self.consumer.seek(place)
            if taken.start.position >= taken.start.silent_to:
                self.consumer.resume([place])
        except KafkaException as failure:
            _LOG.info("not ready to seek", partition=name[1], error=str(failure))
            self.waiting[name].retry_at_s = self._clock() + 0.05
            return
        try:
            partition = self._partition(name, taken)
        except FenceError as damaged:
            self.fence(name, damaged)
            return
        difference = partition.diverged()
        if difference is not None:
            self.diverge(partition, difference)
            return
        del self.waiting[name]
        self.partitions[name] = partition
        if partition.silent:
            self.turns.waiting.add(name)
        _LOG.info(
            "taken",
            topic=name[0],
            partition=name[1],
            epoch=partition.epoch,
            position=partition.position,
            silent_to=partition.silent_to,
        )
        alarm = taken.start.alarm
        if alarm is not None:
            self.alarms[name] = str(alarm)
            _LOG.error(
                "goes on with an alarm",
                topic=name[0],
                partition=name[1],
                code=str(alarm),
                more=f"refold explain {alarm}",
            )
        if self._options.rows and partition.rows_to < partition.marker:  # `worker.rows` was off
            _LOG.error(
                "rows are missing: `refold rebuild` makes them",
                topic=name[0],
                partition=name[1],
                first=partition.rows_to,
                end=partition.marker,
            )

    def _partition(self, name: Name, taken: Taken) -> Partition:
        row, start, workflow = taken.row, taken.start, self._topics[name[0]]
        partition = Partition(
            topic=name[0],
            number=name[1],
            topic_id=row.topic_id,
            workflow=workflow,
            reader=EventReader(workflow.name, taken.facts.partitions, workflow.tenant),
            epoch=row.epoch,
            position=start.position,
            silent_to=start.silent_to,
            expected=start.expected,
            digests=unpacked(row.digest),
            marker=row.marker,
            rows_to=row.rows_to,
            decided_from=row.decisions,
            decided_to=taken.known.position,
            complete=start.position == 0,
            taken_s=self._clock(),
            counts=dict(row.counts),
            decisions=dict(taken.known.decisions),
            activations=activations_of(row, taken.known),
            dues=_dues(workflow, taken, name[1]) if workflow.timed else None,
            careful=self._options.careful_records if row.takeovers > CRASH_LOOP_CLAIMS else 0,
        )
        self._activate(partition, taken.wanted)
        return partition

    def _activate(self, partition: Partition, wanted: int | None) -> None:
        """What new instances begin with from the next live offset on, unless it stands (P13).

        The highest version that this worker has; with manual activation the one that a person
        chose, else the one that is active. A fingerprint that `refold definitions accept` let
        pass is written down with it. It counts from behind the last one, also where the log is
        folded again from before that (OFFSETS_LOST): what stands on the log is never reordered.
        """
        workflow, last = partition.workflow, next(iter(partition.activations[-1:]), None)
        version = workflow.latest.version
        if last is not None and (self._options.activate_manually or last.version > version):
            version = wanted or last.version
        definition = workflow.versions.get(version)
        if definition is None:  # a version that this worker lacks is active: it fences when used
            return
        activation = Activate(
            max(partition.silent_to, partition.position, last.offset + 1 if last else 0),
            version,
            definition.fingerprint,
            FOLD_VERSION,
            workflow.tenant,
            partition.partitions,
        )
        if last is not None and replace(last, offset=activation.offset) == activation:
            return
        partition.pending = activation
        partition.activations.append(activation)

    def _give_back(self, names: list[Name]) -> None:
        held = [self.partitions[name] for name in names if name in self.partitions]
        if held and self._saver.drain(self._options.revoke_s / 2):
            for done in self._saver.done():  # what was on its way would hold back the last cut
                place = (done.job.topic, done.job.partition)
                self._keeper.settle(done, self.partitions.get(place))
        for partition in held:
            self._keeper.release(partition)
        for name in names:
            self._forget(name)
        if held and not self._saver.drain(self._options.revoke_s / 2):
            _LOG.warning("the last cut is not confirmed: the successor replays")

    def _forget(self, name: Name) -> None:
        self.alarms.pop(name, None)
        self.parked.pop(name, None)
        self.turns.waiting.discard(name)
        partition = self.partitions.pop(name, None)
        if partition is not None:
            self._keeper.forget(partition)
        waiting = self.waiting.pop(name, None)
        if waiting is not None and waiting.take is not None and not waiting.take.cancel():
            waiting.take.add_done_callback(self._release_unwanted)

    def _release_unwanted(self, take: Future[Taken]) -> None:
        """A claim that came after the partition was gone: give it back, or its next owner would
        fence this worker's live producer."""
        if take.exception() is None:
            row = take.result().row
            self._saver.submit(
                ReleaseJob(topic=row.topic, partition=row.partition, epoch=row.epoch)
            )

    def _pause(self, name: Name) -> None:
        if self.consumer is not None:
            self.consumer.pause([TopicPartition(*name)])

    def _note(self, name: Name, epoch: int, error: RefoldError) -> None:
        text = f"{error.code} {error.what}"
        self._saver.submit(NoteJob(topic=name[0], partition=name[1], epoch=epoch, fence=text))


def _names(partitions: list[TopicPartition]) -> list[str]:
    return [f"{each.topic}[{each.partition}]" for each in partitions]


def _dues(workflow: Workflow, taken: Taken, number: int) -> Dues:
    announce = of_partition(workflow, number, taken.facts.partitions)
    return Dues(taken.ready_at, announce=announce)
