"""How many records a group is behind, without the control records that stand between.

Law of this module: a consumer's committed offset stays in front of the control records behind the
last record, so that a difference of offsets never says "caught up" behind a transactional sender.
A short rest is read and counted; a long one is behind in any case, and its offsets are counted.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer

from refold.schemas.errors import RefoldError
from refold.topics.reading import batches

COUNTED_OFFSETS: Final = 100
"""Longest rest that is read: so many small records come with one answer."""

Rest = Mapping[tuple[str, int], tuple[int, int]]
"""Partition → (next offset to fold, last stable offset)."""


def lags(rest: Rest, reader: Callable[[], Consumer]) -> dict[tuple[str, int], int]:
    """Records of each partition that are not folded yet.

    Args:
        rest: What is not folded.
        reader: Makes a group-less read_committed consumer; called where there is a short rest.
    """
    found = {name: max(0, end - start) for name, (start, end) in rest.items()}
    short = [name for name, offsets in found.items() if 0 < offsets <= COUNTED_OFFSETS]
    if not short:
        return found
    reading = reader()
    try:
        with suppress(RefoldError):  # the offsets tell too much rather than nothing
            for name in short:
                found[name] = _counted(reading, name, *rest[name])
    finally:
        reading.close()
    return found


def _counted(reader: Consumer, name: tuple[str, int], start: int, end: int) -> int:
    return sum(len(messages) for messages in batches(reader, *name, start, end))
