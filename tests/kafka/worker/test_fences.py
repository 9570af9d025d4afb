"""Fences end to end: named in health, one partition alone, nothing folded or sent behind them."""

import msgspec
import pytest
from confluent_kafka import Message
from tests.kafka.worker.conftest import StageOf
from tests.kafka.worker.graphs import Counted, count
from tests.kafka.worker.ports import Held, before, changed
from tests.kafka.worker.stage import ORDER, Stage, codes

from refold.examples.order.graph import Reserved
from refold.processors.endpoint import StatusCollector
from refold.schemas.errors import Code
from refold.topics.partition import partition_of

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_b002_a_partition_count_that_is_raised_while_running_stops_this_topic_alone(
    stage_of: StageOf,
) -> None:
    """B002: no instance begins a second life, nothing is sent twice, other topics go on.

    From three partitions to four an instance may move to a partition that is owned already.
    """
    three = stage_of(3)
    three.add_count()
    names = [f"i-{each}" for each in range(60)]
    moved = [each for each in names if place_of(each, 3) != place_of(each, 4)][:16]
    assert {place_of(each, 4) for each in moved} == {0, 1, 2, 3}
    three.place(*moved)
    with three.working(ORDER, count, preflight_s=0.3) as worker:
        three.until_saved()
        three.raise_partitions(4, three.topic(), three.topic("rejected"))
        three.put(*((each, f"r-{each}", Reserved()) for each in moved))
        three.until_codes(worker, dict.fromkeys(range(3), Code.PARTITIONS_CHANGED))
        three.put(("c-1", "1", Counted(number=1)), workflow="count")
        three.until_saved("count")
        three.until_codes(worker, dict.fromkeys(range(3), Code.PARTITIONS_CHANGED))
    assert sorted(three.sent()) == sorted(f"{each}/reserving" for each in moved)
    assert three.states() == dict.fromkeys(moved, "reserving")
    lives = three.sql("SELECT instance_id, count(DISTINCT partition) FROM"
                      " refold.workflow_snapshot WHERE workflow = 'order' GROUP BY 1")  # fmt: skip
    assert dict(lives) == dict.fromkeys(moved, 1)
    assert three.counts("count") == {"applied": 1}


def place_of(instance: str, partitions: int) -> int:
    return partition_of(instance.encode(), partitions)


def test_b002_a_partition_count_that_was_raised_while_stopped_starts_no_second_lives(
    two: Stage,
) -> None:
    """B002: new partitions are fenced as the old ones are, and count in health."""
    two.place(*two.names(0, 5), *two.names(1, 5))
    two.fold()
    two.raise_partitions(4, two.topic(), two.topic("rejected"))
    two.put(*((each, f"r-{each}", Reserved()) for each in two.names(2, 3, 4) + two.names(3, 3, 4)))
    before = two.saved()
    with two.working() as worker:
        two.until_codes(worker, dict.fromkeys(range(4), Code.PARTITIONS_CHANGED))
    assert two.saved() == before
    assert len(two.sent()) == 10


def test_b004_records_that_are_gone_fence_their_partition_and_the_other_one_goes_on(
    two: Stage,
) -> None:
    """B004, O6: the gap is named, nothing goes on behind it; the other partition runs."""
    two.place(*two.names(0, 2), *two.names(1, 2))
    two.fold()
    two.place(*two.names(0, 9)[2:], *two.names(1, 4)[2:])
    two.delete_records(5)
    with two.working() as worker:
        two.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE, 1: ""})
        two.until(lambda: two.marks() == {"p0": 2, "p1": 4}, "the other partition's marker")
        (text,) = [each.text for each in worker.health.status.partitions if each.code]
    assert "2..4 are gone" in text
    assert len(two.sent()) == 6
    assert two.sql("SELECT fence LIKE 'OFFSETS_OUT_OF_RANGE%%' FROM refold.workflow_partition"
                   " ORDER BY partition") == [(True,), (False,)]  # fmt: skip


def test_b004_records_that_go_while_the_worker_is_behind_them_are_missed_at_once(
    one: Stage,
) -> None:
    """B004: the client's own reset never jumps the gap; a running worker says so too."""
    names = one.names(0, 8)
    one.place(*names[:2])
    with one.working(preflight_s=0.3, freshness_s=0.02) as worker:
        one.until_saved()
        one.delete_records(2)  # all of it folded: no gap
        one.place(*names[2:4])
        one.until_saved(p0=4)
        assert codes(worker) == {0: ""}
    one.place(*names[4:])
    one.delete_records(6)
    with one.working() as worker:
        one.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE})
    assert len(one.sent()) == 4


