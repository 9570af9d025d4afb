"""Workload W1 with frozen dataclasses."""

from dataclasses import dataclass, replace

from refold.processors.graph import ANY, Late, StateGraph


@dataclass(frozen=True, slots=True)
class OrderPlaced:
    customer: str
    item: str
    quantity: int
    total: int


@dataclass(frozen=True, slots=True)
class OrderPaid:
    receipt: str
    method: str
    amount: int
    paid_at: int


@dataclass(frozen=True, slots=True)
class OrderShipped:
    parcel: str


@dataclass(frozen=True, slots=True)
class ReserveItem:
    customer: str
    item: str
    quantity: int


@dataclass(frozen=True, slots=True)
class ShipOrder:
    customer: str
    item: str
    receipt: str


@dataclass(frozen=True, slots=True)
class Order:
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
