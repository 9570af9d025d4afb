"""Tails on a real broker: one after another, each partition live at the end of its own."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.kafka.worker.graphs import Counted, count
from tests.kafka.worker.ports import changed
from tests.kafka.worker.stage import Stage

from refold.processors.worker import Worker

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
TAILS = (60, 20)
BATCH = 4


def test_a_partition_is_live_before_the_next_ones_tail_is_read(two: Stage) -> None:
    """Read side by side, every partition would go live at the end of all tails together."""
    two.add_count()
    owners = [two.names(partition, 1)[0] for partition in range(2)]
    two.put(*((each, "0", Counted(number=1)) for each in owners), workflow="count")
    two.fold(count)
    two.keep()
    for owner, tail in zip(owners, TAILS, strict=True):
        events = (Counted(number=1) for _ in range(tail))
        two.put(*((owner, f"{n}", each) for n, each in enumerate(events, 1)), workflow="count")
    two.fold(count)
    was, sent = two.saved(), two.sent("count")
    two.put_back()
    workers: list[Worker] = []
    alone: list[int] = []

    def reading(consume: Callable[..., Any]) -> Callable[..., Any]:
        def consumed(*args: Any) -> Any:
            found = consume(*args)
            if workers and workers[0]._assignment.turns.waiting:
                alone.extend(each.partition() for each in found if each.error() is None)
            return found

        return consumed

    wrap = changed(consumer={"consume": reading})
    with two.working(count, wrap=wrap, batch_records=BATCH) as worker:
        workers.append(worker)
        two.until_codes(worker, {0: "", 1: ""}, "count")
        two.until_saved("count")
    assert len(set(alone)) == 1
    assert len(alone) > TAILS[alone[0]] - BATCH
    assert two.sent("count") == sent
    assert two.saved() == was
