"""Payloads of parked records, fetched from the log when a redrive releases them (P28).

Law of this module: reads with a group-less consumer of its own; what is gone is simply absent,
and the fold refuses the redrive with the list. A redrive begins a run, so that its instance's
queue is known before the run is folded.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Unanswered
from typing import Final

from confluent_kafka import Consumer, Message

from refold.processors.batch import Released, Run
from refold.processors.clients import Clients
from refold.processors.engine_events import REDRIVE
from refold.processors.fold import needed
from refold.processors.partition import Partition
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, FenceError, ServerError
from refold.topics.reading import batches
from refold.topics.records import EventReader

ANSWER_S: Final = 0.3
"""How long the loop waits for payloads before it polls on; a short queue is there by then."""


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
        # A reader of its own: the partition's belongs to the loop's thread.
        envelopes = EventReader(
            partition.workflow.name, partition.partitions, partition.workflow.tenant
        )
        found: dict[int, EventRecord] = {}
        try:
            for first, last in _stretches(offsets):
                wanted = {each for each in offsets if first <= each <= last}
                for messages in _held(partition, reader, first, last + 1):
                    for message in messages:
                        offset = message.offset()
                        if offset in wanted:
                            event = envelopes.read(message, partition.number)
                            if isinstance(event, EventRecord):
                                found[event.offset] = event
        finally:
            reader.close()
        return found


def run_end(pairs: Run) -> int:
    """How many of these records may be folded as one run: up to the next redrive."""
    redrive = REDRIVE.name
    for place, (_, event) in enumerate(pairs):
        if isinstance(event, EventRecord) and event.type == redrive and place:
            return place
    return len(pairs)


def released(partition: Partition, run: Run, payloads: Payloads) -> Released:
    """Payloads that a redrive at the head of this run needs; nothing for any other run.

    Args:
        partition: Its memory holds everything before the run.
        run: As `run_end` cut it.
        payloads: Fetches them.
    """
    event = run[0][1] if run else None
    if not isinstance(event, EventRecord):
        return {}
    offsets = needed(partition.held.get((event.tenant, event.instance)), event)
    return payloads(partition, offsets) if offsets else {}


class Fetching:
    """Payloads of redrives, read beside the loop: a long scattered queue takes its time.

    Args:
        payloads: Fetches them, on a thread of this object's.
    """

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="payloads")
        self._asked: dict[tuple[str, int], tuple[Partition, int, Future[Released]]] = {}

    def ask(self, partition: Partition, run: Run) -> Released | None:
        """What the redrive at the head of this run needs; None while it is being read.

        Args:
            partition: Its memory holds everything before the run.
            run: As `run_end` cut it; the same run is asked for until the answer is there.

        Raises:
            ServerError: KAFKA_AWAY or KAFKA_REFUSED; the next call begins again.
        """
        event = run[0][1]
        if not isinstance(event, EventRecord) or event.type != REDRIVE.name:
            return {}
        known, offset, future = self._asked.get(partition.name, (None, -1, None))
        if future is None or known is not partition or offset != event.offset:
            future = self._pool.submit(released, partition, run, self._payloads)
            self._asked[partition.name] = partition, event.offset, future
        try:
            found = future.result(ANSWER_S)
        except Unanswered:
            return None
        except ServerError:
            del self._asked[partition.name]
            raise
        del self._asked[partition.name]
        return found

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


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
