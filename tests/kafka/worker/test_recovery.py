"""Recovery: from nothing, from damage, beside foreign transactions, and by other code."""

from typing import Any

import pytest
from confluent_kafka import Producer
from tests.kafka.worker.graphs import (
    Closed,
    Counted,
    both,
    count,
    fixed,
    newer,
    reworded,
    swapped,
)
from tests.kafka.worker.stage import Given, Stage, codes, header

from refold.examples.order.graph import Charged, OrderPlaced, Reserved
from refold.processors.engine_events import Redrive
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.topics.records import event_headers

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def put_everything(stage: Stage, first: int = 0) -> None:
    """Every kind of decision: duplicate, conflict, refused, poison, parked, queued, late."""
    a, b, c = (f"{name}-{first}" for name in "abc")
    one = Counted(number=1)
    stage.put(
        (a, "1", one),
        (a, "1", one),
        (a, "1", Counted(number=2)),
        (b, "1", Closed()),
        (c, "1", one),
        (c, "2", Counted(number=13)),
        (c, "3", Counted(number=3)),
        (a, "2", Closed()),
        (a, "3", Closed()),
        workflow="count",
    )
    headers = event_headers("9", "/shop", codec_of(Counted).name, "acme")
    stage.put_raw(a.encode(), b"\x00not avro", headers, "count")
    stage.put((a, "4", one), (f"d-{first}", "1", Counted(number=4)), workflow="count")


def test_an_emptied_postgresql_is_rebuilt_from_the_log_and_nothing_is_sent_again(
    two: Stage,
) -> None:
    """P13, O2, O5: the log is events and decisions; hash, rows, index and counts are equal."""
    two.add_count()
    put_everything(two)
    two.fold(count)
    put_everything(two, 1)
    two.fold(count)
    before, sent, decided = two.saved(), two.sent("count"), two.decided("count")
    assert set(two.counts("count")) >= {
        "applied", "duplicate", "conflict", "refused", "parked", "poison", "late",
    }  # fmt: skip
    two.lose_everything()
    two.fold(count)
    assert two.saved() == before
    assert two.sent("count") == sent
    assert two.decided("count") == decided


