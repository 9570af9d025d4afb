"""One instance folded again from an older snapshot, because its newest one is damaged (P21).

Law of this module: its own group-less consumer, no rows, no marker, nothing sent; the partition
waits meanwhile, the others run. Where the log no longer reaches back to the older snapshot, the
partition is fenced: a state with a hole in it is never guessed.
"""

from dataclasses import replace

import structlog

from refold.processors.batch import fold_run
from refold.processors.clients import Clients
from refold.processors.decisions import read_decisions
from refold.processors.instance import Instance
from refold.processors.partition import Key, Partition
from refold.schemas.envelope import EventRecord
from refold.topics.reading import batches
from refold.topics.specs import rejected_topic

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
    rejected = rejected_topic(namespace, partition.workflow.name)
    known = read_decisions(clients.reader(), rejected, partition.number, 0, start)
    scratch = replace(
        partition,
        position=start,
        held={} if older is None else {key: older},
        decisions=dict(known.decisions),
        forced={},
    )
    reader = clients.reader()
    try:
        for messages in batches(reader, partition.topic, partition.number, start, partition.marker):
            envelopes = ((each, partition.reader.read(each, partition.number)) for each in messages)
            mine = [
                (message, event)
                for message, event in envelopes
                if isinstance(event, EventRecord) and (event.tenant, event.instance) == key
            ]
            overlay = scratch.overlay()
            fold_run(scratch, overlay, mine, None, {}, rows=False)
            scratch.held.update(overlay.instances)
    finally:
        reader.close()
    return scratch.held.get(key)
