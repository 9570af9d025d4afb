"""Workload W1 as the README writes a workflow: msgspec structs, plain functions."""

from msgspec.structs import replace

from refold.processors.graph import ANY, Late, StateGraph
from refold.schemas.types import Command, Context, Event


class OrderPlaced(Event):
    customer: str
    item: str
    quantity: int
    total: int


class OrderPaid(Event):
    receipt: str
    method: str
    amount: int
    paid_at: int


class OrderShipped(Event):
    parcel: str


class ReserveItem(Command):
    customer: str
    item: str
    quantity: int


class ShipOrder(Command):
    customer: str
    item: str
    receipt: str


class Order(Context):
    customer: str
    item: str
    quantity: int
    total: int
    receipt: str = ""


w1 = StateGraph("w1", version=1, context=Order, initial="new")


@w1.on("new", OrderPlaced, to="reserving")
def placed(_: Order, event: OrderPlaced) -> Order:
    return Order(event.customer, event.item, event.quantity, event.total)


@w1.on("reserving", OrderPaid, to="shipping")
def paid(order: Order, event: OrderPaid) -> Order:
    return replace(order, receipt=event.receipt)


w1.enter("reserving", send=lambda order, _: ReserveItem(order.customer, order.item, order.quantity))
w1.enter("shipping", send=lambda order, _: ShipOrder(order.customer, order.item, order.receipt))
w1.on("shipping", OrderShipped, to="done")
w1.final("done", late={ANY: Late.RECORD})
w1.command(ReserveItem)
w1.command(ShipOrder)
