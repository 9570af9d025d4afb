"""A small graph that shows every verdict, for the tests beside it."""

from refold import ANY, Command, Context, Event, Late, Limits, StateGraph, replace
from refold.processors.effects import Step
from refold.schemas.errors import Code
from refold.testing.driver import Driver


class Opened(Event):
    amount: float


class Raised(Event):
    by: float


class Noted(Event):
    text: str


class Closed(Event):
    pass


class Cancelled(Event):
    pass


class Tell(Command):
    text: str


class Page(Command):
    item: str
    text: str


class Case(Context):
    amount: float = 0.0
    notes: tuple[str, ...] = ()


def graph(
    *, version: int = 1, limits: Limits | None = None, dedup: int = 1024, name: str = "case"
) -> StateGraph[Case]:
    case = StateGraph(
        name, version=version, context=Case, initial="new", limits=limits, dedup=dedup
    )

    @case.on("new", Opened, to="open")
    def opened(ctx: Case, event: Opened) -> Case:
        if event.amount == 13:
            raise ValueError("thirteen at <object at 0x7f00dead> in /usr/lib/some/where.py")
        return replace(ctx, amount=event.amount)

    @case.on("open", Raised, guard=lambda ctx, event: event.by < ctx.amount)
    def raised(ctx: Case, event: Raised) -> Case:
        return replace(ctx, amount=ctx.amount / event.by)

    @case.on("open", Noted, to="open")
    def noted(ctx: Case, event: Noted) -> Case:
        return replace(ctx, notes=(*ctx.notes, event.text))

    case.on("open", Closed, to="closed")
    case.enter("open", send=_tell)
    case.command(Page, target="pager", action="page", each="item")
    case.already("open", Opened)
    case.final("closed", late={Cancelled: Late.REFUSE, Closed: Late.ALREADY, ANY: Late.RECORD})
    case.invariant("amounts are not negative", lambda _, ctx: ctx.amount >= 0)
    return case


def _tell(ctx: Case, event: object) -> list[Tell | Page] | Tell | None:  # noqa: PLR0911  # a table
    match event:
        case Noted(text="twice"):
            return [Tell("a"), Tell("b")]
        case Noted(text="pages"):
            return [Page("x", "a"), Page("y", "b")]
        case Noted(text="same pages"):
            return [Page("x", "a"), Page("x", "b")]
        case Noted(text="nothing"):
            return None
        case Noted(text="number"):
            return Tell(1)  # type: ignore[arg-type]
        case Noted(text="surrogate"):
            return [Page("\udc00", "a")]
        case Noted(text="string"):
            return "tell"  # type: ignore[return-value]
        case Noted(text="raise"):
            raise RuntimeError("no")
    return Tell("now")


def opened(amount: float = 10.0, **more: object) -> Driver:
    driver = Driver(graph(**more))  # type: ignore[arg-type]
    driver.send("c", Opened(amount))
    return driver


def code(step: Step) -> Code | None:
    return None if step.reason is None else step.reason.code
