"""The words of the shop: what may happen to an order, and what may be asked for."""

from refold import Command, Event

# events


class OrderCreated(Event):
    items: tuple[str, ...]
    total: int
    coupon: str = ""


class OrderCancelled(Event):
    """The customer does not want it any more."""


class StockLocked(Event):
    pass


class StockShort(Event):
    pass


class Paid(Event):
    receipt: str


class PaymentDeclined(Event):
    pass


class PaymentNoticed(Event):
    """Money has come for this order: the provider's notice, whoever asked for it."""

    receipt: str
    amount: int


class CouponRedeemed(Event):
    pass


class CouponRefused(Event):
    pass


class PointsBooked(Event):
    pass


class OutboundCreated(Event):
    pass


class OutboundRefused(Event):
    pass


# commands; whoever acts on one knows the order's number beside it, `call.instance`


class LockStock(Command):
    items: tuple[str, ...]


class UnlockStock(Command):
    items: tuple[str, ...]


class Pay(Command):
    amount: int


class Refund(Command):
    """Give back what `Pay` took."""

    amount: int


class PayBack(Command):
    """Give back a payment that the order has no use for."""

    receipt: str
    amount: int


class RedeemCoupon(Command):
    coupon: str


class ReleaseCoupon(Command):
    coupon: str


class BookPoints(Command):
    points: int


class TakePoints(Command):
    points: int


class CreateOutbound(Command):
    items: tuple[str, ...]


class CancelOutbound(Command):
    items: tuple[str, ...]


class Notify(Command):
    text: str
