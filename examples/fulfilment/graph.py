"""The graph of an order: stock, payment, coupon, points, warehouse, a word to the customer."""

from datetime import timedelta

from refold import (
    ANY,
    Context,
    Late,
    Retry,
    RunStatus,
    StateGraph,
    failed,
    reopen,
    replace,
    succeeded,
    unknown,
)
from refold.examples.fulfilment.words import (
    BookPoints,
    CancelOutbound,
    CouponRedeemed,
    CouponRefused,
    CreateOutbound,
    LockStock,
    Notify,
    OrderCancelled,
    OrderCreated,
    OutboundCreated,
    OutboundRefused,
    Paid,
    Pay,
    PayBack,
    PaymentDeclined,
    PaymentNoticed,
    PointsBooked,
    RedeemCoupon,
    Refund,
    ReleaseCoupon,
    StockLocked,
    StockShort,
    TakePoints,
    UnlockStock,
)

# The definition: from here to the end.


class Order(Context):
    items: tuple[str, ...] = ()
    total: int = 0
    coupon: str = ""
    in_doubt: bool = False  # nobody knows yet whether it is paid
    receipts: tuple[str, ...] = ()


order = StateGraph("fulfilment", version=1, context=Order, initial="new", tenant="shop")


# What goes well


@order.on("new", OrderCreated, to="locking")
def created(_: Order, event: OrderCreated) -> Order:
    return Order(event.items, event.total, event.coupon)


@order.on("paying", Paid, to="redeeming", guard=lambda order, _: bool(order.coupon))
@order.on("paying", Paid, to="rewarding")
@order.on("undoing", Paid)  # it is being given back
def paid(order: Order, event: Paid) -> Order:
    return replace(order, receipts=(event.receipt,), in_doubt=False)


order.on("locking", StockLocked, to="paying")
order.on("redeeming", CouponRedeemed, to="rewarding")
order.on("rewarding", PointsBooked, to="packing")
order.on("packing", OutboundCreated, to="telling")
order.on("telling", succeeded(Notify), to="done")

order.enter("locking", send=lambda order, _: LockStock(order.items))
order.enter("paying", send=lambda order, _: Pay(order.total))
order.enter("redeeming", send=lambda order, _: RedeemCoupon(order.coupon))
order.enter("rewarding", send=lambda order, _: BookPoints(order.total // 100))
order.enter("packing", send=lambda order, _: CreateOutbound(order.items))
order.enter("telling", send=lambda order, _: Notify("Your order is on its way."))

# What each step may be answered, and what undoes it
# fmt: off

QUICK = Retry(attempts=3, first_s=1)

order.command(LockStock, answers=(StockLocked, StockShort), retry=QUICK,
              compensate=lambda _, lock: UnlockStock(lock.items))
order.command(Pay, answers=(Paid, PaymentDeclined), retry=QUICK,
              compensate=lambda _, pay: Refund(pay.amount))
order.command(RedeemCoupon, answers=(CouponRedeemed, CouponRefused), retry=QUICK,
              compensate=lambda _, redeem: ReleaseCoupon(redeem.coupon))
order.command(BookPoints, answers=(PointsBooked,), retry=QUICK,
              compensate=lambda _, book: TakePoints(book.points))
order.command(CreateOutbound, answers=(OutboundCreated, OutboundRefused), retry=QUICK,
              compensate=lambda _, outbound: CancelOutbound(outbound.items))
order.command(Notify, retry=QUICK)
order.command(PayBack, retry=Retry(attempts=50, first_s=1, most_s=600))

# What goes wrong

order.undo("undoing", to="cancelled", when=(
    failed(ANY), StockShort, PaymentDeclined, CouponRefused, OutboundRefused, OrderCancelled,
))
order.after("paying", timedelta(minutes=30), to="undoing")
order.on("paying", unknown(Pay))(lambda order, _: replace(order, in_doubt=True))
order.pivot("telling")  # it is on its way: from here on there is only forward
order.on("telling", failed(Notify), to="done")

# Money that the order has no use for waits until its end, and is paid back


def is_news(order: Order, event: PaymentNoticed) -> bool:
    return event.receipt not in order.receipts


def surplus(order: Order, event: PaymentNoticed) -> Order:
    return replace(order, receipts=(*order.receipts, event.receipt))


def pay_back(_: Order, event: PaymentNoticed) -> PayBack:
    return PayBack(event.receipt, event.amount)


BEFORE = ("locking", "paying", "redeeming", "rewarding", "packing")
order.defer((*BEFORE, "telling", "undoing", "settling", "clearing"), PaymentNoticed)
order.enter(("settling", "clearing"), send=pay_back)
order.join("settling", PayBack, to="done")
order.join("clearing", PayBack, to="cancelled")

order.final("done", late={
    PaymentNoticed: reopen("settling", surplus, when=is_news, otherwise=Late.ALREADY),
    OrderCancelled: Late.REFUSE, ANY: Late.RECORD,
})
order.final("cancelled", status=RunStatus.COMPENSATED, late={
    PaymentNoticed: reopen("clearing", surplus, when=is_news, otherwise=Late.ALREADY),
    OrderCancelled: Late.ALREADY, ANY: Late.RECORD,
})
order.invariant("nobody is told of an order that is not paid",
                lambda _, order: bool(order.receipts), states=("telling", "done"))