def test_p13_what_was_parked_stays_parked_for_the_code_that_could_fold_it(one: Stage) -> None:
    """P13: parked, committed on, killed before a cut, fix deployed, replay: no silent command."""
    one.add_count()
    one.put(("c", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    one.keep()
    one.put(
        ("c", "2", Counted(number=13)),
        ("c", "3", Counted(number=3)),
        ("d", "1", Counted(number=4)),
        workflow="count",
    )
    one.fold(count)
    parked = one.saved()["snapshots"]
    one.put_back()
    one.sql(
        "UPDATE refold.workflow_definition SET fingerprint = %s", fixed.latest.fingerprint
    )  # as `refold definitions accept` does
    with one.working(fixed) as worker:
        one.until_saved("count")
        one.until_codes(worker, {0: ""}, "count")
        kept = [row[:6] + row[7:] for row in one.saved()["snapshots"]]
        assert kept == [row[:6] + row[7:] for row in parked]
        assert one.sent("count") == ["c/open", "d/open"]
        one.act("c", Redrive(offsets=(), version=0, who="ann", why="fixed"), workflow="count")
        one.until_saved("count")
    assert one.sent("count") == ["c/open", "d/open", "c/open", "c/open"]
    assert (
        len({header(each, "idempotency-key") for each in one.committed("commands", "count")}) == 4
    )


def test_p13_an_instance_stays_on_the_version_that_it_began_with(one: Stage) -> None:
    """P13: the last activation at or below its first offset, also in a replay of it all."""
    one.add_count()
    one.put(("old", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    one.put(("old", "2", Counted(number=13)), ("new", "1", Counted(number=13)), workflow="count")
    one.fold(both)
    before = one.saved()
    versions = {row[2]: row[5] for row in before["snapshots"]}
    assert versions == {"old": 1, "new": 2}
    assert one.run_status("old") == "parked"
    one.lose_everything()
    one.fold(both)
    assert one.saved() == before


def test_p19_commands_with_other_values_in_the_tail_are_an_alarm_and_no_fence(
    one: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    """P19: the keys are the same, so nothing is sent twice; it is said."""
    one.add_count()
    one.put(("c", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    one.keep()
    one.put(("c", "2", Counted(number=2)), workflow="count")
    one.fold(count)
    one.put_back()
    one.sql("UPDATE refold.workflow_definition SET fingerprint = %s", reworded.latest.fingerprint)
    capfd.readouterr()
    with one.working(reworded) as worker:
        one.until_saved("count")
        one.until_codes(worker, {0: ""}, "count")
    told = capfd.readouterr()
    assert "sent with other values" in told.out + told.err
    assert one.sent("count") == ["c/open", "c/open"]


def damage(stage: Stage, instance: str) -> None:
    """Flip a bit in the newest snapshot of an instance."""
    stage.sql(
        "UPDATE refold.workflow_snapshot s SET data = set_byte(data, 5, get_byte(data, 5) # 1)"
        " WHERE instance_id = %s AND version = (SELECT max(version) FROM refold.workflow_snapshot"
        " WHERE instance_id = s.instance_id)",
        instance,
    )


def fold_in_steps(stage: Stage) -> None:
    """One order with a snapshot behind each of its steps, and a neighbour."""
    steps: list[list[Given]] = [
        [("o-1", "p", OrderPlaced(items=("pen",), total=3)), ("o-2", "p2", OrderPlaced((), 1))],
        [("o-1", "r", Reserved())],
        [("o-1", "c", Charged(receipt="r"))],
    ]
    with stage.working():
        for step in steps:
            stage.put(*step)
            stage.until_saved()


def test_b030_a_damaged_newest_snapshot_is_folded_again_from_an_older_one(
    one: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    """B030 (a), P21: what comes next is folded over the right state, and it says so."""
    fold_in_steps(one)
    damage(one, "o-1")
    one.put(("o-1", "late", Reserved()), ("o-2", "r2", Reserved()))
    capfd.readouterr()
    one.fold()
    told = capfd.readouterr()
    assert "SNAPSHOT_DAMAGED" in told.out + told.err
    assert one.states() == {"o-1": "done", "o-2": "charging"}
    after, sent = one.saved(), one.sent()
    one.lose_everything()
    one.fold()
    assert one.saved() == after, "what was repaired is not what the whole log gives"
    assert one.sent() == sent


def test_b030_every_snapshot_of_an_instance_damaged_is_folded_from_the_beginning(
    one: Stage,
) -> None:
    """B030 (a): nothing usable is left, the log is."""
    fold_in_steps(one)
    one.sql("UPDATE refold.workflow_snapshot SET data = substring(data for 9)"
            " WHERE instance_id = 'o-1'")  # fmt: skip
    one.put(("o-1", "late", Reserved()))
    one.fold()
    assert one.states()["o-1"] == "done"
    assert one.counts() == {"applied": 4, "late": 1}
    assert len(one.sent()) == 3


def test_b030_a_damaged_snapshot_whose_log_is_gone_fences_its_partition(two: Stage) -> None:
    """B030 (b): a state with a hole in it is never guessed; the other partition goes on."""
    (name,), (other,) = two.names(0, 1), two.names(1, 1)
    with two.working():
        for each in [
            (name, "p", OrderPlaced((), 1)),
            (name, "r", Reserved()),
            (name, "c", Charged(receipt="r")),
        ]:
            two.put(each)
            two.until_saved()
    two.sql("UPDATE refold.workflow_snapshot SET data = substring(data for 9)")
    two.delete_records(2)
    two.put((name, "late", Reserved()))
    two.place(other)
    with two.working() as worker:
        two.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE, 1: ""})
        two.until(lambda: two.marks() == {"p0": 3, "p1": 1}, "the other partition")
    assert two.sent() == [f"{name}/reserving", f"{name}/charging", f"{other}/reserving"]


def transactional(stage: Stage, name: str, **options: Any) -> Producer:
    producer = stage.producer(**{"transactional.id": f"{stage.namespace}-{name}", **options})
    producer.init_transactions(30)
    return producer


def upstream(stage: Stage, producer: Producer, instance: str) -> None:
    codec = codec_of(OrderPlaced)
    producer.produce(
        stage.topic(),
        codec.encode(OrderPlaced((), 1)),
        instance.encode(),
        headers=event_headers(f"p-{instance}", "/shop", codec.name, "acme"),
    )


def test_b006_a_log_that_ends_in_aborted_transactions_is_folded_and_recovered(one: Stage) -> None:
    """B006: the end is a position; control records and aborted ones are neither lag nor loss."""
    producer = transactional(one, "up", **{"transaction.timeout.ms": 60000})
    for number in range(10):
        producer.begin_transaction()
        upstream(one, producer, f"o-{number}")
        producer.flush(30)
        if number in {2, 5, 9}:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    last = 17  # behind the marker of the ninth transaction stand an aborted record and its marker
    with one.working() as worker:
        one.until(lambda: one.counts() == {"applied": 7}, "seven applied")
        one.until_codes(worker, {0: ""})
    before = one.saved()
    assert before["partitions"][0][2] == last
    one.lose_everything()
    with one.working() as worker:
        one.until(lambda: one.counts() == {"applied": 7}, "seven applied again")
        one.until_codes(worker, {0: ""})
        one.place("o-10")
        one.until(lambda: one.counts() == {"applied": 8}, "the next one")
    assert len(one.sent()) == 8


def test_b008_a_foreign_open_transaction_is_shown_as_lag_and_not_waited_for(two: Stage) -> None:
    """B008, P29: recovery ends below it; what is behind it is folded once it has ended."""
    (first, second, third), (other,) = two.names(0, 3), two.names(1, 1)
    two.place(first)
    two.fold()
    two.lose_everything()
    producer = transactional(two, "open", **{"transaction.timeout.ms": 600000})
    producer.begin_transaction()
    upstream(two, producer, second)
    producer.flush(30)
    two.place(third, other)
    with two.working() as worker:
        two.until_codes(worker, {0: "", 1: ""})
        two.until(lambda: two.marks() == {"p0": 1, "p1": 1}, "what is stable")
        two.until(
            lambda: [each.lag for each in worker.health.status.partitions
                     if each.partition == 0] == [2],
            "the lag shown",
        )  # fmt: skip
        producer.abort_transaction(30)
        two.until(lambda: two.counts() == {"applied": 3}, "the record behind it")
        assert codes(worker) == {0: "", 1: ""}
    assert sorted(two.sent()) == sorted(f"{each}/reserving" for each in (first, third, other))


def test_p16_commits_that_a_failover_lost_are_noticed_and_folded_again(one: Stage) -> None:
    """P16: the marker fell back under the owner's feet; it drops the partition and recovers."""
    with one.working(instances=1) as worker:
        one.put(*((f"o-{n}", f"p{n}", OrderPlaced((), n)) for n in range(3)))
        one.until_saved()
        one.until(lambda: worker.health.status.partitions[0].marker == 3, "the marker known")
        one.keep()
        one.put(*((f"o-{n}", f"r{n}", Reserved()) for n in range(3)))
        one.until_saved()
        one.until(lambda: worker.health.status.partitions[0].marker == 6, "the marker known")
        one.put_back()
        one.put(*((f"o-{n}", f"c{n}", Charged(receipt="r")) for n in range(3)))
        one.until_saved()
    assert one.states() == dict.fromkeys(("o-0", "o-1", "o-2"), "done")
    assert len(one.sent()) == 6
    after = one.saved()
    assert len(after["index"]) == 9
    one.lose_everything()
    one.fold()
    assert one.saved() == after


def test_p17_a_finished_order_is_not_begun_again_by_a_repeated_start(one: Stage) -> None:
    """P17: not in memory is not new; the row or stub in PostgreSQL knows its identities."""
    start = ("o-1", "p", OrderPlaced((), 1))
    one.put(start, ("o-1", "r", Reserved()), ("o-1", "c", Charged(receipt="r")))
    one.fold()
    one.put(start, ("o-1", "other", OrderPlaced((), 1)))
    one.fold()
    assert one.counts() == {"applied": 3, "duplicate": 1, "late": 1}
    assert len(one.sent()) == 2


def test_p19_o6_one_partition_that_diverges_does_not_stop_the_other(two: Stage) -> None:
    """P19: named with its keys, nothing of the tail is sent; O6: the other one goes on."""
    two.add_count()
    (first,), (other,) = two.names(0, 1), two.names(1, 1)
    two.put((first, "1", Counted(number=1)), (other, "1", Counted(number=1)), workflow="count")
    two.fold(count)
    two.keep()
    two.put((first, "2", Counted(number=2)), workflow="count")
    two.fold(count)
    two.put_back()
    two.sql("UPDATE refold.workflow_definition SET fingerprint = %s", swapped.latest.fingerprint)
    two.put((first, "3", Counted(number=3)), (other, "2", Counted(number=2)), workflow="count")
    with two.working(swapped) as worker:
        two.until_codes(worker, {0: Code.REPLAY_DIVERGED, 1: ""}, "count")
        two.until(lambda: two.marks("count") == {"p0": 1, "p1": 2}, "the other partition")
        two.until(
            lambda: any(
                f"{first}:open" in row[0] and "sent, but not wanted" in row[0]
                for row in two.sql("SELECT fence FROM refold.workflow_partition")
            ),
            "the key that differs",
        )
    assert sorted(two.sent("count")) == sorted([f"{first}/open"] * 2 + [f"{other}/open"])


def test_b029_a_worker_without_a_version_in_use_stops_until_it_has_it(one: Stage) -> None:
    """B029, design 5: instances are pinned; nothing is folded by another version's code."""
    one.add_count()
    one.put(("old", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    one.put(("old", "2", Counted(number=2)), ("new", "1", Counted(number=1)), workflow="count")
    before = one.saved()
    with one.working(newer) as worker:
        one.until_codes(worker, {0: Code.DEFINITION_MISSING}, "count")
    assert one.saved()["snapshots"] == before["snapshots"]
    assert one.sent("count") == ["old/open"]
    one.fold(both)
    assert one.sent("count") == ["old/open", "old/open", "new/open"]
    assert {row[2]: row[5] for row in one.saved()["snapshots"]} == {"old": 1, "new": 2}


def test_partitions_move_between_workers_of_the_newer_group_protocol(two: Stage) -> None:
    """P2, KIP-848: the same ownership rules hold under `group.protocol=consumer`."""
    names = [*two.names(0, 4), *two.names(1, 4)]
    newer_protocol = {"group_protocol": "consumer"}
    with two.working(worker=newer_protocol) as first:
        two.place(*names[::2])
        two.until_saved()
        with two.working(worker=newer_protocol) as second:
            two.until(
                lambda: (
                    len(codes(first)) == len(codes(second)) == 1
                    and {*codes(first).values(), *codes(second).values()} == {""}
                ),
                "a partition each",
            )
            two.place(*names[1::2])
            two.until_saved()
        two.put(*((each, "r", Reserved()) for each in names))
        two.until_saved()
    assert two.counts() == {"applied": 16}
    assert len(two.sent()) == 16
