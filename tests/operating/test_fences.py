"""Fences seen, and what a person may choose (P18, P19): each choice run to its end."""

import json

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from tests.operating import changed
from tests.operating.conftest import Run
from tests.operating.world import PATIENCE_S, SPEC, World

from refold.examples.order.graph import OrderPlaced
from refold.processors.definition import Workflow
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.topics.records import event_headers
from refold.topics.settings import load_settings

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def fenced(world: World, code: Code, text: str = "") -> None:
    """Wait until the partition's row says so."""

    def met() -> bool:
        rows = world.sql("SELECT fence FROM refold.workflow_partition")
        return any(row[0].startswith(code) and text in row[0] for row in rows)

    world.until(met, f"the fence {code} {text}")


def resolve(refold: Run, world: World, choice: str) -> None:
    code, _, told = refold(
        "partitions", "resolve", world.topic, "0", "--choose", choice, "--who", "ann", "--why",
        "a test",
    )  # fmt: skip
    assert code == 0, told


def commit_plainly(world: World, offset: int) -> None:
    """Move the group's offset as a person with a plain tool does: the metadata is gone."""
    place = TopicPartition(world.topic, 0, offset)
    request = ConsumerGroupTopicPartitions(world.settings.group, [place])
    for done in world.admin.alter_consumer_group_offsets([request]).values():
        done.result(PATIENCE_S)


def place(world: World, *numbers: int) -> None:
    world.publish(*((f"o-{n}", f"p{n}", OrderPlaced(items=("pen",), total=n)) for n in numbers))


def commands(world: World) -> list[str]:
    return world.committed(f"{world.namespace}.order.commands")


def test_an_offset_that_was_moved_is_folded_silently_when_a_person_says_so(
    world: World, refold: Run
) -> None:
    place(world, 1, 2)
    world.fold()
    place(world, 3, 4)
    commit_plainly(world, 3)
    with world.working():
        fenced(world, Code.OFFSETS_MOVED)
        code, told, _ = refold("partitions", "show", world.topic, "0", "--json")
        resolve(refold, world, "silent")
        world.until_saved()
    found = json.loads(told)
    assert code == 0
    assert found["fence"] == "OFFSETS_MOVED"
    assert set(found["choices"]) == {"emit", "silent"}
    assert [key.split(":")[3] for key in commands(world)] == ["o-1", "o-2", "o-4"]
    assert world.counts() == {"applied": 4}


def test_an_offset_that_was_moved_is_sent_again_when_a_person_says_so(
    world: World, refold: Run
) -> None:
    place(world, 1)
    world.fold()
    place(world, 2, 3)
    commit_plainly(world, 2)
    with world.working():
        fenced(world, Code.OFFSETS_MOVED)
        resolve(refold, world, "emit")
        world.until_saved()
    assert [key.split(":")[3] for key in commands(world)] == ["o-1", "o-2", "o-3"]


def test_a_log_that_was_made_anew_is_begun_when_a_person_says_so(world: World, refold: Run) -> None:
    """B005: old offsets and old snapshots are not mixed with the new log, at a valid offset."""
    place(world, *range(5))
    world.fold()
    old = world.live().row.topic_id
    world.remake_topics("events", "rejected")
    place(world, *range(10, 20))
    with world.working():
        fenced(world, Code.LOG_REPLACED)
        assert world.counts() == {"applied": 5}
        resolve(refold, world, "restart")
        world.until_saved()
    assert world.live().row.topic_id != old
    assert world.counts() == {"applied": 10}
    assert set(world.states()) == {f"o-{n}" for n in range(10, 20)}
    kept = world.sql("SELECT count(*) FROM refold.workflow_event_log WHERE topic_id = %s", old)
    assert kept == [(5,)]
    assert refold("verify", SPEC)[0] == 0


def test_a_new_log_beside_an_old_decision_log_stays_fenced(world: World, refold: Run) -> None:
    place(world, 1)
    world.publish(("o-9", "c", world.charged("too early")))
    world.fold()
    world.remake_topics("events")
    place(world, 2)
    with world.working():
        fenced(world, Code.LOG_REPLACED)
        resolve(refold, world, "restart")
        fenced(world, Code.LOG_REPLACED, "still holds the decisions")
    assert world.counts() == {"applied": 1, "refused": 1}


