"""The graph of an order under the same version, with other code: what must be noticed."""

import time
from typing import Any

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


def _graph(
    *, nowhere: bool = False, clock: bool = False, alike: bool = False, receipt: str = ""
) -> StateGraph[Order]:
    graph = StateGraph("order", version=1, context=Order, initial="new")

    def placed(_: Order, event: OrderPlaced) -> Order:
        total = event.total
        if clock:
            total += 0 * int(getattr(time, "time")())  # noqa: B009  # hidden from the check
        return Order(items=event.items, total=total)

    def charged(ctx: Order, event: Charged) -> Order:
        return replace(ctx, receipt=event.receipt + receipt)

    def otherwise_written(_: Order, event: OrderPlaced) -> Order:
        return replace(Order(items=event.items), total=event.total)

    graph.on("new", OrderPlaced, to="reserving")(otherwise_written if alike else placed)
    graph.on("charging", Charged, to="done")(charged)
    graph.enter("reserving", send=lambda ctx, _: Reserve(items=ctx.items))
    graph.on("reserving", Reserved, to="failed" if nowhere else "charging")
    if nowhere:
        graph.on("reserving", ChargeDeclined, to="charging")
    graph.enter("charging", send=lambda ctx, _: Charge(amount=ctx.total))
    graph.on("charging", ChargeDeclined, to="failed")
    graph.already(("charging",), Reserved)
    late: dict[Any, Late] = {Charged: Late.ALREADY, ANY: Late.RECORD}
    graph.final("done", late=late)
    graph.final("failed", late={ANY: Late.REFUSE})
    return graph


reserved_goes_nowhere = _graph(nowhere=True)
clock = _graph(clock=True)
alike = _graph(alike=True)
other_value = _graph(receipt="?")
"""Sends the same and decides the same: only a value in the context is another."""
RESERVED = Reserved()
