"""A workflow that only waits: it begins, and closes at a time that its event says."""

from datetime import UTC, datetime

from refold.processors.graph import ANY, Late, StateGraph
from refold.schemas.types import Command, Context, Event


class Asked(Event):
    close: int
    """Milliseconds since the epoch."""


class Close(Command):
    due: int


class Wait(Context):
    close: int = 0


def closing(wait: Wait) -> datetime:
    return datetime.fromtimestamp(wait.close / 1000, UTC)


waits = StateGraph("waits", version=1, context=Wait, initial="new")


@waits.on("new", Asked, to="open")
def asked(_: Wait, event: Asked) -> Wait:
    return Wait(event.close)


waits.after("open", closing, to="closed", name="close")
waits.enter("closed", send=lambda wait, _: Close(wait.close))
waits.final("closed", late={ANY: Late.RECORD})
