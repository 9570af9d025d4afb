"""The saver: one thread that turns cuts and flushes into PostgreSQL transactions, off the loop.

Law of this module: jobs hold immutable records by reference and are done in the order in which
they were given; their ends come back as data for the loop. It decides nothing.
"""

from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Final

import msgspec
import structlog

from refold.processors.encoding import Encoding
from refold.processors.jobs import CutJob, Done, FlushJob, Job, NoteJob
from refold.processors.projection import instance_row
from refold.schemas.errors import Code, FenceError, RefoldError, ServerError
from refold.snapshots.model import KEEP, Cut, Flush
from refold.snapshots.ports import Store

_LOG = structlog.get_logger("refold.saver")
CLOSE_S: Final = 5.0


class Barrier:
    """A place in the queue that somebody waits for."""

    def __init__(self) -> None:
        self.reached = Event()


class Saver:
    """Runs jobs on its own thread.

    Args:
        store: PostgreSQL.
        wake: Called after each job, to wake a loop that waits.
    """

    def __init__(self, store: Store, wake: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._wake = wake
        self._jobs: SimpleQueue[Job | Encoding | Barrier | None] = SimpleQueue()
        self._encodings: deque[Encoding] = deque()
        """Cuts that may not be encoded yet; only the thread that submits cuts looks here."""
        self._hurry = Event()
        self._done: SimpleQueue[Done] = SimpleQueue()
        self._thread = Thread(target=self._run, name="saver", daemon=True)
        self._failure: BaseException | None = None
        self._unflushed: dict[tuple[str, int], tuple[int, RefoldError]] = {}
        """Partitions whose last flush is not known to stand: its epoch, and why."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Give a job."""
        if isinstance(job, CutJob):
            encoding = Encoding(job)
            self._encodings.append(encoding)
            self._jobs.put(encoding)
        else:
            self._jobs.put(job)

    def encode(self) -> bool:
        """Encode some snapshots for the saver; False when there are none to encode.

        For the thread that submits cuts, in moments when it has nothing else to do.
        """
        while self._encodings and self._encodings[0].complete.is_set():
            self._encodings.popleft()
        if self._encodings:
            self._encodings[0].advance()
        return bool(self._encodings)

    def done(self) -> list[Done]:
        """The jobs that ended since the last call.

        Raises:
            BaseException: What ended the thread, which is a bug.
        """
        if self._failure is not None:
            raise self._failure
        ended: list[Done] = []
        while True:
            try:
                ended.append(self._done.get_nowait())
            except Empty:
                return ended

    def drain(self, timeout_s: float) -> bool:
        """Wait until every job given so far has ended; False when the time is over first."""
        barrier = Barrier()
        self._jobs.put(barrier)
        self._hurry.set()
        try:
            return barrier.reached.wait(timeout_s)
        finally:
            self._hurry.clear()

    def close(self) -> None:
        """End the thread after the jobs that were given."""
        self._jobs.put(None)
        self._hurry.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            while (given := self._jobs.get()) is not None:
                if isinstance(given, Barrier):
                    given.reached.set()
                    continue
                done = self._do(given)
                self._done.put(done)
                self._wake()
                if done.good and isinstance(done.job, CutJob) and self._jobs.empty():
                    self._prune(done.job)
        except BaseException as failure:
            self._failure = failure
            raise

    def _do(self, given: Job | Encoding) -> Done:
        began_s = monotonic()
        job = given.job if isinstance(given, Encoding) else given
        name = (job.topic, job.partition)
        try:
            if isinstance(job, CutJob):
                self._behind_rows(job)
            good = self._write(given)
        except RefoldError as error:
            _LOG.warning("not saved", job=type(job).__name__, error=str(error))
            if isinstance(job, FlushJob):
                self._unflushed[name] = job.epoch, error
            return Done(job, False, error, monotonic() - began_s)
        if isinstance(job, FlushJob):
            self._unflushed.pop(name, None)
            if not good:
                self._unflushed[name] = job.epoch, _refused(job)
        return Done(job, good, None, monotonic() - began_s)

    def _behind_rows(self, job: CutJob) -> None:
        """See that the rows below a cut are written (P20).

        A flush whose COMMIT got no answer may stand: the next one, which reaches further, is then
        refused although the epoch is ours. A cut behind it would be taken, and what lies between
        would never get rows. The next owner of the partition, we too, starts from the rows anew.
        """
        epoch, error = self._unflushed.get((job.topic, job.partition), (None, None))
        if epoch == job.epoch and error is not None:
            raise error

    def _prune(self, job: CutJob) -> None:
        """Old versions go when nothing waits: never between a last cut and its release."""
        keys = [(each.tenant, each.id) for each in job.records if each.version > KEEP]
        if not keys:
            return
        try:
            self._store.prune(job.topic, job.partition, job.workflow.name, keys)
        except ServerError as error:
            _LOG.warning("not pruned", topic=job.topic, error=str(error))

    def _write(self, job: Job | Encoding) -> bool:
        if isinstance(job, Encoding):
            job.finish(self._hurry)
            return self._store.save(cut_of(job))
        if isinstance(job, FlushJob):
            return self._store.flush(flush_of(job))
        if isinstance(job, NoteJob):
            self._store.fence(job.topic, job.partition, job.epoch, job.fence)
            return True
        return self._store.release(job.topic, job.partition, job.epoch)


def _refused(job: FlushJob) -> FenceError:
    return FenceError(
        Code.FENCED,
        f"The rows of {job.topic}[{job.partition}] do not stand at {job.previous} under epoch"
        f" {job.epoch}, or it has ended.",
        "It is taken again from what stands in PostgreSQL.",
        topic=job.topic,
        partition=job.partition,
    )


def cut_of(encoding: Encoding) -> Cut:
    """What the cut holds, whatever the fold did since (P15)."""
    job = encoding.job
    return Cut(
        topic=job.topic,
        partition=job.partition,
        workflow=job.workflow.name,
        epoch=job.epoch,
        previous=job.previous,
        marker=job.marker,
        decisions=job.decisions,
        digest=job.digests.packed(),
        counts=job.counts,
        activations=msgspec.msgpack.encode(list(job.activations)),
        snapshots=encoding.snapshots,
        packed=encoding.packed,
    )


def flush_of(job: FlushJob) -> Flush:
    """Project a flush's records into rows for people."""
    versions = job.workflow.versions
    return Flush(
        topic=job.topic,
        topic_id=job.topic_id,
        partition=job.partition,
        workflow=job.workflow.name,
        epoch=job.epoch,
        previous=job.previous,
        rows_to=job.rows_to,
        instances=[instance_row(versions[each.definition], each) for each in job.records],
        events=job.events,
        resolved=job.resolved,
    )