def test_b004_records_that_go_while_a_partition_is_held_back_are_missed_by_the_next_read(
    one: Stage,
) -> None:
    """B004: nothing is jumped over, and no periodic check is needed to see it."""
    held = Held()
    names = one.names(0, 60)
    with one.working(
        wrap=changed(store={"save": before(held), "flush": before(held)}),
        worker={"batch_records": 5},
        held_records=10,
        snapshot_max_age_s=0.02,
        preflight_s=3600,
    ) as worker:
        one.place(*names)
        one.until(lambda: worker._rounds.throttled != set(), "the pause")
        one.delete_records(60)
        held.let_go()
        one.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE})
        folded = worker.health.status.partitions[0].position
    assert one.sent() == [f"{each}/reserving" for each in names[: len(one.sent())]]
    assert len(one.sent()) < 60, folded


@pytest.mark.parametrize("records", [3, 40], ids=["fewer", "more"])
def test_b005_a_topic_that_was_made_anew_is_another_log_at_whatever_length(
    one: Stage, records: int
) -> None:
    """B005: also where the old offset is a valid one of the new log."""
    one.place(*one.names(0, 10))
    one.fold()
    before = one.saved()
    one.delete_topics(one.topic())
    one.make_topics()
    one.place(*(f"new-{each}" for each in range(records)))
    with one.working() as worker:
        one.until_codes(worker, {0: Code.LOG_REPLACED})
    assert one.saved() == before
    assert len(one.sent()) == 10


def test_b005_a_topic_that_vanishes_is_missed_and_what_takes_its_name_is_not_read(
    one: Stage,
) -> None:
    """B005 with the consumer running: old snapshots are not mixed with new events."""
    one.place(*one.names(0, 10))
    with one.working(preflight_s=0.3) as worker:
        one.until_saved()
        one.until_codes(worker, {0: ""})
        before = one.saved()
        one.delete_topics(one.topic())
        one.until_codes(worker, {0: Code.TOPIC_MISSING})
        one.make_topics()
        one.place(*(f"new-{each}" for each in range(30)))
        one.until_codes(worker, {0: Code.LOG_REPLACED})
    assert one.saved() == before
    assert len(one.sent()) == 10


def test_b005_a_topic_that_is_made_anew_at_once_is_noticed_by_the_next_preflight(
    one: Stage,
) -> None:
    """B005: the client does not tell; what is fenced then moves no further."""
    one.place(*one.names(0, 10))
    with one.working(preflight_s=0.3) as worker:
        one.until_saved()
        one.delete_topics(one.topic())
        one.make_topics()
        one.until_codes(worker, {0: Code.LOG_REPLACED})
        before = one.saved()
        one.place(*(f"new-{each}" for each in range(30)))
        one.until_codes(worker, {0: Code.LOG_REPLACED})
    assert one.saved() == before
    assert len(one.sent()) == 10


@pytest.mark.parametrize("choice", ["silent", "emit"])
def test_p18c_an_offset_that_was_moved_waits_for_a_person_and_then_does_as_told(
    two: Stage, choice: str
) -> None:
    """P18 (c), O6: the other partition goes on meanwhile."""
    first, second = two.names(0, 6), two.names(1, 2)
    two.place(*first[:2], second[0])
    two.fold()
    two.place(*first[2:4])
    two.move_offset(4)
    with two.working() as worker:
        two.until_codes(worker, {0: Code.OFFSETS_MOVED, 1: ""})
        two.place(second[1])
        two.until(lambda: two.marks() == {"p0": 2, "p1": 2}, "the other partition's marker")
        assert len(two.sent()) == 4
        two.choose(Code.OFFSETS_MOVED, choice)
        two.place(*first[4:])
        two.until_saved()
        two.until_codes(worker, {0: "", 1: ""})
    told = {f"{each}/reserving" for each in first[2:4]}
    assert two.counts() == {"applied": 8}
    assert len(two.sent()) == (8 if choice == "emit" else 6)
    assert told <= set(two.sent()) if choice == "emit" else not told & set(two.sent())


