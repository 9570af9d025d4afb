"""A graph whose first version cannot count to thirteen, and its fix."""

from refold import ANY, Late, StateGraph, replace
from refold.examples.order.graph import (
    Charge,
    Charged,
    ChargeDeclined,
    Order,
    OrderPlaced,
    Reserve,
    Reserved,
)


def unlucky(_: Order, event: OrderPlaced) -> Order:
    if event.total == 13:
        raise ValueError("13")
    return Order(items=event.items, total=event.total)


def lucky(_: Order, event: OrderPlaced) -> Order:
    return Order(items=event.items, total=event.total)


def charged(ctx: Order, event: Charged) -> Order:
    return replace(ctx, receipt=event.receipt)


def _graph(version: int) -> StateGraph[Order]:
    graph = StateGraph("order", version=version, context=Order, initial="new")
    graph.on("new", OrderPlaced, to="reserving")(unlucky if version == 1 else lucky)
    graph.on("charging", Charged, to="done")(charged)
    graph.enter("reserving", send=lambda ctx, _: Reserve(items=ctx.items))
    graph.on("reserving", Reserved, to="charging")
    graph.enter("charging", send=lambda ctx, _: Charge(amount=ctx.total))
    graph.on("charging", ChargeDeclined, to="failed")
    graph.final("done", late={ANY: Late.RECORD})
    graph.final("failed", late={ANY: Late.REFUSE})
    return graph


first = _graph(1)
second = _graph(2)
third = _graph(3)
both = [first, second]
