"""Payloads of parked records, fetched from the log when a redrive releases them (P28).

Law of this module: reads with a group-less consumer of its own; what is gone is simply absent,
and the fold refuses the redrive with the list.
"""

from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Consumer, Message

from refold.processors.clients import Clients
from refold.processors.partition import Partition
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, FenceError
from refold.topics.reading import batches


class Payloads:
    """Fetches records of an event topic by offset.

    Args:
        clients: Makes the reader.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def __call__(self, partition: Partition, offsets: Sequence[int]) -> Mapping[int, EventRecord]:
        """The events at these offsets, as far as the log still has them.

        Args:
            partition: Where they stand.
            offsets: Ascending.

        Raises:
            ServerError: KAFKA_AWAY or KAFKA_REFUSED.
        """
        reader = self._clients.reader()
        found: dict[int, EventRecord] = {}
        try:
            for first, last in _stretches(offsets):
                wanted = {each for each in offsets if first <= each <= last}
                for messages in _held(partition, reader, first, last + 1):
                    for message in messages:
                        offset = message.offset()
                        if offset in wanted:
                            event = partition.reader.read(message, partition.number)
                            if isinstance(event, EventRecord):
                                found[event.offset] = event
        finally:
            reader.close()
        return found


def _held(partition: Partition, reader: Consumer, first: int, end: int) -> Iterator[list[Message]]:
    """Records of a stretch; none when retention has removed its beginning."""
    try:
        yield from batches(reader, partition.topic, partition.number, first, end)
    except FenceError as gone:
        if gone.code != Code.OFFSETS_OUT_OF_RANGE:
            raise


NEAR_RECORDS = 1000
"""Offsets closer than this are read in one go: a new position costs a round trip."""


def _stretches(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Group ascending offsets into stretches worth reading through."""
    stretches: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if stretches and offset - stretches[-1][1] <= NEAR_RECORDS:
            stretches[-1] = (stretches[-1][0], offset)
        else:
            stretches.append((offset, offset))
    return stretches
