"""Loading instances that a batch needs and memory does not hold: one query for each partition.

Law of this module: runs on its own thread while the loop polls; what it brings back is put into
`held` by the loop. A loaded record is trusted only if the partition is still ours and the record
is older than the marker (P15, P16).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from refold.processors.clients import Clients
from refold.processors.instance import Instance
from refold.processors.instance_codec import decode
from refold.processors.partition import Key, Partition
from refold.processors.repair import repaired
from refold.schemas.errors import Code, FenceError, InvariantViolation
from refold.snapshots.model import Loaded, Snapshot
from refold.snapshots.ports import Store


class Fetched(msgspec.Struct, frozen=True):
    """Records as of the marker, and whose partition it was when they were read."""

    epoch: int
    marker: int
    records: Mapping[Key, Instance]


class Loader:
    """Runs load queries beside the loop.

    Args:
        namespace: Prefix of the topics.
        clients: Makes readers for a damaged instance.
        store: PostgreSQL.
    """

    def __init__(self, namespace: str, clients: Clients, store: Store) -> None:
        self._namespace = namespace
        self._clients = clients
        self._store = store
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="load")

    def submit(self, partition: Partition, keys: Sequence[Key]) -> Future[Fetched]:
        """Begin to load the newest records of these instances."""
        return self._pool.submit(self._fetch, partition, keys)

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, partition: Partition, keys: Sequence[Key]) -> Fetched:
        topic, number, workflow = partition.topic, partition.number, partition.workflow.name
        loaded = self._store.load(topic, number, workflow, keys)
        _still_ours(partition, loaded)
        records = {
            (each.tenant, each.instance): restored(partition, each) for each in loaded.snapshots
        }
        for tenant, instance, _ in loaded.damaged:
            key = (tenant, instance)
            record = repaired(
                self._clients, self._namespace, partition, key, records.pop(key, None)
            )
            if record is not None:
                records[key] = record
        return Fetched(loaded.epoch, loaded.marker, records)


def restored(partition: Partition, snapshot: Snapshot) -> Instance:
    """The record of one verified snapshot.

    Raises:
        FenceError: DEFINITION_MISSING, or SNAPSHOT_DAMAGED when its bytes do not load.
        InvariantViolation: The record is newer than the marker.
    """
    if snapshot.last_offset >= partition.marker:
        raise InvariantViolation(
            f"expected a snapshot older than the marker {partition.marker}, but"
            f" {snapshot.tenant}/{snapshot.instance} was folded up to {snapshot.last_offset}",
            topic=partition.topic,
            partition=partition.number,
        )
    return decode(snapshot.data, partition.workflow.version(snapshot.definition))


def _still_ours(partition: Partition, loaded: Loaded) -> None:
    if loaded.epoch == partition.epoch and loaded.marker >= partition.marker:
        return
    raise FenceError(
        Code.FENCED,
        f"Partition {partition.topic}[{partition.number}] changed hands or lost commits:"
        f" expected epoch {partition.epoch} and a marker of at least {partition.marker},"
        f" found epoch {loaded.epoch} and marker {loaded.marker}.",
        "It is taken again from what stands in PostgreSQL.",
        topic=partition.topic,
        partition=partition.number,
    )
