"""Loading instances that a batch needs and memory does not hold: one query for each partition.

Law of this module: runs on its own thread while the loop polls; what it brings back is put into
`held` by the loop. A loaded record is trusted only if the partition is still ours and the record
is older than the marker (P15, P16).
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import structlog

from refold.processors.instance import Instance
from refold.processors.instance_codec import decode
from refold.processors.partition import Key, Partition
from refold.schemas.errors import Code, FenceError, InvariantViolation
from refold.snapshots.model import Loaded, Snapshot
from refold.snapshots.ports import Store

_LOG = structlog.get_logger("refold.loading")


class Loader:
    """Runs load queries beside the loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="load")

    def submit(self, partition: Partition, keys: Sequence[Key]) -> Future[Loaded]:
        """Begin to load the newest snapshots of these instances."""
        return self._pool.submit(
            self._store.load, partition.topic, partition.number, partition.workflow.name, keys
        )

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def admit(partition: Partition, loaded: Loaded) -> None:
    """Put loaded records into memory.

    Raises:
        FenceError: FENCED when the partition is not ours any more, or its marker fell back;
            DEFINITION_MISSING when a record's definition version is not registered;
            SNAPSHOT_DAMAGED when the newest version of an instance does not verify.
        InvariantViolation: A record is newer than the marker.
    """
    if loaded.epoch != partition.epoch or loaded.marker < partition.marker:
        raise FenceError(
            Code.FENCED,
            f"Partition {partition.topic}[{partition.number}] changed hands or lost commits:"
            f" expected epoch {partition.epoch} and a marker of at least {partition.marker},"
            f" found epoch {loaded.epoch} and marker {loaded.marker}.",
            "It is taken again from what stands in PostgreSQL.",
            topic=partition.topic,
            partition=partition.number,
        )
    for tenant, instance, version in loaded.damaged:
        raise FenceError(
            Code.SNAPSHOT_DAMAGED,
            f"Snapshot {version} of {tenant}/{instance} does not match its hash.",
            "An older version plus replay replaces it: `refold rebuild` the partition.",
            topic=partition.topic,
            partition=partition.number,
        )
    for snapshot in loaded.snapshots:
        partition.held[(snapshot.tenant, snapshot.instance)] = restored(partition, snapshot)


def restored(partition: Partition, snapshot: Snapshot) -> Instance:
    """The record of one verified snapshot.

    Raises:
        FenceError: DEFINITION_MISSING.
        InvariantViolation: The record is newer than the marker.
    """
    if snapshot.last_offset >= partition.marker:
        raise InvariantViolation(
            f"expected a snapshot older than the marker {partition.marker}, but"
            f" {snapshot.tenant}/{snapshot.instance} was folded up to {snapshot.last_offset}",
            topic=partition.topic,
            partition=partition.number,
        )
    definition = partition.workflow.version(snapshot.definition)
    return decode(snapshot.data, definition)
