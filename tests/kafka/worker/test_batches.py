"""Batches: slow loads, full queues, transactions that end badly, bad input end to end."""

from collections.abc import Sequence
from threading import Event
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, Message, TopicPartition
from tests.kafka.worker.graphs import Closed, Counted, CountedAndNoted, count, housed
from tests.kafka.worker.ports import Held, before, changed
from tests.kafka.worker.stage import ORDER, Stage, codes, header
from tests.running import settings_of

from refold.examples.order.graph import Charged, OrderPlaced, Reserved
from refold.processors import worker as worker_module
from refold.processors.clients import KafkaClients
from refold.processors.cluster import LATEST
from refold.processors.engine_events import Terminate
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.topics.records import event_headers
from refold.topics.rejected import original
from refold.topics.schema_topic import SchemaTopic

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

COUNTED = codec_of(Counted)


def keys(stage: Stage, workflow: str = "order") -> list[str]:
    return [header(each, "idempotency-key") for each in stage.committed("commands", workflow)]


def test_b009_a_slow_load_is_waited_for_while_the_loop_polls_and_others_go_on(two: Stage) -> None:
    """B009, P11: longer than a session; the partition is paused, the group keeps us."""
    (slow,), (other, another) = two.names(0, 1), two.names(1, 2)
    two.place(slow, other)
    two.fold()
    held = Held()

    def first_partition(topic: str, partition: int, *_: Any) -> None:
        if partition == 0:
            held()

    with two.working(wrap=changed(store={"load": before(first_partition)})) as worker:
        two.until_codes(worker, {0: "", 1: ""})
        epochs = [each.epoch for each in worker.health.status.partitions]
        two.put((slow, "r", Reserved()))
        two.until(held.reached.is_set, "the load")
        since_s = worker.health.status.at_s
        two.until(lambda: worker._rounds.busy, "the wait beside the loop")
        two.until(lambda: worker.health.status.at_s > since_s + 2.0, "two seconds of polls")
        held.let_go()
        two.place(another)
        two.until_saved()
        assert [each.epoch for each in worker.health.status.partitions] == epochs
    assert sorted(two.sent()) == sorted(
        [f"{slow}/reserving", f"{slow}/charging", f"{other}/reserving", f"{another}/reserving"]
    )


def test_p10_a_transaction_begins_no_sooner_than_the_pause_after_the_last_one(one: Stage) -> None:
    """P10: records that arrive meanwhile join it. A lower bound: no machine is too slow for it."""
    ends: list[float] = []
    gaps: list[float] = []

    def begun(*_: Any) -> None:
        if ends:
            gaps.append(monotonic() - ends[-1])

    def ended(call: Any) -> Any:
        def commit(*args: Any) -> Any:
            answer = call(*args)
            ends.append(monotonic())
            return answer

        return commit

    wrap = changed(producer={"begin_transaction": before(begun), "commit_transaction": ended})
    with one.working(wrap=wrap, worker={"transaction_pause_ms": 40}) as worker:
        one.place("o-first")
        one.until_saved()
        for number in range(40):
            one.place(f"o-{number}")
        one.until_saved()
        one.until(lambda: worker.health.status.transactions == len(ends), "the last status")
    assert len(gaps) >= 3
    assert min(gaps) >= 0.035


def test_b012_a_full_queue_of_the_client_is_waited_for(one: Stage) -> None:
    """B012: back-pressure, record by record; every command once, in the order of the fold."""
    names = [f"o-{n}" for n in range(300)]
    one.place(*names)
    with one.working(kafka={"producer": {"queue.buffering.max.messages": 10}}):
        one.until_saved()
    assert one.sent() == [f"{each}/reserving" for each in names]


def test_b014_a_transaction_that_timed_out_costs_the_producer_and_nothing_else(
    one: Stage,
) -> None:
    """B014, P6: the coordinator aborted it while nobody looked; a new producer goes on."""
    held = Held(2)
    made: list[Any] = []
    wrap = changed(
        producer={"commit_transaction": before(held)}, clients={"producer": before(made.append)}
    )
    one.place("o-1")
    with one.working(wrap=wrap, worker={"transaction_timeout_ms": 1000}) as worker:
        one.until_saved()
        one.place("o-2", "o-3")
        one.until(held.reached.is_set, "the second commit")
        place = TopicPartition(one.topic("commands"), 0)

        def end(level: Any) -> int:
            asked = one.admin.list_offsets({place: LATEST}, isolation_level=level)
            return int(asked[place].result(10).offset)

        one.until(
            lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED),
            "the broker's abort",
        )
        held.let_go()
        one.until_saved()
        assert codes(worker) == {0: ""}
    assert one.sent() == ["o-1/reserving", "o-2/reserving", "o-3/reserving"]
    assert len(set(made)) >= 2, "the finished producer was replaced"


