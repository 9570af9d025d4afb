"""Orders on real servers, every step with another truth: goods, money and offers agree after kills.

The executors are killed while they act. What each mode promises holds for each order: the stock is
locked and freed with the ledger's rows, money and coupons move once, a mail is sent once at most.
"""

import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.kafka.worker.stage import Given, Stage

from refold.examples.fulfilment import order
from refold.examples.fulfilment.executor import STOCK_TABLE
from refold.examples.fulfilment.words import OrderCancelled, OrderCreated, PaymentNoticed
from refold.executors.migrate import migrate_ledger
from refold.processors.definition import Workflow
from refold.testing.world import Manners
from refold.testing.world_server import WorldServer
from refold.topics.specs import create, workflow_specs

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

ORDERS = 300 if "REFOLD_CHAOS" in os.environ else 40
PENS, KILLS = ORDERS * 85 // 100, ORDERS // 10
SHOP = Workflow("fulfilment", [order])
BAD = Manners(
    declines=0.05,
    declinable=("pay", "redeem", "create"),
    busy=0.03,
    drops=0.08,
    unreached=0.03,
    delay_s=(0.0, 0.03),
    visible_after_s=0.5,
    cannot_tell=0.1,
)
WORLD = {
    "bank": BAD,
    "offers": Manners(declines=0.05, declinable=("redeem",), drops=0.1, keys="repeat"),
    "warehouse": BAD,
    "mail": Manners(drops=0.1),
}
UNDOES = {"pay": "refund", "redeem": "release", "book": "take", "create": "cancel"}


class Shop:
    """Orders, the partners in a world of their own, and executors that are killed."""

    def __init__(self, stage: Stage, world: WorldServer) -> None:
        self.stage = stage
        self.world = world
        self._started = 0
        migrate_ledger(stage.dsn)
        stage.sql(STOCK_TABLE)
        stage.sql("INSERT INTO public.stock VALUES ('pen', %s), ('ink', 1000)", PENS)
        create(stage.admin, workflow_specs(stage.namespace, "fulfilment", ["fulfilment"], 1))

    def executor(self) -> subprocess.Popen[bytes]:
        """Start an executor process."""
        self._started += 1
        with (self.stage.log / f"executor-{self._started}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "refold.cli.main", "executor",
                 "refold.examples.fulfilment.executor:fulfilment"],
                env=self.stage.environment() | {
                    "SHOP_WORLD": self.world.address,
                    "REFOLD_EXECUTOR_SESSION_TIMEOUT_MS": "800",
                },
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self.stage.adopt(child)
        return child

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait; the failure shows the orders and the rows that are open."""
        try:
            self.stage.until(true, what)
        except AssertionError as failure:
            raise AssertionError(f"{self.states()}\n{self.unsettled()}\n{failure}") from None

    def put(self, *events: Given) -> None:
        """Put events of orders on the log."""
        self.stage.put(*events, workflow="fulfilment", tenant="shop")

    def states(self) -> dict[str, str]:
        """Order → its state."""
        return self.stage.states("fulfilment")

    def version(self, order: str) -> int:
        """How far an order is, by its newest snapshot."""
        text = "SELECT max(version) FROM refold.workflow_snapshot WHERE instance_id = %s"
        return int(self.stage.sql(text, order)[0][0] or 0)

    def has_ended(self, orders: int) -> bool:
        """Whether so many orders have ended."""
        return self.ended() >= orders

    def has_heard(self, calls: int) -> bool:
        """Whether so many calls and questions have come to the partners."""
        return self.world.journal.count() >= calls

    def ended(self) -> int:
        """How many orders have ended."""
        return sum(each in ("done", "cancelled") for each in self.states().values())

    def unsettled(self) -> list[object]:
        """What nobody knows yet."""
        return self.stage.sql(
            "SELECT key, status, reason FROM refold_ledger.workflow_action"
            " WHERE status IN ('planned', 'in_flight', 'unknown')"
        )

    def done_for(self) -> dict[str, Counter[str]]:
        """Order → what was done for it out there, how often."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for effect in self.world.journal.effects():
            found[str(effect.request["order"])][effect.action] += 1
        return found

    def free(self) -> dict[str, int]:
        """Item → how many are free."""
        return dict(self.stage.sql("SELECT item, free FROM public.stock"))


@contextmanager
def shop(stage: Stage, folder: Path, seed: int) -> Iterator[Shop]:
    """A shop with a worker in the test's process."""
    with WorldServer(folder / "world.db", seed=seed, systems=WORLD) as world:
        made = Shop(stage, world)
        with stage.working(SHOP, snapshot_max_age_s=0.05):
            yield made


@pytest.mark.timeout(120 + 3 * ORDERS)
def test_goods_money_and_offers_agree_however_the_partners_behave_and_whoever_is_killed(
    one: Stage, tmp_path: Path
) -> None:
    seed = int(os.environ.get("REFOLD_CHAOS_SEED") or int.from_bytes(os.urandom(4), "big"))
    sys.stdout.write(f"seed {seed} (REFOLD_CHAOS_SEED)\n")
    random = Random(seed)
    with shop(one, tmp_path, seed) as run:
        running = [run.executor(), run.executor()]
        names = [f"o-{number}" for number in range(ORDERS)]
        for number, name in enumerate(names):
            coupon = "SPRING" if number % 2 else ""
            run.put((name, f"c-{name}", OrderCreated(("pen", "ink"), 4_800, coupon)))
        for number in range(1, KILLS + 1):
            run.until(partial(run.has_heard, number * 20), f"{number} kills")
            victim = random.randrange(len(running))
            running[victim].kill()
            running[victim].wait()
            running[victim] = run.executor()
            run.put((names[number], f"x-{number}", OrderCancelled()))
        for number in range(20, ORDERS + 1, 20):  # each few in bounded time
            run.until(partial(run.has_ended, number), f"{number} orders to have ended")
        run.until(lambda: run.ended() == ORDERS, "all orders to have ended")
        before = run.version("o-0")
        run.put(("o-0", "n-1", PaymentNoticed("cash", 4_800)))
        run.until(lambda: run.done_for()["o-0"]["pay back"] == 1, "the second payment to go back")
        # The notice has opened it again, and the answer to what it asked for has closed it.
        run.until(lambda: run.version("o-0") >= before + 2, "the answer to be folded")
        run.until(lambda: run.ended() == ORDERS, "all orders to have ended again")
        run.until(lambda: run.unsettled() == [], "every outcome to be settled")
        check(run)


def check(run: Shop) -> None:
    """Hold the orders against what was done for them."""
    states, done = run.states(), run.done_for()
    assert run.world.journal.doubles() == {}
    for name, state in states.items():
        found = done[name]
        net = {each: found[each] - found[undoing] for each, undoing in UNDOES.items()}
        coupon = int(int(name[2:]) % 2)
        if state == "done":
            assert net == {"pay": 1, "redeem": coupon, "book": 1, "create": 1}, (name, found)
        else:
            assert net == {"pay": 0, "redeem": 0, "book": 0, "create": 0}, (name, found)
            assert not found["send"], f"{name} was cancelled, and its customer told of it"
        assert found["send"] <= 1
    through = sum(state == "done" for state in states.values())
    assert run.free() == {"pen": PENS - through, "ink": 1000 - through}
    assert 0 < through <= PENS
