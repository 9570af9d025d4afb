"""Where a partition goes on: marker in PostgreSQL against the group's offset in Kafka.

Law of this module: pure. One function with every case of P18 written out, so that none is left
to a client's automatic reset.
"""

import msgspec

from refold.processors.digest import Committed
from refold.schemas.errors import Code, FenceError
from refold.snapshots.model import PartitionRow


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What Kafka says about one partition of an event topic at take-over."""

    topic: str
    partition: int
    topic_id: str
    partitions: int
    group: str
    low: int
    high: int
    committed: int | None
    metadata: Committed | None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose for a fenced partition (`refold partitions resolve`)."""

    code: str
    """The fence that it answers."""
    choice: str
    """`emit`: live from the marker; `silent`: fold up to the group's offset without a word."""
    who: str
    reason: str


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """From where to fold, up to where silently, and what to compare there."""

    position: int
    silent_to: int
    expected: Committed | None
    alarm: Code | None = None


def judge(row: PartitionRow | None, facts: LogFacts) -> Start:
    """Decide how a partition starts.

    Raises:
        FenceError: LOG_REPLACED, GROUP_CHANGED, PARTITIONS_CHANGED, OFFSETS_OUT_OF_RANGE or
            OFFSETS_MOVED; a person chooses with `refold partitions resolve`.
    """
    if row is not None:
        _same_log(row, facts)
    marker = 0 if row is None else row.marker
    fresh = marker == 0 and (row is None or not any(row.counts.values()))
    _in_range(facts, marker, "marker")
    offset = facts.committed
    if offset is None or offset < marker:
        lost = not (fresh and offset is None)
        return Start(
            position=marker,
            silent_to=marker,
            expected=None,
            alarm=Code.OFFSETS_LOST if lost else None,
        )
    _in_range(facts, offset, "committed offset")
    if facts.metadata is None and offset > marker:
        return _moved(facts, marker, offset, choice_of(row))
    return Start(position=marker, silent_to=offset, expected=facts.metadata)


def choice_of(row: PartitionRow | None) -> Choice | None:
    """What a person chose for the partition's fence, None if nothing."""
    if row is None or not row.choice:
        return None
    return msgspec.json.decode(row.choice, type=Choice)


def _same_log(row: PartitionRow, facts: LogFacts) -> None:
    if row.topic_id != facts.topic_id:
        raise _fence(
            Code.LOG_REPLACED,
            facts,
            f"the snapshots belong to topic id {row.topic_id}, the topic now has {facts.topic_id}:"
            " it was deleted and made anew.",
        )
    if row.group != facts.group:
        raise _fence(
            Code.GROUP_CHANGED,
            facts,
            f"the snapshots were written by group {row.group}, this worker is in {facts.group}.",
        )
    if row.partitions != facts.partitions:
        raise _fence(
            Code.PARTITIONS_CHANGED,
            facts,
            f"the snapshots were written for {row.partitions} partitions, the topic now has"
            f" {facts.partitions}: instances would move away from their state.",
        )


def _in_range(facts: LogFacts, offset: int, what: str) -> None:
    if facts.low <= offset <= facts.high:
        return
    gap = f"{offset}..{facts.low - 1} are gone" if offset < facts.low else "it is past the end"
    raise _fence(
        Code.OFFSETS_OUT_OF_RANGE,
        facts,
        f"the {what} {offset} is outside the log {facts.low}..{facts.high}: {gap}.",
    )


def _moved(facts: LogFacts, marker: int, offset: int, choice: Choice | None) -> Start:
    if choice is not None and choice.code == Code.OFFSETS_MOVED:
        silent_to = offset if choice.choice == "silent" else marker
        return Start(position=marker, silent_to=silent_to, expected=None, alarm=Code.OFFSETS_MOVED)
    raise _fence(
        Code.OFFSETS_MOVED,
        facts,
        f"the group's offset {offset} was not written by refold and is ahead of the marker"
        f" {marker}: somebody moved it.",
    )


def _fence(code: Code, facts: LogFacts, what: str) -> FenceError:
    return FenceError(
        code,
        f"Partition {facts.topic}[{facts.partition}] is fenced: {what}",
        f"Nothing was folded or sent. See docs/errors/{code}.md, then"
        f" `refold partitions resolve {facts.topic} {facts.partition}`.",
        topic=facts.topic,
        partition=facts.partition,
    )
