"""Children and undoing when their worker dies, or is paused and wakes up beside its successor.

Both believe for a moment to own the partitions of parents and children; whoever commits, a child is
started once, asked to undo once, and answers once, and each command goes out under one key once.
"""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka.worker.stage import Stage, header, stage
from tests.kafka.worker.test_between_workflows import add, between
from tests.unit.processors.parcels import Cancelled, Packed, Placed, order, parcel

from refold import reopen
from refold.processors.definition import Workflow
from refold.processors.engine_events import SUCCEEDED, Succeeded
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import Answer, Outcome, derived_id
from refold.testing.boundary import Plan
from refold.testing.servers import Kafka
from refold.topics.records import event_headers

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

BOTH = (Workflow("order", [order()]), Workflow("parcel", [parcel(reopen("unpacking"))]))
SPEC = "tests.crash.test_children:BOTH"
ORDERS = 6
PARCELS = 2
"""Of each order."""
PLANS = (
    Plan("producer.produce", 25, "before", "kill"),
    Plan("producer.produce", 25, "after", "pause"),
    Plan("producer.commit_transaction", 4, "before", "pause"),
    Plan("producer.commit_transaction", 4, "after", "pause"),
)
"""Ends in the middle of it; the matrix has the others (`test_matrix.py`)."""


def name_of(plan: Plan) -> str:
    return f"{plan.how}-{plan.side}-{plan.call}-{plan.nth}"


@pytest.fixture
def two(kafka: Kafka, database: str) -> Iterator[Stage]:
    with stage(kafka.bootstrap, database, 2) as made:
        add(made, "parcel", "world")
        yield made


@pytest.mark.parametrize("plan", PLANS, ids=name_of)
def test_whoever_owns_them_children_are_started_undone_and_answered_once(
    plan: Plan, two: Stage
) -> None:
    orders = [f"o-{number}" for number in range(ORDERS)]
    for each in orders:
        names = tuple(f"{each}-p{number}" for number in range(PARCELS))
        two.put((each, f"placed-{each}", Placed(names)))
    for each in orders[::2]:
        two.put((each, f"cancelled-{each}", Cancelled()))
    first = two.process(SPEC, plan, batch_records=4)
    two.until(lambda: answered(two) and ended(first, plan), f"the planned end {plan}")
    second = two.process(SPEC)
    ends = dict.fromkeys(orders, "done") | dict.fromkeys(orders[::2], "undone")
    two.until(lambda: answered(two) and two.states() == ends, "the end of all orders")
    if plan.how == "pause":
        first.send_signal(signal.SIGCONT)
        two.stop(first)
    two.stop(second)
    check(two, orders)


def answered(run: Stage) -> bool:
    """Say of every command so far that it was done, as often as asked: it counts once."""
    for command in run.committed("commands", "world"):
        key, name = header(command, "idempotency-key"), header(command, "ce_type")
        codec: Codec[object] = codec_of(Packed) if name == "Pack" else SUCCEEDED
        fact: object = Packed(1) if name == "Pack" else Succeeded("done")
        headers = event_headers(
            derived_id("result", key, "succeeded"), "/refold/executor/world", codec.name, "acme",
            answer=Answer(key, 1, Outcome.SUCCEEDED),
        )  # fmt: skip
        run.put_raw(command.key(), codec.encode(fact), headers, "parcel")
    return True


def ended(child: subprocess.Popen[bytes], plan: Plan) -> bool:
    if plan.how == "kill":
        return child.poll() is not None
    if not os.path.exists(f"/proc/{child.pid}/stat"):
        return False
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def check(run: Stage, orders: list[str]) -> None:
    """Each event between the two stands once, and each command has a key of its own."""
    cancelled = {*orders[::2]}
    down = Counter((kind, name) for kind, name, _ in between(run, "parcel"))
    names = [f"{each}-p{number}" for each in orders for number in range(PARCELS)]
    assert down == Counter(
        [("ParcelOrdered", name) for name in names]
        + [("ParcelCancelled", name) for name in names if name[:-3] in cancelled]
    )
    ids = Counter(
        header(each, "ce_id")
        for workflow in ("order", "parcel")
        for each in run.committed("events", workflow)
        if header(each, "ce_source").startswith("/refold/workflow/")
    )
    assert max(ids.values()) == 1
    keys = Counter(header(each, "idempotency-key") for each in run.committed("commands", "world"))
    assert max(keys.values()) == 1
