"""Schedules when their owner dies or stands still: each occurrence starts one instance (P26)."""

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.crash.test_timers import killed, name_of, paused
from tests.kafka.worker.nightly import (
    CLOSING,
    EVERY_YEAR,
    Wall,
    add_nightly,
    begun,
    occurrences,
    plan,
)
from tests.kafka.worker.stage import Stage, stage

from refold.processors.schedules import instance_id
from refold.testing.boundary import Plan
from refold.testing.servers import Kafka

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

SPEC = "tests.kafka.worker.nightly:EVERY_YEAR"
YEARS_AWAY = 7
MADE_GOOD = 4
CALLS = {
    "consumer.consume": 4,
    "producer.begin_transaction": 2,
    "producer.produce": 20,
    "producer.send_offsets_to_transaction": 3,
    "producer.commit_transaction": 3,
    "store.flush": 2,
    "store.save": 2,
}
"""Outside calls of a worker with occurrences that are due; the n-th time at which it ends there."""


def plans() -> Iterator[Plan]:
    for call, nth in CALLS.items():
        for side in ("before", "after"):
            yield Plan(call, nth, side, "kill")
    for nth in (2, 3, 4):
        for side in ("before", "after"):
            yield Plan("producer.commit_transaction", nth, side, "pause")


@pytest.fixture
def two(kafka: Kafka, database: str) -> Iterator[Stage]:
    with stage(kafka.bootstrap, database, 2) as made:
        add_nightly(made)
        yield made


def names() -> list[str]:
    return sorted(EVERY_YEAR.schedules or {})


def years_ago(years: int) -> Wall:
    """A clock that was right then."""
    return Wall((datetime.now(UTC) - timedelta(days=365 * years)).replace(tzinfo=None).isoformat())


def all_started(run: Stage) -> bool:
    return all(plan(run, each).get("started") == MADE_GOOD for each in names())


@pytest.mark.parametrize("case", list(plans()), ids=name_of)
def test_a_worker_that_ends_anywhere_around_its_schedules_starts_each_occurrence_once(
    case: Plan, two: Stage
) -> None:
    """It was away for seven years; the four latest starts are made good, while it dies."""
    with two.working(EVERY_YEAR, wall=years_ago(YEARS_AWAY)):
        two.until(lambda: all("next" in plan(two, each) for each in names()), "announcements")
    first = two.process(SPEC, case, timer_records=5)
    ended = paused if case.how == "pause" else killed
    two.until(lambda: ended(first), f"the planned end {case}")
    second = two.process(SPEC, timer_records=5)
    two.until(lambda: all_started(two), "all started")
    if case.how == "pause":
        first.send_signal(signal.SIGCONT)
        two.stop(first)
    two.stop(second)
    found = begun(two)
    assert Counter(instance for instance, _ in found) == Counter(expected())
    assert len({id_ for _, id_ in found}) == len(found)
    assert {plan(two, each)["missed"] for each in names()} == {YEARS_AWAY - MADE_GOOD}
    per_timer = Counter(event.id for _, event in occurrences(two))
    assert max(per_timer.values()) <= 2, per_timer
    with two.working(CLOSING):
        two.until(lambda: two.counts("closing") == {"applied": len(found)}, "all closed")
    assert two.states("closing") == dict.fromkeys(expected(), "closed")


def expected() -> list[str]:
    """What each schedule has to start: the beginnings of the last years."""
    year = datetime.now(UTC).year
    return [
        instance_id(name, int(datetime(each, 1, 1, tzinfo=UTC).timestamp() * 1000))
        for name in names()
        for each in range(year - MADE_GOOD + 1, year + 1)
    ]
