"""Whatever executors, clocks and people do, in any order: a trip ends, is undone whole, or waits
for a person with a reason; no key is called twice, and what is being undone is not tried again."""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.processors.ledger import Ledger
from tests.unit.processors.trips import (
    Cancelled,
    HotelBooked,
    HotelFull,
    Ordered,
    Paid,
    graph,
)

from refold.processors.instance import Instance
from refold.testing.driver import Driver

ANSWERS = {
    "BookHotel": (HotelBooked("12"), HotelFull()),
    "Pay": (Paid("r"), HotelFull()),
    "CancelHotel": (None, HotelFull()),
    "Refund": (None, HotelFull()),
}
ROUNDS = 200


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60))
def test_a_trip_ends_or_waits_for_a_person_and_what_was_done_is_undone(
    seed: int, steps: int
) -> None:
    chance = Random(seed)
    driver = Driver(graph(), tenant="acme")
    ledger = Ledger(driver, chance, ANSWERS)
    driver.send("t", Ordered(300))
    ledger.take()
    for _ in range(steps):
        chance.choice(ACTS)(driver, ledger, chance)
        ledger.take()
    ended = settled(driver, ledger)
    driver.check_counts()
    driver.check_replay()
    assert max(ledger.done.values(), default=0) <= 1
    assert ended.more.parked is None
    assert ended.more.ended or ended.state in driver.workflow.latest.finals
    if not ended.more.ended:
        assert (ended.more.actions, ended.more.timers) == ((), ())
    if ended.state == "undone":
        left = [key for key in ledger.done if key.endswith(":forward") and not undone(ledger, key)]
        assert not left


def undone(ledger: Ledger, key: str) -> bool:
    return ledger.done[key.removesuffix(":forward") + ":compensate"] == 1


def settled(driver: Driver, ledger: Ledger) -> Instance:
    """From here on the world behaves, and a person redrives what is parked."""
    for _ in range(ROUNDS):
        for key in list(ledger.rows):
            ledger.work(key, calm=True)
        while ledger.out:
            ledger.deliver()
        record = driver.instance("t")
        if record.more.parked is not None:
            driver.redrive("t")
        driver.pass_time(timedelta(days=2))
        ledger.take()
        record = driver.instance("t")
        waits = any(row.state in ("planned", "unknown") for row in ledger.rows.values())
        if not (waits or ledger.out or record.more.timers or record.more.parked):
            break
    return driver.instance("t")


def _works(_: Driver, ledger: Ledger, chance: Random) -> None:
    ledger.work(chance.choice(list(ledger.rows)), calm=False)


def _delivers(_: Driver, ledger: Ledger, chance: Random) -> None:
    if ledger.out:
        ledger.deliver(chance.choice((1, 1, 2)))


def _cancels(driver: Driver, _: Ledger, __: Random) -> None:
    driver.send("t", Cancelled())


def _waits(driver: Driver, _: Ledger, chance: Random) -> None:
    driver.pass_time(timedelta(seconds=chance.choice((1, 11, 60, 4_000))))


def _steps_back(driver: Driver, _: Ledger, chance: Random) -> None:
    driver.now_ms -= chance.choice((1, 60_000))


def _redrives(driver: Driver, _: Ledger, __: Random) -> None:
    driver.redrive("t")


def _terminates(driver: Driver, _: Ledger, chance: Random) -> None:
    if chance.random() < 0.1:
        driver.terminate("t")


def _dies(driver: Driver, _: Ledger, __: Random) -> None:
    driver.kill_and_recover()


Act = Callable[[Driver, Ledger, Random], None]
ACTS: tuple[Act, ...] = (
    *(_works, _works, _works, _delivers, _delivers, _delivers),
    *(_cancels, _waits, _steps_back, _redrives, _terminates, _dies),
)
