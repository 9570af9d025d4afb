"""The snapshots of a cut, encoded bit by bit while the loop has to wait anyway.

Law of this module: two threads share an encoding under its lock, in any order. Python runs one
of them at a time: a saver that encodes beside a busy loop takes twice of the loop's time what
the encoding itself needs (`python -m bench.run --only snapshots`).
"""

from threading import Event, Lock
from time import monotonic
from typing import Final

from refold.processors.definition import Workflow
from refold.processors.instance import Instance
from refold.processors.instance_codec import encode
from refold.processors.jobs import CutJob
from refold.snapshots.model import Snapshot, content_hash
from refold.snapshots.packing import Packing

SLICE_RECORDS: Final = 30
"""Some 0.1 ms: for so long an answer that has come may lie unread."""
PATIENCE_S: Final = 1.0
"""After it the saver encodes what the loop has not."""
_LOOK_S: Final = 0.05


class Encoding:
    """A cut on its way, with as many of its snapshots as are encoded."""

    def __init__(self, job: CutJob) -> None:
        self.job = job
        self.snapshots: list[Snapshot] = []
        self.packed: list[bytes] = []
        self.complete = Event()
        self._row = Packing(job.workflow.name, job.partition).row
        self._lock = Lock()

    def advance(self, records: int = SLICE_RECORDS) -> None:
        """Encode so many more."""
        job = self.job
        with self._lock:
            start = len(self.snapshots)
            some = [
                snapshot_of(job.workflow, each) for each in job.records[start : start + records]
            ]
            if some:
                self.packed.append(b"".join(map(self._row, some)))
                self.snapshots += some
            if len(self.snapshots) == len(job.records):
                self.complete.set()

    def finish(self, hurry: Event) -> None:
        """Wait until it is complete: what the loop does not encode in time is encoded here.

        Args:
            hurry: Set when somebody waits for the saver.
        """
        until_s = monotonic() + PATIENCE_S
        while not self.complete.wait(_LOOK_S) and not hurry.is_set() and monotonic() < until_s:
            pass
        while not self.complete.is_set():
            self.advance()


def snapshot_of(workflow: Workflow, record: Instance) -> Snapshot:
    """One instance in canonical bytes with their hash."""
    definition = workflow.versions[record.definition]
    data = encode(record, definition)
    return Snapshot(
        record.tenant,
        record.id,
        record.version,
        record.definition,
        definition.fingerprint,
        record.state,
        record.last_offset,
        record.last_source,
        record.last_id,
        data,
        content_hash(data),
    )
