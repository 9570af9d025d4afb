"""What keeps a partition from being folded on, in words: fences and waits of the loop.

Law of this module: makes errors, raises none.
"""

from confluent_kafka import KafkaError

from refold.processors.partition import Partition
from refold.schemas.errors import Code, FenceError, ServerError


def diverged(partition: Partition, difference: str, known: str = "") -> FenceError:
    """The fence of a partition whose replay decided otherwise than its last owner (P19).

    Args:
        partition: As folded up to its silent end.
        difference: Of the digests.
        known: What differs, as far as it was found out.
    """
    return FenceError(
        Code.REPLAY_DIVERGED,
        f"Partition {partition.topic}[{partition.number}] is fenced: replay from the marker to"
        f" {partition.silent_to} decided otherwise than the worker that ran before ({difference})."
        + (f" {known}." if known else ""),
        "Nothing was sent. Fold the tail with the release that ran, or choose with"
        f" `refold partitions resolve {partition.topic} {partition.number}`.",
        topic=partition.topic,
        partition=partition.number,
    )


def reading_back(partition: Partition) -> ServerError:
    """What a partition waits for while a redrive's payloads are read (P28)."""
    return ServerError(
        Code.QUEUED_BEHIND,
        f"{partition.topic}[{partition.number}] reads the parked records that a redrive releases.",
        "It goes on by itself.",
    )


def not_marked(partition: Partition, offset: int) -> ServerError:
    """What a partition waits for in careful mode while PostgreSQL gives no answer (P12)."""
    return ServerError(
        Code.POSTGRES_AWAY,
        f"PostgreSQL has not noted that {partition.topic}[{partition.number}] folds offset"
        f" {offset} alone.",
        "It goes on by itself; if it lasts, look at the server's log.",
    )


def out_of_range(name: tuple[str, int], error: KafkaError) -> FenceError:
    """The fence of a partition whose next offset the log does not hold."""
    return FenceError(
        Code.OFFSETS_OUT_OF_RANGE,
        f"Partition {name[0]}[{name[1]}] is fenced: the log does not hold its next offset"
        f" ({error.str()}).",
        "Records were removed before they were folded; see the code's page.",
        topic=name[0],
        partition=name[1],
    )
