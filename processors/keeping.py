"""When a partition's state is saved: cuts for the takeover budget, flushes for freshness.

Law of this module: decides and hands over by reference (P15); the saver does the work. At most
one cut and one flush of a partition are on their way, flush before cut, so that the marker never
passes the rows (P20).
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import islice

import structlog

from refold.processors.jobs import CutJob, Done, FlushJob, NoteJob, ReleaseJob
from refold.processors.options import Options
from refold.processors.partition import Partition
from refold.processors.saver import Saver
from refold.schemas.errors import RefoldError

_LOG = structlog.get_logger("refold.keeping")
ENCODE_S = 0.005
"""Most of an idle turn that goes into snapshots: a record that comes meanwhile waits as long."""
RETRY_S = 1.0
"""Pause after a job that PostgreSQL did not take."""
FIRST_RATE = 40_000.0
"""Records a second of silent replay that are assumed until a fold was measured."""
LEAST_RATE, MOST_RATE = 2_000.0, 400_000.0
"""What is learned stays between these: a stopped process must not make snapshots endless."""
LEARNED_RECORDS = 500
LEARNING = 0.2


@dataclass(slots=True)
class Way:
    """What of a partition is on its way to PostgreSQL."""

    cut: CutJob | None = None
    flush: FlushJob | None = None
    retry_at_s: float = 0.0
    error: RefoldError | None = None
    """Of the last job, if PostgreSQL did not take it."""


class Keeper:
    """Saves partitions in time.

    Args:
        options: The worker's settings.
        saver: Does the jobs.
        clock: Monotonic seconds.
    """

    def __init__(self, options: Options, saver: Saver, clock: Callable[[], float]) -> None:
        self._options = options
        self._saver = saver
        self._clock = clock
        self._ways: dict[tuple[str, int], Way] = {}
        self.replay_rate = FIRST_RATE
        """Records a second that a successor is expected to fold silently."""

    def learn(self, records: int, seconds: float) -> None:
        """Learn from a fold how fast a replay will be; small ones tell too little."""
        if records >= LEARNED_RECORDS and seconds > 0:
            rate = min(max(records / seconds, LEAST_RATE), MOST_RATE)
            self.replay_rate += LEARNING * (rate - self.replay_rate)

    def due(self, partitions: list[Partition]) -> None:
        """Hand over what is due."""
        now_s = self._clock()
        for partition in partitions:
            way = self._way(partition)
            if now_s < way.retry_at_s or self._held_back(partition, now_s):
                continue
            if way.flush is None and self._flush_due(partition, now_s):
                self._flush(partition, way)
            if way.cut is None and self._cut_due(partition, now_s, len(partitions)):
                self.save(partition)

    def idle(self) -> None:
        """A moment without records: encode some of what is handed over."""
        until_s = self._clock() + ENCODE_S
        while self.encode() and self._clock() < until_s:
            pass

    def encode(self) -> bool:
        """Encode some of what is handed over; False when there is nothing to encode."""
        return self._saver.encode()

    def save(self, partition: Partition) -> None:
        """Hand over a flush and a cut now, unless they are on their way or nothing is proved."""
        if self._held_back(partition, self._clock()):
            return
        way = self._way(partition)
        if self._options.rows and way.flush is None and partition.rows_to < partition.position:
            self._flush(partition, way)
        rows_to = partition.position if way.flush is None else way.flush.rows_to
        if self._options.rows and rows_to < partition.position:
            return  # the marker would pass the rows, and a crash leave a hole between (P20)
        if way.cut is None and partition.marker < partition.position:
            self._cut(partition, way)

    def release(self, partition: Partition) -> None:
        """Hand over the last cut and the release behind it."""
        self.save(partition)
        self._saver.submit(
            ReleaseJob(topic=partition.topic, partition=partition.number, epoch=partition.epoch)
        )
        self._ways.pop(partition.name, None)

    def forget(self, partition: Partition) -> None:
        """The partition is not ours any more: whatever is on its way is refused by its epoch."""
        self._ways.pop(partition.name, None)

    def settle(self, done: Done, partition: Partition | None) -> bool:
        """Take in how a job ended; False when the partition turned out to be somebody else's."""
        job = done.job
        if partition is None or partition.epoch != job.epoch:
            return True
        if isinstance(job, ReleaseJob | NoteJob):
            return True
        way = self._way(partition)
        if isinstance(job, CutJob):
            way.cut = None
            _settle_cut(partition, job, good=done.good)
        else:
            way.flush = None
            _settle_flush(partition, job, good=done.good)
        way.error = done.error
        if done.error is not None:
            way.retry_at_s = self._clock() + RETRY_S
            return True
        return done.good

    def backlog(self, partition: Partition) -> int:
        """Unsaved rows and records in memory, whichever is more."""
        return max(len(partition.events), len(partition.dirty), len(partition.touched))

    def trouble(self, partition: Partition) -> RefoldError | None:
        """Why what is in memory is not saved, None if it is or is on its way."""
        return self._way(partition).error

    def takeover_s(self, partitions: list[Partition]) -> float:
        """Predicted seconds of silent replay if this worker died now."""
        tail = sum(max(0, each.position - each.marker) for each in partitions)
        return tail / self.replay_rate

    def _way(self, partition: Partition) -> Way:
        return self._ways.setdefault(partition.name, Way())

    def _held_back(self, partition: Partition, now_s: float) -> bool:
        """Whether what a silent replay made waits for its digest to be compared (P19).

        Saved before, it would stand under a marker that the release which ran cannot go back
        behind, and the way out of REPLAY_DIVERGED would be lost. A replay that is long, or makes
        more than memory should hold, is saved all the same.
        """
        return (
            partition.unproved
            and 2 * self.backlog(partition) <= self._options.held_records
            and now_s - partition.taken_s < self._options.snapshot_max_age_s
        )

    def _flush_due(self, partition: Partition, now_s: float) -> bool:
        if not self._options.rows or partition.rows_to >= partition.position:
            return False
        return now_s - partition.touched_since_s >= self._options.freshness_s

    def _cut_due(self, partition: Partition, now_s: float, owned: int) -> bool:
        tail = partition.position - partition.marker
        if tail <= 0:
            return False
        share = self._options.takeover_budget_s * self.replay_rate / max(1, owned)
        if tail >= share:
            return True
        return now_s - partition.dirty_since_s >= self._options.snapshot_max_age_s

    def _flush(self, partition: Partition, way: Way) -> None:
        way.flush = FlushJob(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.number,
            workflow=partition.workflow,
            epoch=partition.epoch,
            previous=partition.rows_to,
            rows_to=partition.position,
            records=list(partition.touched.values()),
            events=partition.events,
            resolved=partition.resolved,
        )
        partition.touched, partition.events, partition.resolved = {}, [], []
        self._saver.submit(way.flush)

    def _cut(self, partition: Partition, way: Way) -> None:
        partition.saving, partition.dirty = partition.dirty, {}
        partition.dirty_since_s = self._clock()
        way.cut = CutJob(
            topic=partition.topic,
            partition=partition.number,
            workflow=partition.workflow,
            epoch=partition.epoch,
            previous=partition.marker,
            marker=partition.position,
            decisions=partition.decided,
            digests=partition.digests,
            counts=dict(partition.counts),
            activations=[each for each in partition.activations if each is not partition.pending],
            records=list(partition.saving.values()),
        )
        self._saver.submit(way.cut)


