"""Small graphs for tests of the worker: one whose commands and troubles the events choose."""

import os
from typing import ClassVar

from refold import ANY, Command, Context, Event, Late, StateGraph
from refold.processors.definition import Workflow


class Counted(Event):
    number: int


class CountedAndNoted(Event):
    """What a newer sender writes."""

    __avro_name__: ClassVar[str] = "Counted"

    number: int
    note: str = ""


class Closed(Event):
    pass


class Answer(Command):
    text: str


class Count(Context):
    total: int = 0


def counted(ctx: Count, event: Counted) -> Count:
    if event.number == 13:
        raise ValueError("thirteen")
    if event.number == 9:  # hidden from the check: the process ends here
        getattr(os, "kill")(getattr(os, "getpid")(), 9)  # noqa: B009
    while event.number == 666:  # a reducer that never returns
        pass
    return Count(total=ctx.total + event.number)


def counted_well(ctx: Count, event: Counted) -> Count:
    return Count(total=ctx.total + event.number)


def answer(ctx: Count, event: Counted) -> Answer:
    """A command as long as the event's number says, if that is a large one."""
    return Answer(text="x" * event.number if event.number > 1000 else str(ctx.total))


def answer_otherwise(ctx: Count, _: Event) -> Answer:
    return Answer(text=f"it is {ctx.total}")


def _graph(
    version: int,
    *,
    well: bool = False,
    otherwise: bool = False,
    swapped: bool = False,
    tenant: str = "",
) -> StateGraph[Count]:
    graph = StateGraph("count", version=version, context=Count, initial="new", tenant=tenant)
    reducer = counted_well if well else counted
    graph.on("new", Counted, to="open")(reducer)
    graph.on("open", Counted, to="closed" if swapped else "open")(reducer)
    graph.on("open", Closed, to="open" if swapped else "closed")
    graph.enter("open", send=answer_otherwise if otherwise else answer)
    graph.final("closed", late={ANY: Late.RECORD})
    return graph


count = Workflow("count", [_graph(1)])
fixed = Workflow("count", [_graph(1, well=True)])
"""The same version with other code: what the fingerprint is there to notice."""
reworded = Workflow("count", [_graph(1, otherwise=True)])
both = Workflow("count", [_graph(1), _graph(2, well=True)])
swapped = Workflow("count", [_graph(1, otherwise=True, swapped=True)])
newer = Workflow("count", [_graph(2, well=True)])
housed = Workflow("count", [_graph(1, tenant="house")])
