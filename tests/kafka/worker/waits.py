"""A workflow that waits: a reminder and a deadline at times that its event says."""

from collections import defaultdict
from datetime import UTC, datetime

from confluent_kafka import Message
from tests.kafka.worker.stage import Stage, header

from refold import ANY, Command, Context, Event, Late, Retry, StateGraph, failed, replace
from refold.processors.definition import Workflow
from refold.processors.engine_events import TIMER, Rung
from refold.topics.specs import create, workflow_specs


class Asked(Event):
    remind: int
    """Milliseconds since the epoch; likewise the next."""
    close: int


class Answered(Event):
    pass


class Close(Command):
    text: str


class Wait(Context):
    remind: int = 0
    close: int = 0
    reminders: int = 0


def reminding(ctx: Wait) -> datetime:
    return datetime.fromtimestamp(ctx.remind / 1000, UTC)


def closing(ctx: Wait) -> datetime:
    return datetime.fromtimestamp(ctx.close / 1000, UTC)


def close(ctx: Wait, _: Event) -> Close:
    return Close(text=f"after {ctx.reminders} reminders")


def thank(_: Wait, __: Event) -> Close:
    return Close(text="thanks")


def graph() -> StateGraph[Wait]:
    made = StateGraph("wait", version=1, context=Wait, initial="new", tenant="acme")

    @made.on("new", Asked, to="open")
    @made.on("open", Asked, to="open")
    def asked(ctx: Wait, event: Asked) -> Wait:
        return replace(ctx, remind=event.remind, close=event.close)

    @made.after("open", reminding, name="remind")
    def reminded(ctx: Wait, _: Event) -> Wait:
        return replace(ctx, reminders=ctx.reminders + 1)

    made.after("open", closing, to="closed", name="close")
    made.on("open", Answered, to="answered")

    made.enter("closed", send=close)
    made.enter("answered", send=thank)
    made.final("closed", late={ANY: Late.RECORD})
    made.final("answered", late={ANY: Late.RECORD})
    return made


wait = graph()
WAIT = Workflow("wait", [wait])


def add_wait(stage: Stage, workflow: str = "wait") -> None:
    """Create the topics of the workflow."""
    create(stage.admin, workflow_specs(stage.namespace, workflow, [workflow], stage.partitions))


def rung(stage: Stage) -> list[tuple[Message, Rung]]:
    """Every committed timer event, partition by partition in log order."""
    return [
        (each, TIMER.decode(bytes(each.value() or b"")))
        for each in stage.committed("events", "wait")
        if header(each, "ce_type") == TIMER.name
    ]


def by_instance(stage: Stage) -> dict[str, list[str]]:
    """Instance → names of its timer events in log order."""
    found: dict[str, list[str]] = defaultdict(list)
    for message, event in rung(stage):
        found[bytes(message.key() or b"").decode()].append(event.name)
    return found


def closed(stage: Stage) -> int:
    """Instances whose row says that they are closed."""
    (found,) = stage.sql("SELECT count(*) FROM refold.workflow_instance WHERE state = 'closed'")
    return int(found[0])


class Charge(Command):
    amount: int


class Charged(Event):
    receipt: str


def charge(_: Wait, __: Event) -> Charge:
    return Charge(amount=7)


def paying() -> StateGraph[Wait]:
    """Asks for an action that is tried again after failures that did nothing."""
    made = StateGraph("pay", version=1, context=Wait, initial="new", tenant="acme")
    made.on("new", Asked, to="charging")
    made.enter("charging", send=charge)
    made.command(Charge, target="pay", answers=(Charged,), retry=Retry(attempts=3, first_s=0.05))
    made.on("charging", Charged, to="charged")
    made.on("charging", failed(Charge), to="given_up")
    made.final("charged", late={ANY: Late.RECORD})
    made.final("given_up", late={ANY: Late.RECORD})
    return made


PAY = Workflow("pay", [paying()])
