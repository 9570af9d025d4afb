"""Takes that outlive the producer that they were begun for (P6)."""

from threading import Event
from typing import Any, cast

import pytest
from msgspec.structs import replace

from refold.examples.order import order
from refold.processors.definition import Workflow
from refold.processors.options import Options
from refold.processors.ownership import Contested, Taker
from refold.snapshots.model import PartitionRow

ROW = PartitionRow(
    topic="shop.order.events", partition=0, workflow="order", topic_id="t", partitions=1,
    group="g", epoch=2, owner="new", released=False, marker=0, rows_to=0, decisions=0,
    digest=b"", counts={}, base=0, takeovers=1,
)  # fmt: skip


class Store:
    """A store that answers the first look only when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answers, self.looks = Event(), Event(), 0

    def read(self, *_: Any) -> PartitionRow:
        self.looks += 1
        if self.looks == 1:
            self.asked.set()
            assert self.answers.wait(60)
            return ROW
        return replace(ROW, released=True)

    def claim(self, *_: Any) -> None:
        raise AssertionError("it claims what is not for its producer")


class Clients:
    """Clients of a worker that has nobody to fence."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was made: somebody would be fenced")


def test_a_take_for_a_finished_producer_fences_nobody() -> None:
    """P6: its look was slow; meanwhile the partition was taken for the producer that is live."""
    store, options = Store(), Options(namespace="shop", group="g", name="w")

    def unanswered(*_: Any) -> Any:
        raise Contested

    unasked = cast(Any, type("Admin", (), {"client": property(unanswered)})())
    taker = Taker(options, cast(Any, Clients()), cast(Any, store), unasked, unanswered)
    workflow = Workflow("order", [order])
    old = taker.submit("shop.order.events", 0, workflow, "old")
    assert store.asked.wait(60)
    new = taker.submit("shop.order.events", 0, workflow, "new")
    with pytest.raises(Contested):
        new.result(60)
    store.answers.set()
    with pytest.raises(Contested):
        old.result(60)
    taker.close()