def test_a_group_that_was_renamed_goes_on_from_where_the_old_one_stood(
    world: World, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(world, 1, 2)
    world.fold()
    monkeypatch.setenv("REFOLD_WORKER_GROUP", f"{world.namespace}.other")
    world.settings = load_settings()
    place(world, 3)
    with world.working():
        fenced(world, Code.GROUP_CHANGED)
        resolve(refold, world, "adopt")
        world.until_saved()
    place(world, 4)
    world.fold()
    assert [key.split(":")[3] for key in commands(world)] == ["o-1", "o-2", "o-3", "o-4"]
    assert world.counts() == {"applied": 4}
    assert world.live().row.group == f"{world.namespace}.other"


def test_records_that_retention_took_are_skipped_only_when_a_person_says_so(
    world: World, refold: Run
) -> None:
    """B004: the gap is named, nothing goes on by itself."""
    place(world, 1, 2)
    world.fold()
    place(world, 3, 4, 5)
    world.delete_records(4)
    with world.working():
        fenced(world, Code.OFFSETS_OUT_OF_RANGE, "2..3 are gone")
        assert len(commands(world)) == 2
        resolve(refold, world, "skip")
        world.until_saved()
    assert [key.split(":")[3] for key in commands(world)] == ["o-1", "o-2", "o-5"]


def test_a_replay_that_decides_otherwise_names_the_commands_and_sends_nothing(
    world: World, refold: Run
) -> None:
    """P19: the tail was folded by other code under the same version."""
    place(world, 1)
    world.fold()
    world.keep_marker()
    world.publish(("o-1", "r1", changed.RESERVED), ("o-2", "p2", OrderPlaced(items=(), total=2)))
    world.fold()
    world.put_marker_back()
    sent = commands(world)
    other = Workflow("order", [changed.reserved_goes_nowhere])
    world.sql("UPDATE refold.workflow_definition SET fingerprint = %s",
              other.latest.fingerprint)  # fmt: skip
    with world.working(other):
        fenced(world, Code.REPLAY_DIVERGED, "sent, but not wanted by this code")
        shown = json.loads(refold("partitions", "show", world.topic, "0", "--json")[1])
        assert commands(world) == sent
        resolve(refold, world, "silent")
        world.until(lambda: world.marks() == {0: 3}, "the marker behind the tail")
    assert "o-1:charging:Charge" in shown["fence_text"]
    assert set(shown["choices"]) == {"emit", "silent"}
    assert commands(world) == sent


def test_a_choice_that_is_not_offered_is_refused_with_those_that_are(
    world: World, refold: Run
) -> None:
    place(world, 1)
    world.fold()
    code, _, told = refold(
        "partitions", "resolve", world.topic, "0", "--choose", "emit", "--who", "a", "--why", "b"
    )
    assert code == 2
    assert "is not fenced" in told
    world.sql("UPDATE refold.workflow_partition SET fence = 'LOG_REPLACED it was made anew'")
    code, _, told = refold(
        "partitions", "resolve", world.topic, "0", "--choose", "emit", "--who", "a", "--why", "b"
    )
    assert code == 2
    assert "restart" in told


def test_status_shows_worker_lag_and_fence(world: World, refold: Run) -> None:
    place(world, 1, 2)
    with world.working() as worker:
        world.until_saved()
        code, told, _ = refold("status", "--json")
        shown = [refold(*line)[1] for line in (("status",), ("partitions", "list"))]
    found = json.loads(told)
    assert code == 0
    (state,) = found["partitions"]
    assert (state["marker"], state["fence"]) == (2, "")
    (member,) = found["members"]
    assert (state["worker"], state["host"]) == (worker.name, member["host"])
    assert member["worker"] == worker.name
    assert all(worker.name in each for each in shown)
    assert found["kafka"] == found["postgres"] == ""


def test_control_records_do_not_hide_that_a_group_has_caught_up(world: World, refold: Run) -> None:
    """A committed offset stays in front of them, so that offsets alone would say: one behind."""
    sender = world.producer(**{"transactional.id": world.namespace})
    sender.init_transactions(10)

    def send(number: int, *, commit: bool) -> None:
        sender.begin_transaction()
        codec = codec_of(OrderPlaced)
        sender.produce(
            world.topic,
            codec.encode(OrderPlaced(items=(), total=1)),
            f"o-{number}",
            headers=event_headers(f"p{number}", "/shop", codec.name, "acme"),
        )
        sender.flush(10)
        (sender.commit_transaction if commit else sender.abort_transaction)(10)

    send(1, commit=True)
    with world.working():
        world.until(lambda: world.counts().get("applied") == 1, "the order to be folded")
        send(2, commit=False)
        state = json.loads(refold("partitions", "show", world.topic, "0", "--json")[1])
        told = refold("status")[1]
    assert (state["committed"], state["lag"]) == (1, 0)
    assert state["end"] == 4
    assert "caught up" in told
    send(3, commit=True)
    place(world, 4)
    assert "lag        2 records" in refold("status")[1]


def test_status_answers_with_postgresql_away(
    world: World, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(world, 1)
    world.fold()
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", "postgresql://127.0.0.1:1/none?connect_timeout=1")
    code, told, _ = refold("status", "--json")
    found = json.loads(told)
    assert code == 1
    assert "fences are not known" in found["postgres"]
    assert found["partitions"][0]["lag"] == 0 or found["partitions"][0]["committed"] == 1
    assert found["partitions"][0]["marker"] is None


def test_status_answers_with_kafka_away(
    world: World, refold: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(world, 1)
    world.fold()
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    code, told, _ = refold("status", "--json")
    found = json.loads(told)
    assert code == 1
    assert "lag are not known" in found["kafka"]
    assert (found["partitions"][0]["marker"], found["partitions"][0]["end"]) == (1, None)


def test_status_says_what_is_to_be_done_first(world: World, refold: Run) -> None:
    code, told, _ = refold("status")
    assert code == 1
    assert "no worker runs: start `refold worker" in " ".join(told.split())
    world.sql("DROP SCHEMA refold_v1 CASCADE")
    code, _, told = refold("status")
    assert code == 1
    assert "Run `refold db migrate`" in " ".join(told.split())
