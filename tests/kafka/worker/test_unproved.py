"""What a silent replay makes is not saved before it is proved (P19)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.kafka.worker.graphs import Counted, count, fixed
from tests.kafka.worker.ports import changed
from tests.kafka.worker.stage import Stage

from refold.processors.definition import Workflow
from refold.processors.worker import Worker

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]
TAIL = 40
HASTE: dict[str, Any] = {
    "freshness_s": 0.001,
    "takeover_budget_s": 1e-9,
    "snapshot_max_age_s": 60.0,
}
"""A cut and a flush are due after each batch."""


def deployed(stage: Stage, workflow: Workflow) -> Workflow:
    """As `refold definitions accept` leaves it."""
    stage.sql("UPDATE refold.workflow_definition SET fingerprint = %s", workflow.latest.fingerprint)
    return workflow


def test_p19_a_release_that_diverges_and_is_stopped_leaves_the_way_back_open(one: Stage) -> None:
    """P19: it decided otherwise in the middle of the tail; the release that ran takes over."""
    one.add_count()
    one.put(("c", "0", Counted(number=1)), workflow="count")
    one.fold(fixed)
    one.keep()
    one.put(*(("c", f"{n}", Counted(number=13)) for n in range(1, TAIL)), workflow="count")
    one.fold(fixed)
    ran, sent = one.saved(), one.sent("count")
    one.put_back()
    workers: list[Worker] = []

    def halfway(consume: Callable[..., Any]) -> Callable[..., Any]:
        def consumed(*args: Any) -> Any:
            found = consume(*args)
            if any(message.offset() >= TAIL // 2 for message in found):
                workers[0].stop()
            return found

        return consumed

    wrap = changed(consumer={"consume": halfway})
    with one.working(deployed(one, count), wrap=wrap, batch_records=4, **HASTE) as worker:
        workers.append(worker)
        one.until(worker._stop.is_set, "the middle of the tail")
    assert one.marks("count") == {"p0": 1}
    with one.working(deployed(one, fixed)) as worker:
        one.until_codes(worker, {0: ""}, "count")
        one.until_saved("count")
    again = one.saved()
    assert again["partitions"] == ran["partitions"]
    assert again["instances"] == ran["instances"]
    assert again["index"] == ran["index"]
    assert one.sent("count") == sent
