"""Orders with their own executor, in memory but for the stock: goods, money and offers agree."""

from collections import Counter, defaultdict
from datetime import timedelta
from random import Random
from typing import Any

import psycopg
import pytest

from refold.examples.fulfilment import order
from refold.examples.fulfilment.executor import STOCK_TABLE, executor_of
from refold.examples.fulfilment.words import OrderCancelled, OrderCreated, PaymentNoticed
from refold.executors.model import Status
from refold.testing.driver import Driver
from refold.testing.rehearsal import Rehearsal
from refold.testing.world import World

pytestmark = pytest.mark.postgres

ORDERS, PENS = 16, 13
BAD: dict[str, Any] = {
    "busy": 0.1,
    "unreached": 0.05,
    "drops": 0.15,
    "cannot_tell": 0.3,
    "visible_after_s": 0.8,
    "declines": 0.1,
    "declinable": ("pay", "redeem", "create"),
}
UNDOES = {"pay": "refund", "redeem": "release", "book": "take", "create": "cancel"}


def free(connection: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(connection.execute("SELECT item, free FROM public.stock").fetchall())


@pytest.mark.parametrize("seed", range(12))
def test_however_the_partners_behave_and_whenever_customers_cancel_or_pay_twice(
    seed: int, database: str
) -> None:
    random = Random(seed)
    driver = Driver(order, tenant="shop")
    world = World(seed, now_s=lambda: driver.now_ms / 1000)
    for name in ("bank", "warehouse"):
        world.system(name, **BAD)
    world.system("offers", keys="repeat", **BAD)
    world.system("mail", drops=0.2, unreached=0.2)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(STOCK_TABLE)
        connection.execute("INSERT INTO public.stock VALUES ('pen', %s), ('ink', 99)", (PENS,))
        partners = Rehearsal(driver, executor_of(world), local=connection)
        for number in range(ORDERS):
            coupon = "SPRING" if number % 2 else ""
            driver.send(f"o-{number}", OrderCreated(("pen", "ink"), 4_800, coupon))
        noticed = random.sample(range(ORDERS), 5)
        for number in random.sample(range(ORDERS), 5):
            partners.run(timedelta(milliseconds=random.randrange(400)))
            driver.send(f"o-{number}", OrderCancelled())
            driver.send(f"o-{noticed.pop()}", PaymentNoticed("cash", 4_800))
        partners.run()
        left = free(connection)
    states = {instance: record.state for (_, instance), record in driver.instances.items()}
    check(world, states)
    through = sum(state == "done" for state in states.values())
    assert left == {"pen": PENS - through, "ink": 99 - through}
    settled = {Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}
    assert set(partners.statuses.values()) <= settled
    driver.check_counts()
    driver.check_replay()


def check(world: World, states: dict[str, str]) -> None:
    """Nothing twice; an order has all or nothing; who was told has paid; cash went back."""
    assert world.doubles() == {}
    done: dict[str, Counter[str]] = defaultdict(Counter)
    for effect in world.journal():
        done[str(effect.request["order"])][effect.action] += 1
    for name, state in states.items():
        found = done[name]
        through = state == "done"
        assert state in ("done", "cancelled")
        net = {each: found[each] - found[undoing] for each, undoing in UNDOES.items()}
        coupon = int(name[2:]) % 2
        assert net == {
            "pay": through, "redeem": through and coupon, "book": through, "create": through,
        }, (name, found)  # fmt: skip
        assert found["send"] <= through
    assert sum(found["pay back"] for found in done.values()) == 5
