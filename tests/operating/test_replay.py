"""A partition folded from its log is what the worker made of it, and nothing else happens."""

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from tests.operating.conftest import Run
from tests.operating.world import SPEC, World

from refold.examples.order.graph import OrderPlaced, Reserved
from refold.processors.replay import fold_log
from refold.processors.summary import hashes_of
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, FenceError
from refold.testing.servers import Kafka
from refold.topics.partition import partition_of
from refold.topics.records import event_headers

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def test_a_replay_gives_the_states_and_digest_that_the_worker_saved(world: World) -> None:
    world.orders(40)
    world.fold()
    live = world.live()
    folded = fold_log(world.clients, world.namespace, world.workflow, 0)
    assert hashes_of(folded) == {(each.tenant, each.instance): each.hash for each in live.instances}
    assert folded.digests.packed() == live.row.digest
    assert folded.counts == live.row.counts
    assert folded.position == live.row.marker


def test_a_replay_sends_and_writes_nothing(world: World, refold: Run) -> None:
    world.orders(10)
    world.fold()
    before = world.sql("SELECT * FROM refold.workflow_partition")
    commands = world.end_of(f"{world.namespace}.order.commands")
    decisions = world.end_of(f"{world.namespace}.order.rejected")
    code, told, _ = refold("replay", SPEC, "--partition", "0", "--json")
    assert code == 0
    assert json.loads(told)["instances"] == 10
    assert world.end_of(f"{world.namespace}.order.commands") == commands
    assert world.end_of(f"{world.namespace}.order.rejected") == decisions
    assert world.sql("SELECT * FROM refold.workflow_partition") == before


def test_the_partition_of_an_instance_is_found_by_its_id(
    kafka: Kafka,
    database: str,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    refold: Run,
) -> None:
    world = World(unique("op"), kafka.bootstrap, database, monkeypatch, partitions=5)
    world.orders(3)
    world.fold()
    for instance in ("o-0", "o-1", "o-2"):
        code, told, _ = refold("replay", SPEC, "--instance", instance, "--tenant", "acme", "--json")
        found = json.loads(told)
        assert (code, found["instances"]) == (0, 1)
        assert found["partition"] == partition_of(instance.encode(), 5)
    code, _, err = refold("replay", SPEC)
    assert code == 2
    assert "partitions 0 to 4" in err


def test_an_instance_that_is_not_on_the_log_is_not_found(world: World, refold: Run) -> None:
    world.orders(1)
    world.fold()
    code, _, err = refold("replay", SPEC, "--instance", "o-9", "--tenant", "acme")
    assert code == 2
    assert "There is no instance acme/o-9 of order" in err


def test_a_replay_ends_behind_control_records_and_counts_data_records_only(
    world: World, refold: Run
) -> None:
    """B006: ten transactions of one record, three of them aborted, the last one too."""
    producer = world.producer(**{"transactional.id": world.namespace})
    producer.init_transactions(10)
    for number in range(10):
        producer.begin_transaction()
        _place(world, producer, number)
        producer.flush(10)
        if number in {2, 5, 9}:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
    with world.working():
        world.until(lambda: world.counts().get("applied") == 7, "seven applied records")
    code, told, _ = refold("replay", SPEC, "--partition", "0", "--json")
    found = json.loads(told)
    assert code == 0
    assert found["counts"] == {"applied": 7}
    assert found["end"] == 20


def test_one_instance_is_folded_alone(world: World, refold: Run) -> None:
    world.orders(9)
    world.fold()
    code, told, _ = refold(
        "replay", SPEC, "-p", "0", "--tenant", "acme", "--instance", "o-4", "--json"
    )
    assert code == 0
    found = json.loads(told)
    assert (found["instances"], found["states"]) == (1, {"done": 1})


def test_a_replay_stops_before_the_offset_that_is_named(world: World, refold: Run) -> None:
    world.publish(
        ("o-1", "p", OrderPlaced(items=("pen",), total=1)),
        ("o-1", "r", Reserved()),
    )
    world.fold()
    code, told, _ = refold("replay", SPEC, "-p", "0", "--to", "1", "--json")
    assert code == 0
    assert json.loads(told)["states"] == {"reserving": 1}


def test_a_log_that_lost_its_beginning_is_not_folded_as_if_nothing_happened(world: World) -> None:
    """B004: what retention took is named, not skipped."""
    world.orders(5)
    world.fold()
    world.delete_records(3)
    with pytest.raises(FenceError) as caught:
        fold_log(world.clients, world.namespace, world.workflow, 0)
    assert caught.value.code == Code.OFFSETS_OUT_OF_RANGE
    assert "0..2 are gone" in caught.value.what


def test_a_partition_that_is_not_there_is_a_mistake_of_the_caller(
    world: World, refold: Run
) -> None:
    code, _, told = refold("replay", SPEC, "--partition", "7")
    assert code == 2
    assert world.topic in told
    assert "Traceback" not in told


def _place(world: World, producer: Producer, number: int) -> None:
    codec = codec_of(OrderPlaced)
    producer.produce(
        world.topic,
        codec.encode(OrderPlaced(items=("pen",), total=number)),
        f"o-{number}".encode(),
        headers=event_headers(f"p{number}", "/shop", codec.name, "acme"),
    )