def test_b016_repeats_conflicts_and_copies_are_judged_alike_before_and_after_a_restart(
    one: Stage,
) -> None:
    """B016: dedup memory is part of the snapshot; the graph is the second net."""
    run = [
        ("o-2", "e1", OrderPlaced(("pen",), 5)),
        ("o-2", "e2", Reserved()),
        ("o-2", "e3", Charged(receipt="r")),
    ]
    again = [("o-2", "e1", OrderPlaced(("pen",), 6)), ("o-2", "e9", OrderPlaced(("pen",), 5))]
    one.put(*run[:2], *run[:2], *again)
    with one.working(instances=0):
        one.until_saved()
    assert one.counts() == {"applied": 2, "duplicate": 2, "conflict": 1, "refused": 1}
    one.put(run[2], *run, *again)
    with one.working(instances=0):
        one.until_saved()
    assert one.counts() == {
        "applied": 3, "duplicate": 5, "conflict": 2, "refused": 1, "late": 1
    }  # fmt: skip
    assert one.sent() == ["o-2/reserving", "o-2/charging"]
    after = one.saved()
    one.lose_everything()
    one.fold()
    assert one.saved() == after


def kept(stage: Stage, workflow: str) -> list[tuple[Any, ...]]:
    """Key, value and headers of every rejected record, as the decision log has them."""
    found = [
        original(each)
        for each in stage.committed("rejected", workflow)
        if header(each, "refold-kind") == "decision"
    ]
    return [(each.key, each.value, each.headers) for each in found]


def test_b017_records_that_cannot_be_decoded_are_kept_and_pass(one: Stage) -> None:
    """B017: one attempt each, original bytes, neighbours applied; a key without life is poison."""
    one.add_count()
    headers = event_headers("9", "/shop", COUNTED.name, "acme")
    bad = [
        b"not avro",
        b"\x00",
        b"\xc3\x01" + b"\x07" * 8 + b"\x02",
        COUNTED.encode(Counted(number=1))[:10] + b"\xff" * 40,
        b'{"number": 1}',
    ]
    one.put(("a", "1", Counted(number=1)), workflow="count")
    for number, value in enumerate(bad):
        one.put_raw(f"new-{number}".encode(), value, headers, "count")
    one.put_raw(b"a", bad[2], headers, "count")
    one.put(("b", "1", Counted(number=2)), workflow="count")
    one.fold(count)
    assert one.counts("count") == {"applied": 2, "poison": 5, "parked": 1}
    assert [row[1:] for row in one.decided("count")] == [
        ("poison", Code.UNDECODABLE),
        ("poison", Code.UNDECODABLE),
        ("poison", Code.SCHEMA_UNKNOWN),
        ("poison", Code.UNDECODABLE),
        ("poison", Code.UNDECODABLE),
        ("parked", Code.SCHEMA_UNKNOWN),
    ]
    assert [value for _, value, _ in kept(one, "count")] == [*bad, bad[2]]
    assert sorted(one.sent("count")) == ["a/open", "b/open"]


