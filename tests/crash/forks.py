"""A picking that forks into commands, then into children, and joins both: its worker dies.

Every third one has a child that fails, so that failure comes up and cancel goes down.
"""

from tests.unit.processors.parcels import (
    Delivered,
    ParcelCancelled,
    ParcelOrdered,
    Placed,
    parcel,
)

from refold import (
    ALL,
    ANY,
    Command,
    Context,
    Event,
    Joined,
    Late,
    RunStatus,
    Start,
    StateGraph,
    reopen,
    replace,
    start,
)
from refold.processors.definition import Workflow

BRANCHES = 4


class Looked(Event):
    n: int


class Look(Command):
    n: int


class Tell(Command):
    text: str


class Picking(Context):
    parcels: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    """What each join was told."""
    weight: int = 0


def looks(_: Picking, __: Event) -> list[Look]:
    return [Look(n) for n in range(BRANCHES)]


def parcels(ctx: Picking, _: Event) -> list[Start]:
    return [start("parcel", one, ParcelOrdered(f"article {one}")) for one in ctx.parcels]


def cancel(_: Picking, __: ParcelOrdered) -> ParcelCancelled:
    return ParcelCancelled()


def told(ctx: Picking, event: Joined) -> Picking:
    line = f"{event.asked} {event.succeeded} {event.failed} {event.open}"
    return replace(ctx, joins=(*ctx.joins, line))


def tell(ctx: Picking, _: Event) -> Tell:
    return Tell("; ".join(ctx.joins))


def picking() -> StateGraph[Picking]:
    """Looks everywhere, then sends all parcels or none."""
    graph = StateGraph("order", version=1, context=Picking, initial="new", tenant="acme")
    graph.command(Look, target="world", each="n", answers=(Looked,))
    graph.command(Tell, target="ends")
    graph.child("parcel", ParcelOrdered, answers=(Delivered,), cancel=cancel)

    @graph.on("new", Placed, to="looking")
    def placed(_: Picking, event: Placed) -> Picking:
        return Picking(event.parcels)

    graph.enter("looking", looks)
    graph.join("looking", Look, to="sending", need=ALL)(told)

    @graph.on("sending", Delivered)
    def delivered(ctx: Picking, event: Delivered) -> Picking:
        return replace(ctx, weight=ctx.weight + event.weight)

    graph.enter("sending", parcels)
    graph.join("sending", "parcel", to="done", otherwise="undoing", cancel_rest=True)(told)
    graph.undo("undoing", to="undone")
    graph.enter(("done", "undone"), tell)
    graph.final("done", late={ANY: Late.RECORD})
    graph.final("undone", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
    return graph


BOTH = (Workflow("order", [picking()]), Workflow("parcel", [parcel(reopen("unpacking"))]))
