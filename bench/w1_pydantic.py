"""Workload W1 with frozen pydantic models, validated as they are made."""

from pydantic import BaseModel

from refold.processors.graph import ANY, Late, StateGraph


class OrderPlaced(BaseModel, frozen=True):
    customer: str
    item: str
    quantity: int
    total: int


class OrderPaid(BaseModel, frozen=True):
    receipt: str
    method: str
    amount: int
    paid_at: int


class OrderShipped(BaseModel, frozen=True):
    parcel: str


class ReserveItem(BaseModel, frozen=True):
    customer: str
    item: str
    quantity: int


class ShipOrder(BaseModel, frozen=True):
    customer: str
    item: str
    receipt: str


class Order(BaseModel, frozen=True):
    customer: str
    item: str
    quantity: int
    total: int
    receipt: str = ""


w1 = StateGraph("w1", version=1, context=Order, initial="new")


@w1.on("new", OrderPlaced, to="reserving")
def placed(_: Order, event: OrderPlaced) -> Order:
    return Order(
        customer=event.customer, item=event.item, quantity=event.quantity, total=event.total
    )


@w1.on("reserving", OrderPaid, to="shipping")
def paid(order: Order, event: OrderPaid) -> Order:
    return order.model_copy(update={"receipt": event.receipt})


w1.enter(
    "reserving",
    send=lambda order, _: ReserveItem(
        customer=order.customer, item=order.item, quantity=order.quantity
    ),
)
w1.enter(
    "shipping",
    send=lambda order, _: ShipOrder(
        customer=order.customer, item=order.item, receipt=order.receipt
    ),
)
w1.on("shipping", OrderShipped, to="done")
w1.final("done", late={ANY: Late.RECORD})
w1.command(ReserveItem)
w1.command(ShipOrder)
