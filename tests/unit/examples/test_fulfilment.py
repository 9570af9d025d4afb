"""An order and its accidents: paid twice, paid too late, never charged, stock that nobody pays."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refold.examples.fulfilment.graph as graph_module
from refold import RunStatus
from refold.examples.fulfilment import order
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
from refold.processors.effects import Send
from refold.schemas.verdicts import Verdict
from refold.testing.answering import Answering, End, Ending, Rule
from refold.testing.driver import Driver

CREATED = OrderCreated(("pen", "ink"), 4_800, "SPRING")
GOOD: Mapping[type, Rule] = {
    LockStock: Ending(End.DONE, StockLocked()),
    Pay: Ending(End.DONE, Paid("r-1")),
    RedeemCoupon: Ending(End.DONE, CouponRedeemed()),
    BookPoints: Ending(End.DONE, PointsBooked()),
    CreateOutbound: Ending(End.DONE, OutboundCreated()),
}
NO: Mapping[type, Any] = {
    LockStock: StockShort(),
    Pay: PaymentDeclined(),
    RedeemCoupon: CouponRefused(),
    CreateOutbound: OutboundRefused(),
}
UNDOES: Mapping[type, type] = {
    LockStock: UnlockStock,
    Pay: Refund,
    RedeemCoupon: ReleaseCoupon,
    BookPoints: TakePoints,
    CreateOutbound: CancelOutbound,
}
SOON, MUCH_LATER = timedelta(minutes=5), timedelta(hours=3)


def shop(rules: Mapping[type, Rule] | None = None) -> tuple[Driver, Answering]:
    """An order that was just created, and the partners that act for it."""
    driver = Driver(order, tenant="shop")
    driver.send("o-1", CREATED)
    return driver, Answering(driver, {**GOOD, **(rules or {})})


def sent(driver: Driver) -> list[str]:
    return [one.type for one in driver.sent]


def checked(driver: Driver) -> None:
    assert driver.instance("o-1").more.actions == ()
    assert len(set(driver.keys())) == len({(one.type, one.key) for one in driver.sent})
    driver.check_counts()
    driver.check_replay()
    driver.kill_and_recover()


def test_an_order_that_goes_well_takes_every_step_once() -> None:
    driver, partners = shop()
    partners.run()
    assert sent(driver) == [
        "LockStock", "Pay", "RedeemCoupon", "BookPoints", "CreateOutbound", "Notify",
    ]  # fmt: skip
    assert (driver.state("o-1"), driver.status("o-1")) == ("done", RunStatus.COMPLETED)
    checked(driver)


def test_an_order_without_a_coupon_redeems_none() -> None:
    driver = Driver(order, tenant="shop")
    driver.send("o-1", OrderCreated(("pen",), 300))
    Answering(driver, GOOD).run()
    assert "RedeemCoupon" not in sent(driver)
    assert driver.state("o-1") == "done"
    checked(driver)


@pytest.mark.parametrize(
    ("step", "how"), [*((one, "refused") for one in NO), *((one, "failed") for one in UNDOES)]
)
def test_whatever_step_is_refused_or_fails_all_before_it_is_undone_the_last_one_first(
    step: type, how: str
) -> None:
    bad = Ending(End.DECLINED, NO[step]) if how == "refused" else Ending(End.FAILED)
    driver, partners = shop({step: bad})
    partners.run()
    before = list(UNDOES)[: list(UNDOES).index(step)]
    undone = [UNDOES[each].__name__ for each in reversed(before)]
    assert [each for each in sent(driver) if each in {one.__name__ for one in UNDOES.values()}] == (
        undone
    )
    assert driver.status("o-1") is RunStatus.COMPENSATED
    assert "Notify" not in sent(driver)
    checked(driver)


# accident: paid twice


def test_the_same_payment_that_is_told_twice_is_paid_once_and_nothing_is_given_back() -> None:
    driver, partners = shop({Pay: Ending(End.DONE, Paid("r-1"), times=2)})
    partners.run()
    assert driver.send("o-1", PaymentNoticed("r-1", 4_800)).verdict is Verdict.LATE
    partners.run()
    assert Counter(sent(driver))["Pay"] == 1
    assert "Refund" not in sent(driver)
    assert "PayBack" not in sent(driver)
    assert driver.state("o-1") == "done"
    checked(driver)


def test_a_second_payment_is_given_back_once_when_the_order_is_through() -> None:
    driver, partners = shop({CreateOutbound: Ending(End.DONE, OutboundCreated(), after=SOON)})
    partners.run(timedelta(seconds=10))
    assert driver.state("o-1") == "packing"
    assert driver.send("o-1", PaymentNoticed("r-2", 4_800)).verdict is Verdict.DEFERRED
    assert driver.send("o-1", PaymentNoticed("r-1", 4_800)).verdict is Verdict.DEFERRED
    partners.run()
    driver.send("o-1", PaymentNoticed("r-2", 4_800))
    driver.send("o-1", PaymentNoticed("r-3", 4_800))
    partners.run()
    assert given_back(driver) == [PayBack("r-2", 4_800), PayBack("r-3", 4_800)]
    assert "Refund" not in sent(driver)
    assert driver.state("o-1") == "done"
    checked(driver)


# accident: stock locked and payment lost


@pytest.mark.parametrize("then", ["paid", "nothing was paid"])
def test_a_payment_that_is_lost_keeps_the_stock_until_somebody_knows(then: str) -> None:
    end = Ending(End.DONE, Paid("r-1"), SOON) if then == "paid" else Ending(End.FAILED, None, SOON)
    driver, partners = shop({Pay: lambda _, send: [Ending(End.UNKNOWN), end]})
    partners.run(timedelta(minutes=1))
    assert driver.state("o-1") == "paying"
    assert driver.instance("o-1").context.in_doubt
    assert sent(driver) == ["LockStock", "Pay"]
    partners.run()
    assert len({one.key for one in driver.sent if one.type == "Pay"}) == 1
    if then == "paid":
        assert driver.state("o-1") == "done"
    else:
        assert sent(driver)[2:] == ["Pay", "Pay", "UnlockStock"]
        assert driver.state("o-1") == "cancelled"
    checked(driver)


def test_a_payment_of_which_nobody_hears_again_is_settled_and_the_stock_is_free() -> None:
    driver, partners = shop({Pay: Ending(End.UNKNOWN)})
    partners.run(timedelta(minutes=29))
    assert sent(driver) == ["LockStock", "Pay"]
    partners.run()  # the executor settles what it was before it undoes it (P33)
    assert sent(driver) == ["LockStock", "Pay", "Refund", "UnlockStock"]
    assert driver.state("o-1") == "cancelled"
    checked(driver)


# accident: a payment that comes after the cancellation


def test_a_payment_that_was_on_its_way_when_the_order_was_cancelled_is_given_back_once() -> None:
    driver, partners = shop({Pay: Ending(End.DONE, Paid("r-1"), after=SOON)})
    partners.run(timedelta(seconds=1))
    driver.send("o-1", OrderCancelled())
    driver.send("o-1", PaymentNoticed("r-1", 4_800))
    pay, refund = driver.sent[1:]
    assert (pay.type, refund.type) == ("Pay", "Refund")
    driver.done(pay, Paid("r-1"))  # the executor learns what it was, says so, and undoes it
    partners.run()
    assert sent(driver) == ["LockStock", "Pay", "Refund", "UnlockStock"]
    assert driver.state("o-1") == "cancelled"
    checked(driver)


def test_a_payment_that_comes_long_after_the_cancellation_is_given_back_once() -> None:
    driver, partners = shop({Pay: Ending(End.SILENT)})
    partners.run()
    assert driver.state("o-1") == "cancelled"
    driver.pass_time(MUCH_LATER)
    assert driver.send("o-1", PaymentNoticed("r-9", 4_800)).verdict is Verdict.LATE
    assert driver.state("o-1") == "clearing"
    driver.send("o-1", PaymentNoticed("r-9", 4_800))
    partners.run()
    driver.send("o-1", PaymentNoticed("r-9", 4_800))
    partners.run()
    assert given_back(driver) == [PayBack("r-9", 4_800)]
    assert driver.status("o-1") is RunStatus.COMPENSATED
    checked(driver)


def test_a_second_cancellation_is_a_known_fact_and_one_of_a_finished_order_is_refused() -> None:
    driver, partners = shop()
    driver.send("o-1", OrderCancelled())
    partners.run()
    assert driver.send("o-1", OrderCancelled()).reason is None
    assert driver.state("o-1") == "cancelled"
    driver, partners = shop()
    partners.run()
    assert driver.send("o-1", OrderCancelled()).reason is not None
    assert driver.state("o-1") == "done"


# accident: told of it and never charged


def test_news_from_the_warehouse_that_come_too_early_tell_the_customer_nothing() -> None:
    driver, partners = shop({Pay: Ending(End.SILENT)})
    partners.run(timedelta(seconds=1))
    assert driver.send("o-1", OutboundCreated()).verdict is Verdict.REFUSED
    assert "Notify" not in sent(driver)
    assert driver.state("o-1") == "paying"


def test_a_customer_who_was_told_cannot_get_the_money_back_by_cancelling() -> None:
    driver, partners = shop({Notify: Ending(End.DONE, None, after=SOON)})
    partners.run(timedelta(seconds=1))
    assert driver.state("o-1") == "telling"
    assert driver.send("o-1", OrderCancelled()).verdict is Verdict.REFUSED
    partners.run()
    assert "Refund" not in sent(driver)
    assert driver.state("o-1") == "done"
    checked(driver)


ENDINGS = st.sampled_from(["done", "no", "failed", "lost, done", "lost, not", "lost", "late"])


@settings(max_examples=100)
@given(
    ends=st.fixed_dictionaries(dict.fromkeys(UNDOES, ENDINGS)),
    cancelled_s=st.none() | st.integers(0, 4_000),
    notices=st.lists(
        st.tuples(st.integers(0, 8_000), st.sampled_from(["r-1", "r-2", "r-3"])), max_size=4
    ),
)
def test_however_it_goes_money_and_goods_agree_in_the_end(
    ends: dict[type, str], cancelled_s: int | None, notices: list[tuple[int, str]]
) -> None:
    rules = {step: _rule(step, how) for step, how in ends.items()}
    driver, partners = shop(rules)
    happens: list[tuple[int, object]] = [
        (at_s, PaymentNoticed(receipt, 4_800)) for at_s, receipt in notices
    ]
    happens += [] if cancelled_s is None else [(cancelled_s, OrderCancelled())]
    passed_s = 0
    for at_s, event in sorted(happens, key=lambda one: one[0]):
        partners.run(timedelta(seconds=at_s - passed_s))
        driver.now_ms = max(driver.now_ms, driver.log[0].event.log_time_ms + at_s * 1000)
        driver.send("o-1", event)
        passed_s = at_s
    partners.run()
    told = Counter(sent(driver))
    assert driver.state("o-1") in ("done", "cancelled")
    if driver.state("o-1") == "done":
        assert told["Notify"]
        assert not told["Refund"]
    else:
        assert not told["Notify"]
    paid = [one for one in driver.log if one.event.type == "Paid"]
    own = {"r-1"} if any(one.step.verdict is Verdict.APPLIED for one in paid) else set[str]()
    backs = [one.receipt for one in given_back(driver)]
    assert len(backs) == len(set(backs))
    assert set(backs) == {receipt for _, receipt in notices} - own
    checked(driver)


def _rule(step: type, how: str) -> Rule:
    yes, lost, numbers = GOOD[step], Ending(End.UNKNOWN), count()
    assert isinstance(yes, Ending)

    def lost_once(_: object, send: Send) -> list[Ending]:
        later = (
            Ending(End.DONE, yes.fact, SOON)
            if how == "lost, done"
            else Ending(End.FAILED, None, SOON)
        )
        return [lost, later] if next(numbers) == 0 else [yes]

    if how == "no":
        return Ending(End.DECLINED, NO[step]) if step in NO else yes
    if how.startswith("lost, "):
        return lost_once
    return {
        "done": yes, "failed": Ending(End.FAILED), "lost": lost if step is Pay else yes,
        "late": Ending(End.DONE, yes.fact, MUCH_LATER),
    }[how]  # fmt: skip


def given_back(driver: Driver) -> list[PayBack]:
    found = {one.key: driver.command(one) for one in driver.sent if one.type == "PayBack"}
    return list(found.values())


def test_the_definition_is_short_enough_to_be_read() -> None:
    text = Path(graph_module.__file__).read_text()
    lines = (each.strip() for each in text.partition("# The definition")[2].splitlines()[1:])
    assert len([each for each in lines if each and not each.startswith("#")]) <= 80
