"""Where a partition goes on: marker in PostgreSQL against the group's offset in Kafka.

Law of this module: pure. One function with every case of P18 written out, so that none is left
to a client's automatic reset.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from refold.processors.digest import Committed, row_damaged
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
    previous: int | None = None
    """Offset of the group that was left, where a person chose to change the group."""
    previous_metadata: Committed | None = None


CHOICES: Final[Mapping[Code, Mapping[str, str]]] = {
    Code.OFFSETS_MOVED: {
        "silent": "fold up to the moved offset without a word: what stands there is never sent",
        "emit": "go on live from the marker: what is sent again has the same keys",
    },
    Code.REPLAY_DIVERGED: {
        "silent": "take what this code makes of the tail: nothing of the tail is sent",
        "emit": "go on live from the marker: this code's commands are sent beside the old ones",
    },
    Code.LOG_REPLACED: {
        "restart": "forget the old log's state and begin from offset 0 of the new log",
    },
    Code.GROUP_CHANGED: {
        "adopt": "go on in the new group from where the old group stands",
    },
    Code.OFFSETS_OUT_OF_RANGE: {
        "skip": "go on from the log's first offset: the records before it are never folded",
    },
}
"""What a person may choose for each fence; a fence that is not here has no safe choice."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose for a fenced partition (`refold partitions resolve`)."""

    code: str
    """The fence that it answers."""
    choice: str
    """One of `CHOICES`."""
    who: str
    reason: str
    epoch: int = 0
    """Epoch of the partition when it was chosen: what has a higher one came after."""
    group: str = ""
    """Group that the partition was folded by when it was chosen."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """From where to fold, up to where silently, and what to compare there."""

    position: int
    silent_to: int
    expected: Committed | None
    alarm: Code | None = None
    restart: bool = False
    """True: what stands in PostgreSQL is of another log and must be forgotten first."""


def judge(row: PartitionRow | None, facts: LogFacts) -> Start:
    """Decide how a partition starts.

    Raises:
        FenceError: LOG_REPLACED, GROUP_CHANGED, PARTITIONS_CHANGED, OFFSETS_OUT_OF_RANGE or
            OFFSETS_MOVED; a person chooses with `refold partitions resolve`.
    """
    choice = choice_of(row)
    if row is not None and row.topic_id != facts.topic_id and _chose(choice, Code.LOG_REPLACED):
        _in_range(facts, 0, "beginning")
        return Start(position=0, silent_to=0, expected=None, alarm=Code.LOG_REPLACED, restart=True)
    if row is not None:
        _same_log(row, facts)
    marker = 0 if row is None else row.marker
    fresh = marker == 0 and (row is None or not any(row.counts.values()))
    offset, metadata = _committed(facts, choice, marker)
    if marker < facts.low and _chose(choice, Code.OFFSETS_OUT_OF_RANGE):
        silent_to = max(facts.low, offset or 0)
        _in_range(facts, silent_to, "committed offset")
        return Start(
            position=facts.low,
            silent_to=silent_to,
            expected=metadata if _answered(facts, choice) else None,
            alarm=Code.OFFSETS_OUT_OF_RANGE,
        )
    _in_range(facts, marker, "marker")
    if offset is None or offset < marker:
        lost = not (fresh and offset is None)
        return Start(
            position=marker,
            silent_to=marker,
            expected=None,
            alarm=Code.OFFSETS_LOST if lost else None,
        )
    _in_range(facts, offset, "committed offset")
    if metadata is None and offset > marker:
        return _moved(facts, marker, offset, choice)
    if choice is not None and _chose(choice, Code.REPLAY_DIVERGED) and not _answered(facts, choice):
        return _as_chosen(choice, marker, offset)
    return Start(position=marker, silent_to=offset, expected=metadata)


def _committed(
    facts: LogFacts, choice: Choice | None, marker: int
) -> tuple[int | None, Committed | None]:
    """The offset that counts: of the group left, or none where it is of a log that is gone."""
    found = facts.committed, facts.metadata
    if choice is None:
        return found
    if marker == 0 and _chose(choice, Code.LOG_REPLACED):
        return found if _answered(facts, choice) else (None, None)
    if _chose(choice, Code.GROUP_CHANGED) and facts.committed is None:
        return facts.previous, facts.previous_metadata
    return found


def _chose(choice: Choice | None, code: Code) -> bool:
    return choice is not None and choice.code == code and choice.choice in CHOICES[code]


def _answered(facts: LogFacts, choice: Choice | None) -> bool:
    """True when an owner has committed since the choice: from there on P18(a) holds again."""
    return choice is not None and facts.metadata is not None and facts.metadata.epoch > choice.epoch


def _as_chosen(choice: Choice, marker: int, offset: int) -> Start:
    silent_to = offset if choice.choice == "silent" else marker
    return Start(position=marker, silent_to=silent_to, expected=None, alarm=Code(choice.code))


def choice_of(row: PartitionRow | None) -> Choice | None:
    """What a person chose for the partition's fence, None if nothing.

    Raises:
        FenceError: SNAPSHOT_DAMAGED, the row's text does not load.
    """
    if row is None or not row.choice:
        return None
    try:
        return msgspec.json.decode(row.choice, type=Choice)
    except msgspec.MsgspecError as error:
        cure = "Put the text back that workflow_choice keeps of it; the log does not know it."
        raise row_damaged("choices", error, cure) from error


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
    if choice is not None and _chose(choice, Code.OFFSETS_MOVED):
        return _as_chosen(choice, marker, offset)
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
        f"Nothing was folded or sent. See `refold explain {code}`, then"
        f" `refold partitions resolve {facts.topic} {facts.partition}`.",
        topic=facts.topic,
        partition=facts.partition,
    )
