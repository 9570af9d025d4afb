"""Events from one workflow to another: in the transaction of the step, each once (P3, P8, P9)."""

import pytest
from tests.kafka.worker.stage import Stage, header
from tests.unit.processors.parcels import Packed, Placed, order, parcel

from refold import ANY, Context, Event, StateGraph, forward
from refold.processors.definition import Workflow
from refold.schemas.codec import codec_of
from refold.schemas.envelope import Answer, Outcome, derived_id
from refold.schemas.errors import Code
from refold.topics.records import EventReader, event_headers
from refold.topics.specs import create, workflow_specs

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

ORDERS = Workflow("order", [order()])
PARCELS = Workflow("parcel", [parcel()])


def add(stage: Stage, workflow: str, *targets: str) -> None:
    create(stage.admin, workflow_specs(stage.namespace, workflow, targets, stage.partitions))


def between(stage: Stage, workflow: str) -> list[tuple[str, str, str]]:
    """(type, instance, outcome) of every event that another workflow sent to this one."""
    return sorted(
        (header(one, "ce_type"), bytes(one.key() or b"").decode(), header(one, "ce_outcome"))
        for one in stage.committed("events", workflow)
        if header(one, "ce_source").startswith("/refold/workflow/")
    )


def packed(stage: Stage) -> None:
    """What the executor of the world says about every parcel."""
    codec = codec_of(Packed)
    for number, command in enumerate(stage.committed("commands", "world")):
        key = header(command, "idempotency-key")
        headers = event_headers(
            derived_id("result", key, "succeeded"), "/refold/executor/world", codec.name, "acme",
            answer=Answer(key, 1, Outcome.SUCCEEDED),
        )  # fmt: skip
        stage.put_raw(command.key(), codec.encode(Packed(number)), headers, "parcel")


def test_children_are_started_and_answer_once_also_when_all_is_folded_again(two: Stage) -> None:
    add(two, "parcel", "world")
    names = (*two.names(0, 2), *two.names(1, 2))
    with two.working(ORDERS, PARCELS):
        two.put(("o", "placed", Placed(names)))
        two.until(lambda: len(two.states("parcel")) == len(names), "all packing")
    two.lose_everything()  # what was sent is folded again in silence, and proved by its digest
    packed(two)
    with two.working(ORDERS, PARCELS):
        two.until(lambda: two.states().get("o") == "done", "the order to be done")
    assert between(two, "parcel") == [("ParcelOrdered", name, "") for name in sorted(names)]
    assert between(two, "order") == [("Delivered", "o", "succeeded")] * len(names)
    for workflow in ("order", "parcel"):
        reader = EventReader(workflow, two.partitions)
        for message in two.committed("events", workflow):
            assert reader.read(message, message.partition() or 0) == reader.judge(message)


class Said(Event):
    text: str


class Heard(Context):
    texts: tuple[str, ...] = ()


def heard(ctx: Heard, event: Said) -> Heard:
    return Heard((*ctx.texts, event.text))


def talk(name: str, other: str) -> Workflow:
    graph = StateGraph(name, version=1, context=Heard, initial="new", tenant="acme")
    graph.on("new", Said, to="over")(heard)
    graph.final("over", late={ANY: forward(other)})
    return Workflow(name, [graph])


def test_a_late_event_reaches_the_other_workflow_once(two: Stage) -> None:
    add(two, "desk")
    bills, desks = talk("order", "desk"), talk("desk", "order")
    with two.working(bills, desks):
        two.put(("a", "1", Said("in time")), ("a", "2", Said("late")), ("a", "2", Said("late")))
        two.until(lambda: two.states("desk").get("a") == "over", "the desk to hear")
    assert between(two, "desk") == [("Said", "a", "")]
    (message,) = two.committed("events", "desk")
    assert header(message, "ce_source") == "/refold/workflow/order"
    assert message.value() == codec_of(Said).encode(Said("late"))
    assert two.counts() == {"applied": 1, "late": 1, "duplicate": 1}


def test_a_workflow_whose_events_have_no_topic_yet_waits_for_it(one: Stage) -> None:
    with one.working(ORDERS) as worker:
        one.until_codes(worker, {0: Code.TOPIC_MISSING})
        add(one, "parcel", "world")
        one.until_codes(worker, {0: ""})
