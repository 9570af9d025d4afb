"""Records that are kept on the decision log: each once, and no larger for being redriven."""

from typing import Any

import pytest
from confluent_kafka import Message, Producer
from tests.crash.test_matrix import name_of
from tests.kafka.worker.stage import Stage, header
from tests.running import settings_of

from refold.examples.order.graph import OrderPlaced, Reserved
from refold.processors.clients import KafkaClients
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.testing.boundary import Plan
from refold.topics.clients import opened, transactional_producer_config
from refold.topics.redrive import RejectedLog, redrive
from refold.topics.rejected import original

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
REDRIVES = 20


def size(message: Message) -> int:
    headers: Any = message.headers() or []
    return len(message.value() or b"") + sum(len(name) + len(held or b"") for name, held in headers)


@pytest.mark.slow
def test_b021_a_large_record_that_is_redriven_twenty_times_stays_as_it_was(one: Stage) -> None:
    """B021: as large as the broker takes; refused each time, kept whole, and nothing is blocked."""
    large = OrderPlaced(items=("x" * 980_000,), total=1)
    settings = settings_of(one)
    clients = KafkaClients(settings)
    log = RejectedLog(one.namespace, "order", clients.reader)

    def sender(identity: str) -> Producer:
        return opened(Producer, transactional_producer_config(settings, identity))

    one.place("o-1")
    one.put(("o-1", "again", large))
    place = 0
    with one.working():
        one.until_saved()
        for refused in range(1, REDRIVES + 1):
            one.until(lambda: one.counts().get("refused") == refused, "the next refusal")  # noqa: B023
            (*_, last) = log.entries(0, place)
            place = last.where.offset
            (done,) = redrive(log, [last], sender, clients.reader)
            assert done.sent
        one.put(("o-1", "r", Reserved()))
        one.until(lambda: one.counts().get("applied") == 2, "what comes behind them")
    found = [
        each for each in one.committed("rejected") if header(each, "refold-kind") == "decision"
    ]
    kept = [original(each) for each in found]
    assert [each.attempt for each in kept] == list(range(1, REDRIVES + 2))
    assert {each.origin or each.source for each in kept} == {kept[0].source}
    assert {each.value for each in kept} == {codec_of(OrderPlaced).encode(large)}
    assert max(map(size, found)) <= size(found[0]) + 100, "coordinates of its first place, no more"
    assert one.counts() == {"applied": 2, "refused": REDRIVES + 1}
    assert one.sent() == ["o-1/reserving", "o-1/charging"]


CRASHES = [
    Plan("producer.send_offsets_to_transaction", 1, "before", "kill"),
    Plan("producer.commit_transaction", 1, "before", "kill"),
    Plan("producer.commit_transaction", 1, "after", "kill"),
    Plan("store.flush", 1, "after", "kill"),
    Plan("store.save", 1, "after", "kill"),
]


@pytest.mark.crash
@pytest.mark.parametrize("plan", CRASHES, ids=name_of)
def test_b023_a_crash_between_the_copy_and_the_marker_leaves_one_copy(
    one: Stage, plan: Plan
) -> None:
    """B023: copy and offset are one transaction; what is behind it obeys the copy (P13)."""
    one.put(("o-1", "r", Reserved()))
    first = one.worker(plan)
    one.until(lambda: first.poll() is not None, "the crash")
    dead = one.owners()
    second = one.worker()
    one.until(lambda: one.owners() != dead, "a successor")
    one.until_saved()
    one.stop(second)
    assert one.decided() == [(0, "refused", Code.NO_TRANSITION)]
    assert one.counts() == {"refused": 1}
    assert [(row[1], row[5]) for row in one.saved()["index"]] == [(0, "refused")]
