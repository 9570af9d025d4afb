"""Where a partition goes on (P18): every case of marker against committed offset, one by one."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.processors.places import LOG, OURS, ROW

from refold.processors.judgement import LogFacts, judge
from refold.schemas.errors import Code, FenceError
from refold.snapshots.model import PartitionRow


def fence(row: PartitionRow | None, facts: LogFacts) -> Code:
    with pytest.raises(FenceError) as caught:
        judge(row, facts)
    assert caught.value.cure
    return caught.value.code


def test_an_offset_of_ours_past_the_marker_is_folded_up_to_silently_and_compared() -> None:
    start = judge(ROW, LOG)

    assert (start.position, start.silent_to, start.expected) == (100, 150, OURS)
    assert start.alarm is None


def test_a_log_that_nobody_folded_is_a_fresh_start() -> None:
    start = judge(None, replace(LOG, committed=None, metadata=None))

    assert (start.position, start.silent_to, start.alarm) == (0, 0, None)


def test_an_empty_database_is_rebuilt_silently_up_to_what_the_group_committed() -> None:
    start = judge(None, LOG)

    assert (start.position, start.silent_to, start.expected) == (0, 150, OURS)


@pytest.mark.parametrize("committed", [None, 40])
def test_lost_offsets_go_on_live_from_the_marker_with_an_alarm(committed: int | None) -> None:
    start = judge(ROW, replace(LOG, committed=committed, metadata=None))

    assert (start.position, start.silent_to) == (100, 100)
    assert start.alarm == Code.OFFSETS_LOST


def test_an_offset_that_somebody_moved_forward_is_a_fence() -> None:
    assert fence(ROW, replace(LOG, metadata=None)) == Code.OFFSETS_MOVED


@pytest.mark.parametrize(("choice", "silent_to"), [("emit", 100), ("silent", 150)])
def test_a_person_decides_about_moved_offsets(choice: str, silent_to: int) -> None:
    chosen = {"code": "OFFSETS_MOVED", "choice": choice, "who": "ada", "reason": "restore"}
    row = replace(ROW, choice=msgspec.json.encode(chosen).decode())

    start = judge(row, replace(LOG, metadata=None))

    assert (start.position, start.silent_to) == (100, silent_to)
    assert start.alarm == Code.OFFSETS_MOVED


def test_a_choice_for_another_fence_does_not_open_this_one() -> None:
    chosen = {"code": "REPLAY_DIVERGED", "choice": "silent", "who": "ada", "reason": "-"}
    row = replace(ROW, choice=msgspec.json.encode(chosen).decode())

    assert fence(row, replace(LOG, metadata=None)) == Code.OFFSETS_MOVED


@pytest.mark.parametrize(
    "facts",
    [
        replace(LOG, low=101),
        replace(LOG, high=99, committed=99),
        replace(LOG, high=140),
    ],
    ids=["the marker was deleted", "the marker is past the end", "the offset is past the end"],
)
def test_a_place_outside_the_log_is_a_fence(facts: LogFacts) -> None:
    assert fence(ROW, facts) == Code.OFFSETS_OUT_OF_RANGE


def test_an_empty_database_beside_a_log_without_its_beginning_is_a_fence() -> None:
    assert fence(None, replace(LOG, low=10)) == Code.OFFSETS_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (replace(LOG, topic_id="T2"), Code.LOG_REPLACED),
        (replace(LOG, group="other"), Code.GROUP_CHANGED),
        (replace(LOG, partitions=6), Code.PARTITIONS_CHANGED),
    ],
)
def test_another_log_group_or_count_is_a_fence(facts: LogFacts, code: Code) -> None:
    assert fence(ROW, facts) == code
