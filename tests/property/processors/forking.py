"""Random workflows that fork, join, undo, wait and start children, valid by construction.

Types and functions come from fixed pools, so that their code can be read and hashed; what is
random is which state begins what, how it comes together, and where each way leads.
"""

from datetime import timedelta
from typing import Any, Final

from hypothesis import strategies as st

from refold import (
    ALL,
    ANY,
    Command,
    Context,
    Event,
    Joined,
    Late,
    Limits,
    Retry,
    RunStatus,
    Start,
    StateGraph,
    failed,
    missed,
    reopen,
    replace,
    start,
    unknown,
)
from refold.processors.spec import Everything


class Go(Event):
    n: int


class Quit(Event):
    pass


class Did(Event):
    n: int


class Not(Event):
    pass


class Made(Event):
    n: int


class KidOrdered(Event):
    n: int


class KidQuit(Event):
    pass


class Light(Command):
    n: int


class Heavy(Command):
    n: int


class Sure(Command):
    n: int


class UndoHeavy(Command):
    n: int


class UndoSure(Command):
    n: int


class Tell(Command):
    n: int


class Ctx(Context):
    fan: int = 0
    turn: int = 0
    total: int = 0
    joins: tuple[str, ...] = ()
    """`<state>/<kind>/<joined or missed>/<asked>/<succeeded>/<failed>/<open>`, one a decision."""


class Kid(Context):
    n: int = 0


def go(ctx: Ctx, event: Go) -> Ctx:
    return replace(ctx, fan=event.n % 4, turn=ctx.turn + 1)


def add(ctx: Ctx, event: Any) -> Ctx:
    return replace(ctx, total=ctx.total + 1)


def even(ctx: Ctx, event: Any) -> bool:
    return ctx.total % 2 == 0


def undo_heavy(ctx: Ctx, command: Heavy) -> UndoHeavy:
    return UndoHeavy(command.n)


def undo_sure(ctx: Ctx, command: Sure) -> UndoSure:
    return UndoSure(ctx.total)  # what it holds depends on when it is asked for


def lights(ctx: Ctx, event: Any) -> list[Light]:
    return [Light(n) for n in range(ctx.fan)]


def heavies(ctx: Ctx, event: Any) -> tuple[Heavy, ...]:
    return tuple(Heavy(n) for n in range(ctx.fan))


def sures(ctx: Ctx, event: Any) -> list[Sure]:
    return [Sure(n) for n in range(ctx.fan)]


def kids(ctx: Ctx, event: Any) -> list[Start]:
    return [start("kid", f"k{ctx.turn % 2}-{n}", KidOrdered(n + ctx.turn)) for n in range(ctx.fan)]


def tell(ctx: Ctx, event: Any) -> Tell:
    return Tell(ctx.total)


def cancel(ctx: Ctx, ordered: KidOrdered) -> KidQuit:
    return KidQuit()


SENDS: Final[dict[Any, Any]] = {Light: lights, Heavy: heavies, Sure: sures, "kid": kids}
ANSWERS: Final = {Light: (Did, Not), Heavy: (Did, Not), Sure: (Did, Not), "kid": (Made,)}
FEW: Final = timedelta(seconds=5)
NEEDS: Final[st.SearchStrategy[int | Everything]] = st.sampled_from([ALL, ALL, 1, 2])
LATER: Final = timedelta(seconds=7)


