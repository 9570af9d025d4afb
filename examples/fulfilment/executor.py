"""The executor of orders: each step with the truth that its other side allows.

stock      Local       rows of the shop's own database: they commit with the ledger's row
payment    Queryable   the bank knows nothing of keys, but says what became of one
offers     ByKey       coupons and points are done once a key for a day
warehouse  Queryable   likewise
mail       Neither     nobody can be asked; a mail that is missing is accepted, one twice is not
"""

import os
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from refold.examples.fulfilment.words import (
    BookPoints,
    CancelOutbound,
    CouponRedeemed,
    CouponRefused,
    CreateOutbound,
    LockStock,
    Notify,
    OutboundCreated,
    OutboundRefused,
    Paid,
    Pay,
    PayBack,
    PaymentDeclined,
    PointsBooked,
    RedeemCoupon,
    Refund,
    ReleaseCoupon,
    StockLocked,
    StockShort,
    TakePoints,
    UnlockStock,
)
from refold.executors.executor import Call, Executor
from refold.executors.outcome import Answer, Declined
from refold.executors.truth import ByKey, Local, Neither, Queryable, Then, Truth
from refold.snapshots.sessions import Connection
from refold.testing.world import Outside, Refused
from refold.testing.world_server import RemoteWorld

DEADLINE_S = 2.0
VISIBLE_AFTER_S = 1.0
DAY_S = 86_400.0
STOCK_TABLE = (
    "CREATE TABLE IF NOT EXISTS public.stock (item text PRIMARY KEY, free int CHECK (free >= 0))"
)

Said = Callable[[str], Any]
"""The event that tells of a reference of the other side's; None: that it is done is enough."""


def executor_of(world: Outside) -> Executor:
    """An executor whose outside is this world; its stock is in the ledger's own database."""
    executor = Executor("fulfilment")
    _keep_stock(executor)

    def act(
        command: type, system: str, action: str, truth: str, said: Said, no: Any = None,
        *, undoes: type | None = None,
    ) -> None:  # fmt: skip
        """One command type: who does it, what it is called there, and what is answered."""
        other = world.system(system)

        def ask(_: Any, call: Call) -> Answer:
            return other.ask(call.key).answer(said)

        truths: dict[str, Truth] = {
            "by_key": ByKey(DAY_S),
            "queryable": Queryable(ask, visible_after_s=VISIBLE_AFTER_S),
            "neither": Neither(Then.ASSUME_DONE),
        }

        @executor.action(command, truth=truths[truth], system=system, deadline_s=DEADLINE_S)
        def handle(wanted: Any, call: Call) -> Any:
            done = call.forward_event(undoes) if undoes is not None else None
            values = {"order": call.instance, **asdict(wanted)}
            values |= asdict(done) if done is not None else {}
            call.before_send()
            try:
                reply = other.call(action, call.key, timeout_s=call.left_s, **values)
            except Refused:
                if no is None:
                    raise
                raise Declined(no) from None
            return said(reply.reference)

    act(Pay, "bank", "pay", "queryable", Paid, PaymentDeclined())
    act(Refund, "bank", "refund", "queryable", _no_event, undoes=Paid)
    act(PayBack, "bank", "pay back", "queryable", _no_event)
    act(RedeemCoupon, "offers", "redeem", "by_key", lambda _: CouponRedeemed(), CouponRefused())
    act(ReleaseCoupon, "offers", "release", "by_key", _no_event)
    act(BookPoints, "offers", "book", "by_key", lambda _: PointsBooked())
    act(TakePoints, "offers", "take", "by_key", _no_event)
    act(
        CreateOutbound, "warehouse", "create", "queryable", lambda _: OutboundCreated(),
        OutboundRefused(),
    )  # fmt: skip
    act(CancelOutbound, "warehouse", "cancel", "queryable", _no_event)
    act(Notify, "mail", "send", "neither", _no_event)
    return executor


def _no_event(_: str) -> None:
    """That it is done is enough."""


def _keep_stock(executor: Executor) -> None:
    """Rows of the shop's own: locked and unlocked in the ledger's transaction, exactly once."""

    @executor.action(LockStock, truth=Local())
    def lock(wanted: LockStock, _: Call, connection: Connection) -> StockLocked:
        for item in sorted(wanted.items):
            found = connection.execute(
                "UPDATE public.stock SET free = free - 1 WHERE item = %s AND free > 0", [item]
            )
            if not found.rowcount:
                raise Declined(StockShort(), f"there is no {item} left")
        return StockLocked()

    @executor.action(UnlockStock, truth=Local())
    def unlock(wanted: UnlockStock, _: Call, connection: Connection) -> None:
        for item in sorted(wanted.items):
            connection.execute("UPDATE public.stock SET free = free + 1 WHERE item = %s", [item])


fulfilment = executor_of(RemoteWorld(os.environ.get("SHOP_WORLD", "http://127.0.0.1:8098")))
"""For `refold executor refold.examples.fulfilment.executor:fulfilment`."""
