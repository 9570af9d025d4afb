"""The graph of an order, as the README shows it."""

from refold import ANY, Command, Context, Event, Late, RunStatus, StateGraph, replace


class OrderPlaced(Event):
    items: tuple[str, ...]
    total: int


class Reserved(Event):
    pass


class Charged(Event):
    receipt: str


class ChargeDeclined(Event):
    reason: str


class Reserve(Command):
    items: tuple[str, ...]


class Charge(Command):
    amount: int


class Order(Context):
    items: tuple[str, ...] = ()
    total: int = 0
    receipt: str | None = None


order = StateGraph("order", version=1, context=Order, initial="new")


@order.on("new", OrderPlaced, to="reserving")
def placed(_: Order, event: OrderPlaced) -> Order:
    return Order(items=event.items, total=event.total)


@order.on("charging", Charged, to="done")
def charged(ctx: Order, event: Charged) -> Order:
    return replace(ctx, receipt=event.receipt)


order.enter("reserving", send=lambda ctx, _: Reserve(items=ctx.items))
order.on("reserving", Reserved, to="charging")
order.enter("charging", send=lambda ctx, _: Charge(amount=ctx.total))
order.on("charging", ChargeDeclined, to="failed")

order.waits("reserving", RunStatus.WAITING_CALLBACK)
order.waits("charging", RunStatus.WAITING_CALLBACK)
order.already(("charging",), Reserved)
order.final("done", late={Charged: Late.ALREADY, ANY: Late.RECORD})
order.final("failed", late={ANY: Late.REFUSE}, status=RunStatus.FAILED)
order.invariant("done means charged", lambda state, ctx: state != "done" or ctx.receipt is not None)
