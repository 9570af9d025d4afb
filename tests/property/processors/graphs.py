"""Random workflows and random logs for them, valid by construction.

Functions and types are drawn from fixed pools, so that their code can be read and hashed; what
is random is which state does what with which event, and what comes when.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from refold import ANY, Command, Context, Event, Late, Limits, StateGraph, StepInfo, replace
from refold.processors.engine_events import REDRIVE, TERMINATE, Redrive, Terminate
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord, body_digest, event_identity


class E0(Event):
    n: int


class E1(Event):
    n: int


class E2(Event):
    n: int


class E3(Event):
    n: int


class Ctx(Context):
    total: int = 0
    ratio: float = 1.0
    seen: tuple[str, ...] = ()
    counts: dict[str, int] = {}  # noqa: RUF012  # copied for each object


class Tell(Command):
    total: int
    text: str


class Each(Command):
    item: str


EVENTS: Final[tuple[type, ...]] = (E0, E1, E2, E3)


def add(ctx: Ctx, event: Any) -> Ctx:
    return replace(ctx, total=ctx.total + event.n, counts={f"k{event.n % 5}": 1, **ctx.counts})


def remember(ctx: Ctx, event: Any, step: StepInfo) -> Ctx:
    drawn = f"{step.new_id()}/{step.random()}/{step.time_ms}"
    return replace(ctx, seen=(*ctx.seen[-3:], drawn))


def count(ctx: Ctx, event: Any) -> Ctx:
    ctx.counts[f"k{event.n % 5}"] = event.n  # changes its copy in place
    return ctx


def keep(ctx: Ctx, event: Any) -> Ctx:
    return replace(ctx)


def divide(ctx: Ctx, event: Any) -> Ctx:
    """Raises for 0, is not storable for -1."""
    return replace(ctx, ratio=ctx.total / event.n if event.n != -1 else float("nan"))


def even(ctx: Ctx, event: Any) -> bool:
    return bool(event.n % 2 == 0)


def small(ctx: Ctx, event: Any, step: StepInfo) -> bool:
    return ctx.total < 5 or step.random() < 0.5


def tell(ctx: Ctx, event: Any) -> Tell:
    return Tell(ctx.total, ",".join(ctx.counts))


def each(ctx: Ctx, event: Any) -> list[Each]:
    return [Each(f"i{n}") for n in range(event.n % 3)]


def twice(ctx: Ctx, event: Any) -> tuple[Tell, Tell] | None:
    """Parks every seventh time: one action twice from one step."""
    return (Tell(1, "a"), Tell(2, "b")) if event.n % 7 == 3 else None


def small_enough(state: str, ctx: Ctx) -> bool:
    return ctx.total < 40


REDUCERS: Final = (None, add, remember, count, keep, divide)
GUARDS: Final = (None, even, small)
SENDS: Final = (tell, each, twice)


@st.composite
def graphs(draw: st.DrawFn, version: int = 1) -> StateGraph[Ctx]:
    """A graph of 2 to 5 states in a chain of E0 with whatever else is drawn; the last is final."""
    size = draw(st.sampled_from([4, 3, 5, 2]))
    states = [f"s{n}" for n in range(size)]
    limits = Limits(
        transitions=draw(st.sampled_from([None, 6, 50])),
        visits=draw(st.sampled_from([None, 2, 5])),
        unchanged=draw(st.sampled_from([None, 2])),
        over=draw(st.sampled_from([None, states[-1]])),
        deferred=draw(st.sampled_from([1, 3, 100])),
        parked=draw(st.sampled_from([2, 100])),
    )
    graph = StateGraph(
        "random", version=version, context=Ctx, initial="s0",
        dedup=draw(st.sampled_from([3, 64])), limits=limits,
    )  # fmt: skip
    handled: set[type] = {E0}
    cells = draw(
        st.lists(
            st.sampled_from(["move", "defer", "stay", "move", "already", "none"]),
            min_size=3 * (size - 1), max_size=3 * (size - 1),
        )
    )  # fmt: skip
    waiting: list[tuple[str, type]] = []
    sends: list[tuple[str, Callable[..., object]]] = []
    for number, state in enumerate(states[:-1]):
        to = states[number + 1]
        guard = draw(st.sampled_from(GUARDS))
        if guard is not None:
            _reduced(graph.on(state, E0, to=draw(st.sampled_from(states)), guard=guard), draw)
        _reduced(graph.on(state, E0, to=to), draw)
        for event, cell in zip(EVENTS[1:], cells[number * 3 : number * 3 + 3], strict=True):
            if cell in ("move", "stay"):
                target = draw(st.sampled_from(states)) if cell == "move" else None
                guard = draw(st.sampled_from(GUARDS))
                _reduced(graph.on(state, event, to=target, guard=guard), draw)
                handled.add(event)
            elif cell == "already":
                graph.already(state, event)
                handled.add(event)
            elif cell == "defer":
                waiting.append((state, event))
        send = draw(st.sampled_from([None, *SENDS]))
        if send is not None:
            sends.append((state, send))
    entered = {rule.to for rule in graph.spec.rules}
    for state, send in sends:
        if state in entered:  # the first one may be nobody's aim
            graph.enter(state, send=send)
    for state, event in waiting:
        if event in handled:
            graph.defer(state, event)
    graph.command(Each, each="item")
    graph.enter(states[-1], send=tell)
    late = draw(st.sampled_from([Late.RECORD, Late.REFUSE, Late.ALREADY]))
    graph.final(states[-1], late={E1: Late.ALREADY, ANY: late})
    graph.invariant("small enough", small_enough)
    return graph


def _reduced(transitions: Any, draw: st.DrawFn) -> None:
    reducer = draw(st.sampled_from(REDUCERS))
    if reducer is not None:
        transitions(reducer)


@dataclass(frozen=True)
class Given:
    """One record to come: which instance, what, under which identity, at what time."""

    instance: int
    kind: int
    """0 to 3: an event type; 4 unreadable bytes, 5 an unknown type, 6 redrive, 7 terminate."""
    n: int
    again: int
    """0: a new identity; else that of the record so many before."""
    passed_ms: int
    expected: int
    """0: nothing; 1: a state; 2: a version."""


GIVEN: Final = st.builds(
    Given,
    instance=st.sampled_from([0, 0, 0, 0, 1, 2]),
    kind=st.sampled_from([0, 1, 2, 3] * 6 + [6, 6, 6, 4, 5, 7]),
    n=st.sampled_from([1, 2, 4, 6, 8, 5, 0, 3, -1, 10]),
    again=st.sampled_from([0] * 9 + [1, 2, 5]),
    passed_ms=st.integers(-500, 1000),
    expected=st.sampled_from([0] * 12 + [1, 2]),
)
LOGS: Final = st.lists(GIVEN, min_size=10, max_size=40)
SPREAD: Final = 10
"""Offsets between two records, so that others can be put between them."""


def records(given: list[Given]) -> list[EventRecord]:
    """The log as Kafka would hold it."""
    log: list[EventRecord] = []
    now = 1_000_000
    for number, one in enumerate(given):
        now += one.passed_ms
        offset = number * SPREAD
        source, name = ("/a", f"e{number}")
        if one.again and one.again <= number:
            source, name = log[number - one.again].source, log[number - one.again].id
        kind, value = _encoded(one)
        log.append(
            EventRecord(
                "t", f"i{one.instance}", source, name, kind, value, offset, now,
                event_identity(source, name), body_digest(kind, value), None,
                f"s{one.n % 3}" if one.expected == 1 else None,
                max(one.n, 0) if one.expected == 2 else None,
            )
        )  # fmt: skip
    return log


def _encoded(one: Given) -> tuple[str, bytes]:
    if one.kind < 4:
        kind = EVENTS[one.kind]
        return kind.__name__, codec_of(kind).encode(kind(one.n))
    if one.kind == 4:
        return "E1", b"\xc3\x01" + bytes([one.n % 2]) * one.n if one.n > 0 else b""
    if one.kind == 5:
        return "Unheard", b"?"
    if one.kind == 6:
        order = Redrive((), 2 if one.n % 3 == 0 else 0, "ann", "why")
        return REDRIVE.name, REDRIVE.encode(order)
    return TERMINATE.name, TERMINATE.encode(Terminate("enough", "ann"))
