"""One instance folded again from an older snapshot, because its newest one is damaged (P21).

Law of this module: its own group-less consumer, no rows, no marker, nothing sent; the partition
waits meanwhile, the others run. Where the log no longer reaches back to the older snapshot, the
partition is fenced: a state with a hole in it is never guessed.
"""

import structlog

from refold.processors.clients import Clients
from refold.processors.instance import Instance
from refold.processors.partition import Key, Partition
from refold.processors.replay import Base, Extent, Replay

_LOG = structlog.get_logger("refold.repair")


def repaired(
    clients: Clients, namespace: str, partition: Partition, key: Key, older: Instance | None
) -> Instance | None:
    """Fold one instance from its older record up to the partition's marker.

    Args:
        clients: Makes the readers.
        namespace: Prefix of the topics.
        partition: Where the instance lives; read only.
        key: (tenant, instance id).
        older: The newest record that verified; None folds from the log's beginning.

    Returns:
        The record as of the marker; None when the log knows no such instance.

    Raises:
        FenceError: OFFSETS_OUT_OF_RANGE, the log does not reach back so far.
        ServerError: KAFKA_AWAY or KAFKA_REFUSED.
    """
    start = 0 if older is None else older.last_offset + 1
    _LOG.warning(
        "folding a damaged instance again",
        topic=partition.topic,
        partition=partition.number,
        instance=key[1],
        start=start,
        marker=partition.marker,
    )
    where = Extent(
        topic=partition.topic,
        partition=partition.number,
        topic_id=partition.topic_id,
        partitions=partition.reader.partitions,
        low=0,  # not asked: a log that begins later says so when it is read
        end=partition.marker,
    )
    base = Base(
        position=start,
        instances={} if older is None else {key: older},
        digests=partition.digests,
    )
    folded = Replay(clients, namespace, partition.workflow, where, only=key).fold(base)
    return folded.held.get(key)
