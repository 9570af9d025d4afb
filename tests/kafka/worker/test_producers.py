"""Producers that end: an own one whose commit is not known (P6), a predecessor's (P5)."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.kafka.worker.ports import Away, before, changed
from tests.kafka.worker.stage import Stage, codes

from refold.examples.order.graph import Reserved

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not-done"])
def test_p6_after_a_commit_without_an_answer_every_partition_is_taken_again(
    two: Stage, *, done: bool
) -> None:
    """P6: memory is of no use then; the group's offset says what was sent, once."""
    (first,), (other,) = two.names(0, 1), two.names(1, 1)
    lose: list[bool] = []
    made: list[str] = []

    def unanswered(commit: Callable[..., Any]) -> Callable[..., Any]:
        def committed(*args: Any) -> Any:
            if not lose:
                return commit(*args)
            lose.clear()
            if done:
                commit(*args)
            raise KafkaException(KafkaError(KafkaError._FENCED, "no answer", True))

        return committed

    wrap = changed(
        producer={"commit_transaction": unanswered}, clients={"producer": before(made.append)}
    )
    with two.working(wrap=wrap, snapshot_max_age_s=3600, takeover_budget_s=3600) as worker:
        two.place(first, other)
        two.until(lambda: len(two.sent()) == 2, "the first commands")
        (owner,) = two.owners()
        lose.append(True)
        two.put((first, "r", Reserved()))
        two.until(lambda: two.owners().isdisjoint({owner}), "a new owner of both")
        two.until(lambda: codes(worker) == {0: "", 1: ""}, "both live again")
        two.put((other, "r", Reserved()))
        two.until(lambda: len(two.sent()) >= 4, "the last commands")
        assert two.owners() == {list(dict.fromkeys(made))[-1]}, "not the newest producer"
    assert sorted(two.sent()) == sorted(
        f"{each}/{state}" for each in (first, other) for state in ("reserving", "charging")
    )
    assert two.counts() == {"applied": 4}


def test_b014_a_producer_that_is_refused_is_asked_for_again_after_a_pause(one: Stage) -> None:
    """B014: missing rights on its ids make no endless loop, and are made good without a restart."""
    made: list[str] = []
    refused = Away(
        10**6, KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    )
    wrap = changed(
        producer={"init_transactions": before(refused)}, clients={"producer": before(made.append)}
    )
    one.place("o-1")
    with one.working(wrap=wrap, retry_s=0.5, gather_s=0.001) as worker:
        one.until(lambda: len(made) > 1, "a second try")
        tries, since_s = len(made), worker.health.status.at_s
        one.until(lambda: worker.health.status.at_s > since_s + 2.0, "two seconds of turns")
        more = len(made) - tries
        assert more <= (worker.health.status.at_s - since_s) / 0.5 + 2
        refused.left = 0
        one.until_saved()
    assert one.sent() == ["o-1/reserving"]


def predecessor(stage: Stage, identity: str) -> Producer:
    """A worker that died with its transaction ready to be committed, in ten minutes aborted."""
    dead = stage.producer(**{"transactional.id": identity, "transaction.timeout.ms": 600_000})
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(stage.topic("commands"), b"sent by the dead", b"k")
    member = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group})
    place = TopicPartition(stage.topic(), 0, 2)
    dead.send_offsets_to_transaction([place], member.consumer_group_metadata(), 30)
    dead.flush(30)
    member.close()
    stage.sql("UPDATE refold.workflow_partition SET owner = %s, released = false", identity)
    return dead


def test_p5_a_predecessor_is_fenced_then_the_epoch_claimed_and_only_then_the_offset_read(
    one: Stage,
) -> None:
    """P5: or the dead one's transaction commits behind the look, and its records go out again."""
    one.place("o-1")
    one.fold()
    one.place("o-2")
    dead = predecessor(one, f"{one.namespace}-dead")
    order: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        return lambda *args, **_: order.append(" ".join([name, *(a for a in args if name == "p")]))

    wrap = changed(
        clients={"producer": before(noted("p"))},
        store={"claim": before(noted("claim"))},
        admin={"list_consumer_group_offsets": before(noted("offset"))},
    )
    with one.working(wrap=wrap):
        one.until_saved()
    with pytest.raises(KafkaException):
        dead.commit_transaction(30)
    fenced = order.index(f"p {one.namespace}-dead")
    assert fenced < order.index("claim") < order.index("offset")
    assert one.sent() == ["o-1/reserving", "o-2/reserving"]