def test_b017_a_new_schema_is_waited_for_while_its_topic_cannot_be_read(
    one: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B017's variant, P27: valid data is not rejected because the schemas are away."""
    monkeypatch.setattr(worker_module, "LOOP_SILENT_S", 0.2)
    away, asked = Event(), Event()

    def poll(call: Any) -> Any:
        def answer(*args: Any) -> Any:
            if away.is_set():
                asked.set()
                return None
            return call(*args)

        return answer

    one.add_count()
    one.put(("a", "1", Counted(number=1)), workflow="count")
    with one.working(count, wrap=changed(reader={"poll": poll})) as worker:
        one.until_saved("count")
        one.until_codes(worker, {0: ""}, "count")
        away.set()
        clients = KafkaClients(settings_of(one))
        schemas = SchemaTopic(one.namespace, clients.reader())
        schemas.publish(clients.publisher(), [codec_of(CountedAndNoted)], "count")
        schemas.close()
        one.put(("a", "2", CountedAndNoted(number=2, note="new")), workflow="count")
        one.until(asked.is_set, "the look for the schema")
        one.until_codes(worker, {0: Code.KAFKA_AWAY}, "count")
        aborts = worker.health.status.aborts
        away.clear()
        one.until_saved("count")
        assert worker.health.status.aborts == aborts
    assert one.counts("count") == {"applied": 2}
    assert one.decided("count") == []


def test_b020_headers_that_are_not_ours_pass_and_damaged_ones_of_ours_refuse(one: Stage) -> None:
    """B020: raw bytes are kept as they came; never "last wins"; the worker lives."""
    value = codec_of(OrderPlaced).encode(OrderPlaced(("pen",), 1))

    def headers(event: str) -> list[tuple[str, Any]]:
        return list(event_headers(event, "/shop", "OrderPlaced", "acme"))

    strange = [("trace", b"\xc3\x28"), ("trace", b"again"), ("nothing", None)]
    without = [each for each in headers("e3") if each[0] != "ce_tenant"]
    given: Sequence[list[tuple[str, Any]]] = [
        [*headers("e1"), *strange],
        [*headers("e2"), ("ce_id", b"other"), *strange],
        [*without, ("ce_tenant", None)],
        [*[each for each in headers("e4") if each[0] != "ce_id"], ("ce_id", b"\xc3\x28")],
        [*headers("e5"), *((f"h{n}", b"x") for n in range(300))],
    ]
    for number, each in enumerate(given):
        one.put_raw(f"o-{number}".encode(), value, each)
    one.place("o-9")
    one.fold()
    assert one.sent() == ["o-0/reserving", "o-9/reserving"]
    assert [row[:2] for row in one.decided()] == [(n, "refused") for n in (1, 2, 3, 4)]
    assert [headers for _, _, headers in kept(one, "order")] == [
        [(name, held) for name, held in each] for each in given[1:]
    ]


def neighbours(number: int) -> list[tuple[str, str, Any]]:
    return [(f"n-{each}", "1", Counted(number=1)) for each in range(number)]


def test_b022_a_command_too_large_for_the_client_parks_its_instance_alone(one: Stage) -> None:
    """B022: by decision, before the marker passes; neighbours once; it can be terminated."""
    one.add_count()
    big = ("big", "1", Counted(number=1_500_000))
    some = neighbours(20)
    one.put(*some[:10], big, *some[10:], workflow="count")
    one.fold(count)
    assert one.decided("count") == [(10, "parked", Code.COMMAND_TOO_LARGE)]
    assert sorted(one.sent("count")) == sorted(f"{each[0]}/open" for each in some)
    assert one.run_status("big") == "parked"
    one.act("big", Terminate(reason="too large", who="ann"), workflow="count")
    one.fold(count)
    assert one.run_status("big") == "terminated"
    after, sent = one.saved(), keys(one, "count")
    one.lose_everything()
    one.fold(count)
    assert one.saved() == after
    assert keys(one, "count") == sent


def limited(stage: Stage, topic: str, most: int) -> None:
    """Let a topic take no larger records, and wait until the broker refuses one.

    It answers for a setting before its log has it; what is tried is aborted.
    """
    stage.set_config(topic, "max.message.bytes", str(most))
    producer = stage.producer(**{"transactional.id": f"{stage.namespace}-limit"})
    producer.init_transactions(30)
    codes: list[int] = []

    def told(error: KafkaError | None, _: Message) -> None:
        codes.append(error.code() if error else 0)

    def refused() -> bool:
        producer.begin_transaction()
        producer.produce(topic, b"x" * 2 * most, on_delivery=told)
        producer.flush(30)
        producer.abort_transaction(30)
        return codes[-1] == KafkaError.MSG_SIZE_TOO_LARGE

    stage.until(refused, "the smaller limit")


def test_b022_a_command_too_large_for_its_topic_parks_its_instance_alone(one: Stage) -> None:
    """B022's variant, P12: the broker refuses the whole batch; careful mode finds the record."""
    one.add_count()
    limited(one, one.topic("commands", "count"), 20_000)
    some = neighbours(20)
    one.put(*some[:10], ("big", "1", Counted(number=100_000)), *some[10:], workflow="count")
    with one.working(count) as worker:
        one.until_saved("count")
        # A status is published a few times a second, the marker may be saved before the next.
        one.until(lambda: worker.health.status.aborts > 0, "the status that tells of the aborts")
    assert [row[1:] for row in one.decided("count")] == [("parked", Code.SUSPECT)]
    assert sorted(one.sent("count")) == sorted(f"{each[0]}/open" for each in some)
    assert one.run_status("big") == "parked"


def test_b023_a_missing_decision_log_holds_its_partition_until_it_is_there(one: Stage) -> None:
    """B023: the record that must be rejected is not passed meanwhile."""
    one.put(("o-1", "r", Reserved()))
    one.delete_topics(one.topic("rejected"))
    with one.working() as worker:
        one.until_codes(worker, {0: Code.TOPIC_MISSING})
        assert one.marks() == {}
        one.make_topics()
        one.until_saved()
    assert one.counts() == {"refused": 1}
    assert one.decided() == [(0, "refused", Code.NO_TRANSITION)]


def test_b023_a_decision_log_that_vanishes_under_a_worker_lets_nothing_pass(one: Stage) -> None:
    """B023, O3: what cannot be rejected is not committed; the partition says why it waits."""
    one.place("o-1")
    with one.working(worker={"transaction_timeout_ms": 1000}, preflight_s=0.5) as worker:
        one.until_saved()
        one.delete_topics(one.topic("rejected"))
        one.put(("o-2", "r", Reserved()))
        one.until_codes(worker, {0: Code.TOPIC_MISSING})
        one.make_topics()  # empty: the decisions are lost, which nobody passes over
        one.until_codes(worker, {0: Code.OFFSETS_OUT_OF_RANGE})
        (shown,) = worker.health.status.partitions
    assert one.topic("rejected") in shown.text
    assert one.counts() == {"applied": 1}


def test_a_default_tenant_is_given_where_it_is_declared_and_refused_where_not(
    one: Stage,
) -> None:
    """P29: absent tenant: the definition's default, or refused."""
    one.add_count()
    one.put(("o-1", "p", OrderPlaced((), 1)), tenant=None)
    one.put(("c-1", "1", Counted(number=1)), tenant=None, workflow="count")
    one.fold(ORDER, housed)
    assert [row[1:] for row in one.decided()] == [("refused", Code.BAD_ENVELOPE)]
    assert one.decided("count") == []
    assert one.sql("SELECT tenant, instance_id FROM refold.workflow_instance") == [("house", "c-1")]


def test_equal_ids_of_two_tenants_are_two_instances_of_one_partition(one: Stage) -> None:
    """Design 1: identity is (tenant, workflow, instance), in rows, keys, dedup and snapshots."""
    one.put(("o-1", "p", OrderPlaced((), 1)), tenant="acme")
    one.put(("o-1", "p", OrderPlaced((), 2)), tenant="busy")
    with one.working(instances=0):
        one.until_saved()
        one.put(("o-1", "r", Reserved()), tenant="busy")
        one.until_saved()
    assert one.sql(
        "SELECT tenant, state FROM refold.workflow_instance ORDER BY tenant"
    ) == [("acme", "reserving"), ("busy", "charging")]  # fmt: skip
    assert len(set(keys(one))) == 3
    assert one.counts() == {"applied": 3}


def test_several_workflows_of_one_worker_do_not_mix(one: Stage) -> None:
    """One consumer, one producer, one transaction: two workflows with equal instance ids."""
    one.add_count()
    one.place("x")
    one.put(("x", "1", Counted(number=1)), ("x", "2", Closed()), workflow="count")
    one.fold(ORDER, count)
    assert (one.sent(), one.sent("count")) == (["x/reserving"], ["x/open"])
    assert (one.states(), one.states("count")) == ({"x": "reserving"}, {"x": "closed"})


def test_keys_that_name_no_instance_or_another_partition_begin_no_life(two: Stage) -> None:
    """B001, B003, B019: refused with their raw key, offsets advance, nobody is called "None"."""
    value = codec_of(OrderPlaced).encode(OrderPlaced(("pen",), 1))
    (name,) = two.names(0, 1)
    producer = two.producer()

    def put(key: bytes | None, body: bytes | None, event: str, subject: str = "") -> None:
        headers = event_headers(event, "/shop", "OrderPlaced", "acme")
        more = [("ce_subject", subject.encode())] if subject else []
        producer.produce(two.topic(), body, key, 1, headers=[*headers, *more])

    put(None, value, "1")
    put(b"", value, "2")
    put(b"\x83\xff", value, "3")
    put(name.encode(), value, "4")
    (other,) = two.names(1, 1)
    put(other.encode(), value, "5", subject=name)
    put(other.encode(), None, "6")
    put(other.encode(), b"", "7")
    put(other.encode(), value, "8")
    assert producer.flush(30) == 0
    two.fold()
    assert two.decided() == [
        (0, "refused", Code.BAD_KEY),
        (1, "refused", Code.BAD_KEY),
        (2, "refused", Code.BAD_KEY),
        (3, "refused", Code.WRONG_PARTITION),
        (4, "refused", Code.BAD_KEY),
        (5, "refused", Code.TOMBSTONE),
        (6, "poison", Code.UNDECODABLE),
    ]
    assert two.states() == {other: "reserving"}
    assert [(key, value) for key, value, _ in kept(two, "order")][2:6] == [
        (b"\x83\xff", value),
        (name.encode(), value),
        (other.encode(), value),
        (other.encode(), None),
    ]


def test_b021_a_large_event_that_is_refused_is_kept_whole_and_blocks_nothing(one: Stage) -> None:
    """B021: the record beside its reason fits what the decision log takes."""
    large = OrderPlaced(items=("x" * 980_000,), total=1)
    one.place("o-1")
    one.put(("o-1", "again", large))
    one.put(("o-1", "r", Reserved()))
    one.fold()
    assert one.decided() == [(1, "refused", Code.NO_TRANSITION)]
    assert kept(one, "order")[0][1] == codec_of(OrderPlaced).encode(large)
    assert one.sent() == ["o-1/reserving", "o-1/charging"]
