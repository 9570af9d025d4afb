"""The partition's decision log, read: what was decided before and stands (P13).

Law of this module: reads with a group-less read_committed consumer of its own, from the stored
position to the last stable offset, and closes it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from confluent_kafka import Consumer

from refold.processors.digest import row_damaged
from refold.schemas.verdicts import Activate, Decision
from refold.snapshots.model import PartitionRow
from refold.topics.reading import batches, offset_of
from refold.topics.rejected import read


class Known(msgspec.Struct, frozen=True):
    """Decisions at or past an offset, the activations read, and the position behind them."""

    decisions: Mapping[int, Decision]
    activations: Sequence[Activate]
    position: int


NOTHING: Final = Known({}, (), 0)
"""Nothing read of a decision log: only the row counts."""


def activations_of(row: PartitionRow, known: Known) -> list[Activate]:
    """All activations of a partition in order, each once: a tail of the log may be read again.

    Raises:
        FenceError: SNAPSHOT_DAMAGED, the row's bytes do not load.
    """
    try:
        older = msgspec.msgpack.decode(row.activations or b"\x90", type=list[Activate])
    except msgspec.MsgspecError as error:
        raise row_damaged("activations", error) from error
    found = {(each.offset, each.version): each for each in (*older, *known.activations)}
    return sorted(found.values(), key=lambda each: each.offset)


def read_decisions(
    reader: Consumer, topic: str, partition: int, position: int, marker: int
) -> Known:
    """Read the decision log.

    Args:
        reader: A fresh group-less consumer with `enable.partition.eof`; closed here.
        topic: `<ns>.<workflow>.rejected`.
        partition: Same number as the event partition.
        position: Where decisions at or past the marker begin; older activations are in the row.
        marker: Decisions below it are already in the snapshots.

    Raises:
        ServerError: KAFKA_AWAY.
    """
    decisions: dict[int, Decision] = {}
    activations: list[Activate] = []
    end = position
    try:
        for messages in batches(reader, topic, partition, position):
            for message in messages:
                found = read(message)
                if isinstance(found, Activate):
                    activations.append(found)
                elif found.offset >= marker:
                    decisions[found.offset] = found
            end = offset_of(messages[-1]) + 1
    finally:
        reader.close()
    activations.sort(key=lambda each: each.offset)
    return Known(decisions, activations, end)
