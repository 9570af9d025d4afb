"""Reading a partition from an offset to its end, outside any group.

Law of this module: "the end" is the last stable offset at the moment it is reached, told by the
client's end-of-partition event, never a high watermark: control records leave gaps at the end
and an open transaction of somebody else pins it (P29).
"""

from collections.abc import Iterator
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from refold.schemas.errors import Code, FenceError, InvariantViolation, ServerError

BATCH_RECORDS: Final = 2000
IDLE_S: Final = 0.5
SILENT_S: Final = 30.0
"""A reader that hears nothing for so long says that Kafka is away."""


def offset_of(message: Message) -> int:
    """Offset of a consumed record, which always has one.

    Raises:
        InvariantViolation: It has none: it was never on a log.
    """
    offset = message.offset()
    if offset is None:
        raise InvariantViolation("a consumed record without an offset")
    return offset


def begin(reader: Consumer, topic: str, partition: int, start: int) -> None:
    """Let a reader fetch from `start` on, beside whatever is done until `batches` reads it."""
    reader.assign([TopicPartition(topic, partition, start)])


def batches(
    reader: Consumer,
    topic: str,
    partition: int,
    start: int,
    end: int | None = None,
    *,
    silent_s: float | None = None,
    begun: bool = False,
) -> Iterator[list[Message]]:
    """Yield the records from `start` on, in order, in lists, up to `end` or the log's end.

    Args:
        reader: A group-less read_committed consumer with `enable.partition.eof` and
            `auto.offset.reset=error`; assigned here, and not any more at the end; closed by the
            caller.
        topic: Topic to read.
        partition: Its partition.
        start: First offset; must be in the log.
        end: Stop before this offset; None reads to the last stable offset.
        silent_s: Seconds of silence that mean that Kafka is away; None: `SILENT_S`.
        begun: The reader was given to `begin` with the same place.

    Raises:
        FenceError: OFFSETS_OUT_OF_RANGE when `start` is not in the log.
        ServerError: KAFKA_AWAY after too long a silence; KAFKA_REFUSED for other answers.
    """
    if end is not None and start >= end:
        return
    longest_s = SILENT_S if silent_s is None else silent_s
    if not begun:
        begin(reader, topic, partition, start)
    heard_s = monotonic()
    while True:
        first = reader.poll(IDLE_S)  # wakes at once; consume alone would wait for a full batch
        messages = [] if first is None else [first, *reader.consume(BATCH_RECORDS - 1, 0)]
        if messages:
            heard_s = monotonic()
        elif monotonic() - heard_s > longest_s:
            raise ServerError(
                Code.KAFKA_AWAY,
                f"Nothing was heard of {topic}[{partition}] for {longest_s:.0f} s.",
                "Check that the brokers are reachable.",
            )
        good, ended = _sorted_out(messages, topic, partition)
        if end is not None and good and offset_of(good[-1]) >= end - 1:
            good = [each for each in good if offset_of(each) < end]
            ended = True
        if good:
            yield good
        if ended:
            reader.unassign()  # an idle reader would ask the broker a hundred times a second
            return


def _sorted_out(messages: list[Message], topic: str, partition: int) -> tuple[list[Message], bool]:
    good: list[Message] = []
    for message in messages:
        error = message.error()
        if error is None:
            good.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            return good, True
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise FenceError(
                Code.OFFSETS_OUT_OF_RANGE,
                f"The log of {topic}[{partition}] does not hold the offset that is needed:"
                f" {error.str()}.",
                "Records were removed before they were archived; see the code's page.",
                topic=topic,
                partition=partition,
            )
        elif not error.retriable():
            raise ServerError(
                Code.KAFKA_REFUSED,
                f"Kafka refused to read {topic}[{partition}]: {error.str()}.",
                "Check the topic's name and the reader's rights.",
            )
    return good, False
