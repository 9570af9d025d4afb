"""Trips against an outside world that misbehaves in every declared way, in memory."""

from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from refold.examples.travel.executor import executor_of
from refold.examples.travel.graph import Paid, TripCancelled, TripOrdered, trip
from refold.executors.model import Status
from refold.executors.outcome import Done
from refold.processors.keys import compensate_key
from refold.testing.driver import Driver
from refold.testing.rehearsal import Rehearsal
from refold.testing.world import World

BAD: dict[str, Any] = {
    "declines": 0.1,
    "declinable": ("book", "pay"),
    "busy": 0.1,
    "unreached": 0.1,
    "drops": 0.1,
    "cannot_tell": 0.3,
    "visible_after_s": 1.0,
}
ORDER = TripOrdered("Rome", 2, 480)


def made(seed: int, **manners: Any) -> tuple[Driver, World, Rehearsal]:
    driver = Driver(trip)
    world = World(seed, now_s=lambda: driver.now_ms / 1000)
    for name in ("hotel", "flight", "bank"):
        world.system(name, keys="repeat" if name == "flight" else "ignore", **manners)
    return driver, world, Rehearsal(driver, executor_of(world))


def check(driver: Driver, world: World) -> None:
    """No effect twice; a trip has all three, or none that stands, undone from the last one on."""
    assert world.doubles() == {}
    stands: dict[str, list[str]] = defaultdict(list)
    for effect in world.journal():
        trip_ = str(effect.request["trip"])
        if effect.action in ("book", "pay"):
            stands[trip_].append(effect.key)
        else:
            assert compensate_key(stands[trip_].pop()) == effect.key
    for (_, instance), record in driver.instances.items():
        assert len(stands[instance]) == (3 if record.state == "booked" else 0)
        assert record.more.actions == ()


def test_a_trip_in_a_good_world_is_booked() -> None:
    driver, world, acting = made(1)
    driver.send("t-1", ORDER)
    acting.run()
    assert driver.state("t-1") == "booked"
    assert [(each.system, each.action) for each in world.journal()] == [
        ("hotel", "book"), ("flight", "book"), ("bank", "pay"),
    ]  # fmt: skip


def test_a_trip_that_cannot_be_paid_is_undone_from_the_last_booking_on() -> None:
    driver, world, acting = made(1)
    world.system("bank").next("decline")
    driver.send("t-1", ORDER)
    acting.run()
    assert driver.status("t-1") == "compensated"
    assert [(each.system, each.action) for each in world.journal()] == [
        ("hotel", "book"), ("flight", "book"), ("flight", "cancel"), ("hotel", "cancel"),
    ]  # fmt: skip


def test_a_lost_answer_is_asked_for_and_shown_as_unknown_meanwhile() -> None:
    driver, world, acting = made(1, visible_after_s=1)
    world.system("hotel").next("drop")
    driver.send("t-1", ORDER)
    acting.run(timedelta(milliseconds=100))
    (action,) = driver.instance("t-1").more.actions
    assert action.known == "unknown"
    acting.run()
    assert driver.state("t-1") == "booked"
    check(driver, world)


def test_a_booking_that_is_cancelled_while_nobody_knows_of_it_is_settled_and_then_undone() -> None:
    driver, world, acting = made(1)
    world.system("hotel").next("drop")
    driver.send("t-1", ORDER)
    acting.run(timedelta(milliseconds=100))
    driver.send("t-1", TripCancelled())
    acting.run()
    assert driver.state("t-1") == "undone"
    assert [each.action for each in world.journal("hotel")] == ["book", "cancel"]


def test_what_is_undone_is_called_as_the_other_side_calls_it() -> None:
    driver, world, acting = made(1)
    world.system("bank").next("decline")
    driver.send("t-1", ORDER)
    acting.run()
    trip_ = driver.instance("t-1").context
    assert driver.state("t-1") == "undone"
    assert world.journal("hotel")[-1].request["reservation"] == trip_.reservation
    assert world.journal("flight")[-1].request["ticket"] == trip_.ticket


def test_an_undoing_that_no_attempt_brings_about_parks_the_trip_and_says_what_stands() -> None:
    driver, world, acting = made(1)
    world.system("flight").next("decline")
    world.system("hotel").next("none", *["busy"] * 200)
    driver.send("t-1", ORDER)
    acting.run()
    parked = driver.instance("t-1").more.parked
    assert parked is not None
    assert parked.code == "COMPENSATION_FAILED"
    assert [each.action for each in world.journal()] == ["book"]


def test_a_payment_that_is_only_accepted_is_done_when_the_bank_says_so_once() -> None:
    driver, world, acting = made(1)
    world.system("bank").next("twice")
    driver.send("t-1", ORDER)
    acting.run(timedelta(milliseconds=100))
    assert driver.state("t-1") == "paying"
    first, second = world.answers()
    assert acting.answer(first.key, Done(Paid(first.reference)))
    assert not acting.answer(second.key, Done(Paid(second.reference)))
    acting.run()
    assert driver.state("t-1") == "booked"
    check(driver, world)


def test_a_payment_that_is_accepted_and_never_answered_is_asked_for() -> None:
    driver, world, acting = made(1)
    world.system("bank").next("twice")
    driver.send("t-1", ORDER)
    acting.run()
    assert driver.state("t-1") == "booked"
    assert [each.kind for each in world.requests("bank")] == ["call", "ask"]
    check(driver, world)


def test_against_a_hotel_that_lies_nothing_helps_and_the_journal_shows_it() -> None:
    """The check sees a double where there is one: a room that the hotel says it has not given."""
    driver, world, acting = made(1)
    world.system("hotel").next("drop")
    world.system("hotel").next_asked(*["lie"] * 20)
    driver.send("t-1", ORDER)
    acting.run()
    assert list(world.doubles().values()) == [2]
    with pytest.raises(AssertionError):
        check(driver, world)


@pytest.mark.parametrize("seed", range(25))
def test_however_the_world_misbehaves_every_trip_is_booked_once_or_undone(seed: int) -> None:
    driver, world, acting = made(seed, **BAD)
    for number in range(20):
        driver.send(f"t-{number}", ORDER)
    acting.run(timedelta(milliseconds=200))
    for number in range(0, 20, 3):
        driver.send(f"t-{number}", TripCancelled())
    acting.run()
    assert {record.state for record in driver.instances.values()} == {"booked", "undone"}
    assert set(acting.statuses.values()) <= {Status.SUCCEEDED, Status.FAILED, Status.CANCELLED}
    check(driver, world)
    driver.check_counts()
    driver.check_replay()