@st.composite
def parents(draw: st.DrawFn) -> StateGraph[Ctx]:
    """A chain of 1 to 4 states by `Go`, each with what is drawn for it, then an end."""
    middle = [f"s{n}" for n in range(1, draw(st.integers(1, 4)) + 1)]
    cancels = draw(st.booleans())
    graph = StateGraph(
        "top", version=1, context=Ctx, initial="new", tenant="t",
        limits=Limits(
            transitions=draw(st.sampled_from([60, 60, 8])), visits=100,
            branches=draw(st.sampled_from([10_000, 10_000, 2])),
            actions=draw(st.sampled_from([1_000, 1_000, 4])),
            over=draw(st.sampled_from([None, "done"])),
        ),
    )  # fmt: skip
    graph.command(Light, target="world", each="n", answers=(Did, Not))
    graph.command(
        Heavy, target="world", each="n", answers=(Did, Not), compensate=undo_heavy,
        retry=Retry(attempts=2, first_s=1),
    )  # fmt: skip
    graph.command(Sure, target="world", each="n", answers=(Did, Not), compensate=undo_sure)
    graph.command(UndoHeavy, target="world", retry=Retry(attempts=2, first_s=1))
    graph.command(UndoSure, target="world")
    graph.child("kid", KidOrdered, answers=(Made,), cancel=cancel if cancels else None)
    graph.on("new", Go, to=middle[0])(go)
    for state, following in zip(middle, [*middle[1:], "done"], strict=True):
        if state != middle[0] and draw(st.integers(0, 4)) == 0:
            graph.defer(state, Go)
            graph.after(state, LATER, to=following)
        else:
            graph.on(state, Go, to=following)(go)
        graph.on(state, Quit, to="undoing")
        _begins(draw, graph, state, [*middle, following, "undoing", "done"], cancels=cancels)
    graph.undo("undoing", to=draw(st.sampled_from(["undone", "undone", middle[0]])))
    graph.on("undoing", Quit, to="undone")
    policy = st.sampled_from([Late.RECORD, Late.COMPENSATE, reopen(middle[0])])
    late: Any = {Did: draw(policy), Quit: draw(st.sampled_from([Late.REFUSE, reopen("undoing")]))}
    if draw(st.booleans()):
        graph.enter("done", draw(st.sampled_from([heavies, kids, tell])))
    graph.final("done", late={**late, ANY: Late.RECORD})
    graph.final("undone", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
    _reach(graph, middle[0])
    return graph


def _reach(graph: StateGraph[Ctx], first: str) -> None:
    """Every type is sent from somewhere, so that what is declared of it is about something."""
    graph.on("new", Quit, to="all")(add)
    graph.enter("all", lights)
    graph.enter("all", heavies)
    graph.enter("all", sures)
    graph.enter("all", kids)
    graph.on("all", Quit, to="undoing")
    graph.on("all", Go, to=first)(go)
    for kind in (Did, Not, Made):
        graph.on("all", kind)


def _begins(
    draw: st.DrawFn, graph: StateGraph[Ctx], state: str, ways: list[str], *, cancels: bool
) -> None:
    """What a state sends, joins and takes."""
    kinds = draw(st.lists(st.sampled_from([*SENDS]), min_size=0, max_size=2, unique=True))
    taken, joins = set[Any](), 0
    for kind in kinds:
        graph.enter(state, SENDS[kind])
        if draw(st.sampled_from([True, True, False])):
            _join(draw, graph, state, kind, ways, cancels=cancels)
            joins += 1
        else:
            taken.update(ANSWERS[kind])
    if draw(st.booleans()):
        graph.enter(state, tell)
    for kind in (Did, Not, Made):
        if kind in taken and not joins and draw(st.integers(0, 3)) == 0:
            graph.defer(state, kind)
        elif kind in taken or draw(st.booleans()):
            to = draw(st.sampled_from([None, None, *ways]))
            if to is not None and draw(st.booleans()):
                graph.on(state, kind, to=to, guard=even)(add)
                to = None
            graph.on(state, kind, to=to)(add)
    for trigger in (failed(Heavy), failed(Sure), unknown(Heavy), failed("kid")):
        if draw(st.integers(0, 3)) == 0:
            graph.on(state, trigger, to=draw(st.sampled_from([None, *ways])))
    if draw(st.booleans()):
        graph.after(state, FEW, to=draw(st.sampled_from(ways)))
    if draw(st.integers(0, 5)) == 0:
        graph.pivot(state)


def _join(
    draw: st.DrawFn, graph: StateGraph[Ctx], state: str, kind: Any, ways: list[str], *,
    cancels: bool,
) -> None:  # fmt: skip
    undoable = kind in (Heavy, Sure) or (kind == "kid" and cancels)
    join = graph.join(
        state, kind, to=draw(st.sampled_from(ways)),
        need=draw(NEEDS), cancel_rest=undoable and draw(st.booleans()),
    )  # fmt: skip
    name = kind if isinstance(kind, str) else kind.__name__
    join(came_together(state, f"{name}/joined"))
    if draw(st.sampled_from([True, True, False])):
        lost = graph.on(state, missed(kind), to=draw(st.sampled_from([None, *ways])))
        lost(came_together(state, f"{name}/missed"))


def came_together(state: str, how: str) -> Any:
    """A reducer that writes down what a join was told."""

    def told(ctx: Ctx, event: Joined) -> Ctx:
        counts = f"{event.asked}/{event.succeeded}/{event.failed}/{event.open}"
        return replace(ctx, total=ctx.total + 1, joins=(*ctx.joins, f"{state}/{how}/{counts}"))

    return told


def ordered(kid: Kid, event: KidOrdered) -> Kid:
    return Kid(event.n)


def third(kid: Kid, event: KidOrdered) -> bool:
    return event.n % 3 != 2


def make(kid: Kid, event: Any) -> Sure:
    return Sure(kid.n)


def unmake(kid: Kid, command: Sure) -> UndoSure:
    return UndoSure(kid.n)


def made(kid: Kid) -> Made:
    return Made(kid.n)


@st.composite
def children(draw: st.DrawFn) -> StateGraph[Kid]:
    """One action that is done or not, undone where its parent asks and the draw lets it."""
    graph = StateGraph("kid", version=1, context=Kid, initial="new", tenant="t")
    graph.command(Sure, target="world", answers=(Did, Not), compensate=unmake)
    graph.command(UndoSure, target="world")
    graph.on("new", KidOrdered, to="making", guard=draw(st.sampled_from([None, third])))(ordered)
    graph.enter("making", make)
    graph.on("making", Did, to="made")
    graph.on("making", Not, to="lost")
    if draw(st.booleans()):
        graph.on("making", failed(Sure), to="lost")
    if draw(st.booleans()):
        graph.after("making", FEW, to="lost")
    if draw(st.sampled_from([True, True, False])):
        graph.on("making", KidQuit, to="unmaking")
    graph.on("making", Quit, to="unmaking")
    graph.undo("unmaking", to="unmade")
    quits = st.sampled_from([Late.RECORD, Late.REFUSE, reopen("unmaking")])
    named: Any = {KidQuit: draw(quits), Did: draw(st.sampled_from([Late.RECORD, Late.COMPENSATE]))}
    answer = draw(st.sampled_from([None, made]))
    graph.final("made", late={**named, ANY: Late.RECORD}, answer=answer)
    graph.final("lost", late={**named, ANY: Late.RECORD}, status=RunStatus.FAILED)
    graph.final("unmade", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
    return graph
