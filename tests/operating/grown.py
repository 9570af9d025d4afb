"""A graph whose second version has other shapes: a field added, one renamed, one split."""

from typing import Annotated, Any, ClassVar, Final

from refold import ANY, Command, Context, Event, Late, StateGraph, replace
from refold.processors.definition import Buildable
from refold.schemas.shapes import WasNamed


class OldPlaced(Event):
    __avro_name__: ClassVar[str] = "OrderPlaced"

    buyer: str
    total: int


class Placed(Event):
    __avro_name__: ClassVar[str] = "OrderPlaced"

    first: str
    last: str
    amount: int


class OldNoted(Event):
    __avro_name__: ClassVar[str] = "OrderNoted"

    text: str


class Noted(Event):
    __avro_name__: ClassVar[str] = "OrderNoted"

    words: Annotated[str, WasNamed("text")]
    by: str = "nobody"


class Closed(Event):
    pass


class Thank(Command):
    name: str


class OldOrder(Context):
    buyer: str = ""
    total: int = 0
    notes: tuple[str, ...] = ()


class Order(Context):
    first: str = ""
    last: str = ""
    amount: int = 0
    notes: tuple[str, ...] = ()


old = StateGraph("order", version=1, context=OldOrder, initial="new")


@old.on("new", OldPlaced, to="open")
def old_placed(_: OldOrder, event: OldPlaced) -> OldOrder:
    return OldOrder(buyer=event.buyer, total=event.total)


@old.on("open", OldNoted)
def old_noted(ctx: OldOrder, event: OldNoted) -> OldOrder:
    return replace(ctx, notes=(*ctx.notes, event.text))


old.on("open", Closed, to="closed")
old.enter("closed", send=lambda ctx, _: Thank(name=ctx.buyer))
old.final("closed", late={ANY: Late.RECORD})

new = StateGraph("order", version=2, context=Order, initial="new")


@new.upcast(Placed, sequence=1)
def split(fields: dict[str, Any]) -> dict[str, Any]:
    first, _, last = fields["buyer"].partition(" ")
    return {"first": first, "last": last, "amount": fields["total"]}


@new.upcast_context(from_version=1)
def carried(fields: dict[str, Any]) -> dict[str, Any]:
    first, _, last = fields["buyer"].partition(" ")
    return {"first": first, "last": last, "amount": fields["total"], "notes": fields["notes"]}


@new.on("new", Placed, to="open")
def placed(_: Order, event: Placed) -> Order:
    return Order(first=event.first, last=event.last, amount=event.amount)


@new.on("open", Noted)
def noted(ctx: Order, event: Noted) -> Order:
    return replace(ctx, notes=(*ctx.notes, f"{event.by}: {event.words}"))


new.on("open", Closed, to="closed")
new.enter("closed", send=lambda ctx, _: Thank(name=f"{ctx.last}, {ctx.first}"))
new.final("closed", late={ANY: Late.RECORD})

both: Final[list[Buildable]] = [old, new]