def test_p18b_offsets_that_are_lost_send_again_under_the_same_keys_and_say_so(
    one: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    """P18 (b): from the marker, alarmed as OFFSETS_LOST; what goes out again is the same."""
    one.place(*one.names(0, 4))
    one.fold()
    one.keep()
    one.place(*one.names(0, 8)[4:])
    one.fold()
    one.put_back()
    one.forget_offsets()
    sent = one.committed("commands")
    capfd.readouterr()
    with one.working() as worker:
        one.until_saved()
        one.until(lambda: worker.health.status.partitions[0].alarm != "", "the alarm in the status")
        (partition,) = worker.health.status.partitions
        metrics = list(StatusCollector(worker.health).collect())
        ((row,),) = one.sql("SELECT alarm FROM refold_v1.partitions")
    again = one.committed("commands")[len(sent) :]
    told = capfd.readouterr()
    assert "OFFSETS_LOST" in told.out + told.err
    assert (partition.alarm, str(partition.phase)) == ("OFFSETS_LOST", "live")
    assert row == "OFFSETS_LOST it went on from offset 4"
    (alarm,) = [
        sample for each in metrics if each.name == "refold_alarm" for sample in each.samples
    ]
    assert (alarm.labels["code"], alarm.value) == ("OFFSETS_LOST", 1)
    with one.working():
        one.until(
            lambda: one.sql("SELECT alarm FROM refold_v1.partitions") == [("",)],
            "a take-over without an alarm",
        )
    assert [whole(each) for each in again] == [whole(each) for each in sent[4:]]
    assert one.counts() == {"applied": 8}


def whole(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.partition(), message.headers()


def test_p18e_a_log_whose_beginning_is_gone_and_without_a_row_is_fenced(one: Stage) -> None:
    """P18 (e): a fresh start is one from offset 0 only."""
    one.place(*one.names(0, 4))
    one.delete_records(2)
    with one.working() as worker:
        one.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE})
    assert one.sent() == []


def test_p18_another_group_does_not_go_on_with_the_first_ones_state(one: Stage) -> None:
    """P18: GROUP_CHANGED; nothing is sent again."""
    one.place(*one.names(0, 3))
    one.fold()
    other = f"{one.namespace}.other"
    with one.working(worker={"group": other}) as worker:
        one.until_codes(worker, {0: Code.GROUP_CHANGED})
    assert len(one.sent()) == 3


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("retention.ms", "86400000", Code.RETENTION_FINITE),
        ("cleanup.policy", "compact", Code.TOPIC_WRONG),
        ("message.timestamp.type", "CreateTime", Code.TOPIC_WRONG),
    ],
)
def test_a_topic_that_refold_cannot_rely_on_is_refused_until_it_is_cured(
    one: Stage, name: str, value: str, code: Code
) -> None:
    """Preflight of design 4: nothing is folded before the cure, and it needs no restart."""
    one.place(*one.names(0, 2))
    good = {"retention.ms": "-1", "cleanup.policy": "delete",
            "message.timestamp.type": "LogAppendTime"}[name]  # fmt: skip
    one.set_config(one.topic(), name, value)
    with one.working() as worker:
        one.until_codes(worker, {0: code})
        assert one.sent() == []
        one.set_config(one.topic(), name, good)
        one.until_saved()
    assert len(one.sent()) == 2


def test_a_topic_that_goes_wrong_later_stops_its_running_partitions(one: Stage) -> None:
    """O7: the checks are made again while a partition is owned."""
    one.place(*one.names(0, 2))
    with one.working(preflight_s=0.3) as worker:
        one.until_saved()
        one.set_config(one.topic(), "cleanup.policy", "compact")
        one.until_codes(worker, {0: Code.TOPIC_WRONG})


def test_p9_a_missing_command_topic_holds_its_workflow_back_and_no_other(one: Stage) -> None:
    """P9, O6: preflight, because a transaction would hold until its time-out."""
    one.add_count()
    one.delete_topics(one.topic("commands", "count"))
    one.put(("c-1", "1", Counted(number=1)), workflow="count")
    one.place("o-1")
    with one.working(ORDER, count) as worker:
        one.until_saved()
        one.until_codes(worker, {0: Code.TOPIC_MISSING}, "count")
        one.make_topics("count")
        one.until_saved("count")
    assert one.sent("count") == ["c-1/open"]


def test_p18d_an_offset_past_the_end_of_the_log_is_a_fence(one: Stage) -> None:
    """P18 (d): nothing is waited for that may never come."""
    one.place(*one.names(0, 3))
    one.fold()
    one.sql("UPDATE refold.workflow_partition SET marker = 50, rows_to = 50")
    with one.working() as worker:
        one.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE})
        (shown,) = worker.health.status.partitions
    assert "past the end" in shown.text
    assert worker.health.status.troubles(worker.health.status.at_s)


def test_every_fence_is_told_by_the_status_as_data(one: Stage) -> None:
    """O7: what a probe or a console reads has the code, the text and the phase."""
    one.place("o-1")
    one.fold()
    with one.working(worker={"group": f"{one.namespace}.other"}) as worker:
        one.until_codes(worker, {0: Code.GROUP_CHANGED})
        told = msgspec.json.decode(msgspec.json.encode(worker.health.status))
    (partition,) = told["partitions"]
    assert partition["phase"] == "fenced"
    assert partition["code"] == "GROUP_CHANGED"
    assert partition["topic"] == one.topic()