def _settle_cut(partition: Partition, job: CutJob, *, good: bool) -> None:
    if good:
        partition.marker, partition.decided_from = job.marker, job.decisions
    else:
        partition.dirty = {**partition.saving, **partition.dirty}
    partition.saving = {}


def _settle_flush(partition: Partition, job: FlushJob, *, good: bool) -> None:
    if good:
        partition.rows_to = job.rows_to
        return
    identity = ((each.tenant, each.id) for each in job.records)
    partition.touched = {**dict(zip(identity, job.records, strict=True)), **partition.touched}
    partition.events = [*job.events, *partition.events]
    partition.resolved = [*job.resolved, *partition.resolved]


def evict(
    partitions: Sequence[Partition], most: int, spared: Set[tuple[str, int]] = frozenset()
) -> int:
    """Forget clean instances beyond a bound, those first that came first (P16).

    Args:
        partitions: All owned ones.
        most: Instances that may stay in memory.
        spared: Names of partitions that keep all of theirs: what a batch waited for is folded
            before it may go, or it would be loaded for ever.

    Returns:
        How many were forgotten; a partition that lost one loads it when it is needed.
    """
    excess = sum(len(each.held) for each in partitions) - most
    evicted = 0
    for partition in sorted(partitions, key=lambda each: -len(each.held)):
        if evicted >= excess:
            break
        if partition.name in spared:
            continue
        unclean = partition.dirty.keys() | partition.saving.keys()
        clean = (key for key in partition.held if key not in unclean)
        gone = list(islice(clean, excess - evicted))
        for key in gone:
            del partition.held[key]
        partition.complete = partition.complete and not gone
        evicted += len(gone)
    return evicted
