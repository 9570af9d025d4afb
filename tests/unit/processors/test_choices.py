"""What a person chose for a fence (P18, P19): how the partition then starts, and until when."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.processors.places import LOG, ROW
from tests.unit.processors.places import OURS as BEFORE

from refold.processors.digest import Committed
from refold.processors.judgement import CHOICES, Choice, judge
from refold.schemas.errors import Code, FenceError
from refold.snapshots.model import PartitionRow

AFTER = Committed(4, "a" * 32, "b" * 32)
"""What an owner committed after the choice, which was made in epoch 3."""


def chosen(code: Code, choice: str, row: PartitionRow = ROW, group: str = "") -> PartitionRow:
    made = Choice(code=code, choice=choice, who="ann", reason="test", epoch=3, group=group)
    return replace(row, choice=msgspec.json.encode(made).decode())


def test_a_diverged_tail_is_taken_silently_without_comparing() -> None:
    start = judge(chosen(Code.REPLAY_DIVERGED, "silent"), LOG)
    assert (start.position, start.silent_to, start.expected) == (100, 150, None)
    assert start.alarm is Code.REPLAY_DIVERGED


def test_a_diverged_tail_is_sent_again_from_the_marker() -> None:
    start = judge(chosen(Code.REPLAY_DIVERGED, "emit"), LOG)
    assert (start.position, start.silent_to) == (100, 100)


@pytest.mark.parametrize("choice", ["silent", "emit"])
def test_once_an_owner_has_committed_after_the_choice_its_digest_is_compared(choice: str) -> None:
    row = chosen(Code.REPLAY_DIVERGED, choice)
    start = judge(row, replace(LOG, committed=160, metadata=AFTER))
    assert (start.position, start.silent_to, start.expected) == (100, 160, AFTER)


def test_a_new_log_is_begun_at_its_first_offset_and_the_old_state_forgotten() -> None:
    start = judge(chosen(Code.LOG_REPLACED, "restart"), replace(LOG, topic_id="T2"))
    assert (start.position, start.silent_to, start.restart) == (0, 0, True)


def test_an_offset_of_the_old_log_does_not_count_for_the_new_one() -> None:
    row = chosen(Code.LOG_REPLACED, "restart", replace(ROW, topic_id="T2", marker=0, counts={}))
    start = judge(row, replace(LOG, topic_id="T2"))
    assert (start.position, start.silent_to, start.restart) == (0, 0, False)


def test_an_offset_that_was_committed_in_the_new_log_counts() -> None:
    row = chosen(Code.LOG_REPLACED, "restart", replace(ROW, topic_id="T2", marker=0, counts={}))
    start = judge(row, replace(LOG, topic_id="T2", committed=40, metadata=AFTER))
    assert (start.position, start.silent_to, start.expected) == (0, 40, AFTER)


def test_a_new_log_that_has_lost_its_beginning_stays_fenced() -> None:
    with pytest.raises(FenceError) as caught:
        judge(chosen(Code.LOG_REPLACED, "restart"), replace(LOG, topic_id="T2", low=5))
    assert caught.value.code is Code.OFFSETS_OUT_OF_RANGE


def test_a_new_group_goes_on_from_the_old_ones_offset_and_compares_its_digest() -> None:
    row = chosen(Code.GROUP_CHANGED, "adopt", replace(ROW, group="r.new"), group="r.workers")
    facts = replace(
        LOG, group="r.new", committed=None, metadata=None, previous=150, previous_metadata=BEFORE
    )
    start = judge(row, facts)
    assert (start.position, start.silent_to, start.expected) == (100, 150, BEFORE)
    assert start.alarm is None


def test_records_that_are_gone_are_skipped_up_to_the_logs_first() -> None:
    row = chosen(Code.OFFSETS_OUT_OF_RANGE, "skip")
    start = judge(row, replace(LOG, low=120, committed=110))
    assert (start.position, start.silent_to, start.expected) == (120, 120, None)


def test_what_was_committed_after_a_skip_is_folded_silently_again() -> None:
    row = chosen(Code.OFFSETS_OUT_OF_RANGE, "skip")
    start = judge(row, replace(LOG, low=120, committed=170, metadata=AFTER))
    assert (start.position, start.silent_to, start.expected) == (120, 170, AFTER)


@pytest.mark.parametrize("code", [Code.LOG_REPLACED, Code.GROUP_CHANGED, Code.REPLAY_DIVERGED])
def test_a_choice_for_another_fence_changes_nothing(code: Code) -> None:
    for choice in CHOICES[code]:
        with pytest.raises(FenceError) as caught:
            judge(chosen(code, choice), replace(LOG, metadata=None))
        assert caught.value.code is Code.OFFSETS_MOVED


def test_a_changed_partition_count_has_no_choice() -> None:
    assert Code.PARTITIONS_CHANGED not in CHOICES
    with pytest.raises(FenceError) as caught:
        judge(chosen(Code.PARTITIONS_CHANGED, "keep"), replace(LOG, partitions=8))
    assert caught.value.code is Code.PARTITIONS_CHANGED
