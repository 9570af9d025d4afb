"""The owner of a partition starts what its schedules say, each occurrence once (P26, B046).

Their clocks are in 2093, in which summer ends on the same day as in 2026: a timer is never due
before the broker's time of the record that armed it.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.kafka.worker.nightly import (
    CLOSING,
    NIGHTLY,
    Wall,
    add_nightly,
    begun,
    daily,
    instances,
    nightly,
    occurrences,
    plan,
)
from tests.kafka.worker.stage import Stage, header

from refold import replace
from refold.processors.definition import Workflow
from refold.processors.engine_events import OCCURRENCE
from refold.topics.records import event_headers

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

SUMMER_ENDS = "2093-11-01"
FIRST, SECOND = "close-20931101T053000Z", "close-20931102T063000Z"


def started(stage: Stage, number: int, *workflows: Workflow, wall: Wall) -> None:
    """Run a worker until the schedule has started so many."""
    with stage.working(*workflows, wall=wall):
        stage.until(lambda: plan(stage).get("started") == number, f"{number} started")


def stands(stage: Stage, state: str, due: str | None) -> Callable[[], bool]:
    """Whether the row shows this state, and this as the next occurrence."""
    return lambda: (plan(stage).get("state"), plan(stage).get("next")) == (state, due)


def test_each_occurrence_starts_one_instance_when_it_is_due(one: Stage) -> None:
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with one.working(NIGHTLY, CLOSING, wall=wall):
        one.until(lambda: plan(one).get("next") == "2093-11-01T05:30:00Z", "the announcement")
        assert begun(one) == []
        wall.set(f"{SUMMER_ENDS}T05:30:00.250")
        one.until(lambda: plan(one).get("started") == 1, "the first")
        wall.set("2093-11-02T06:30:00")
        one.until(lambda: plan(one).get("started") == 2, "the second")
        closed = {FIRST: "closed", SECOND: "closed"}
        one.until(lambda: one.states("closing") == closed, "both closed")
    shown = plan(one)
    assert (shown["last"], shown["next"], shown["local"]) == (
        "2093-11-02T06:30:00Z",
        "2093-11-03T06:30:00Z",
        "2093-11-03T01:30:00",
    )
    assert one.counts("closing") == {"applied": 2}
    assert [event.at_ms - event.due_ms for _, event in occurrences(one)] == [250, 0]
    found = [header(each, "ce_time") for each in one.committed("events", "closing")]
    assert found == ["2093-11-01T05:30:00.000Z", "2093-11-02T06:30:00.000Z"]


def test_a_worker_that_was_away_starts_the_latest_it_missed_and_says_how_late(one: Stage) -> None:
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with one.working(NIGHTLY, wall=wall):
        one.until(lambda: "next" in plan(one), "the announcement")
    wall.set("2093-11-11T07:30:00")
    started(one, 1, NIGHTLY, wall=wall)
    assert instances(one) == ["close-20931111T063000Z"]
    assert (plan(one)["missed"], plan(one)["late_ms"]) == (10, 3_600_000)


def test_all_that_was_missed_is_started_in_order_where_so_much_is_made_good(one: Stage) -> None:
    add_nightly(one)
    wall, thorough = Wall("2093-11-02T00:00:00"), nightly(daily(catch_up=100))
    with one.working(thorough, wall=wall):
        one.until(lambda: "next" in plan(one), "the announcement")
    wall.forward(timedelta(days=30))
    started(one, 30, thorough, wall=wall)
    due = [event.due_ms for _, event in occurrences(one)]
    assert due == sorted(set(due))
    assert len(set(begun(one))) == len(begun(one)) == 30
    assert plan(one)["missed"] == 0


def test_a_clock_that_steps_back_starts_nothing_twice(one: Stage) -> None:
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with one.working(NIGHTLY, wall=wall):
        one.until(lambda: "next" in plan(one), "the announcement")
        wall.set(f"{SUMMER_ENDS}T05:30:01")
        one.until(lambda: plan(one).get("started") == 1, "the first")
    wall.set(f"{SUMMER_ENDS}T05:00:00")
    with one.working(NIGHTLY, wall=wall):
        wall.set(f"{SUMMER_ENDS}T05:30:01")
        one.until(lambda: one.counts("nightly").get("applied") == 3, "announced again")
        wall.set("2093-11-02T06:30:00")
        one.until(lambda: plan(one).get("started") == 2, "the second")
    assert instances(one) == [FIRST, SECOND]


def test_what_two_owners_write_about_one_occurrence_starts_one_instance(one: Stage) -> None:
    """The second one has another clock, and other rules of zones."""
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with one.working(NIGHTLY, CLOSING, wall=wall):
        one.until(lambda: "next" in plan(one), "the announcement")
        wall.set(f"{SUMMER_ENDS}T05:30:00")
        one.until(lambda: plan(one).get("started") == 1, "the first")
        ((_, event),) = occurrences(one)
        for number, change in enumerate(({}, {"at_ms": 1}, {"next_ms": event.next_ms + 3_600_000})):
            value = OCCURRENCE.encode(replace(event, **change))
            headers = event_headers(
                f"zombie-{number}", "/refold/schedule/nightly", OCCURRENCE.name, "acme"
            )
            one.put_raw(b"close", value, headers, "nightly")
        one.until(lambda: one.counts("nightly").get("duplicate") == 3, "the zombie's events")
    assert instances(one) == [FIRST]
    assert plan(one)["next"] == "2093-11-02T06:30:00Z"


def test_a_changed_rule_a_pause_and_a_removal_count_from_the_next_worker_on(one: Stage) -> None:
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T00:00:00")
    wanted = [
        (nightly(daily()), "scheduled", "2093-11-01T05:30:00Z"),
        (nightly(daily(cron="0 3 * * *")), "scheduled", "2093-11-01T08:00:00Z"),
        (nightly(daily(zone="Europe/Berlin")), "scheduled", "2093-11-01T00:30:00Z"),
        (nightly(daily(paused=True)), "paused", None),
        (nightly(daily()), "scheduled", "2093-11-01T05:30:00Z"),
    ]
    for workflow, state, due in wanted:
        with one.working(workflow, wall=wall):
            one.until(stands(one, state, due), f"{state} {due}")
    wall.set(f"{SUMMER_ENDS}T05:30:00")
    with one.working(nightly(), wall=wall):
        one.until(lambda: plan(one).get("state") == "undeclared", "it to be known as removed")
    assert begun(one) == []


def test_a_schedule_that_an_older_release_did_not_know_is_started_by_the_next_one(
    one: Stage,
) -> None:
    """A release that is rolled out worker by worker loses no occurrence."""
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with one.working(NIGHTLY, wall=wall):
        one.until(lambda: "next" in plan(one), "the announcement")
    wall.set(f"{SUMMER_ENDS}T05:31:00")
    with one.working(nightly(), wall=wall):
        one.until(lambda: plan(one).get("state") == "undeclared", "nobody to know it")
    wall.set(f"{SUMMER_ENDS}T05:33:00")
    started(one, 1, NIGHTLY, wall=wall)
    assert (instances(one), plan(one)["late_ms"]) == ([FIRST], 180_000)


def test_a_schedule_that_is_not_in_memory_is_loaded_and_started(one: Stage) -> None:
    add_nightly(one)
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with one.working(NIGHTLY, wall=wall, instances=0):
        one.until_saved("nightly")
        one.until(lambda: "next" in plan(one), "the announcement")
        wall.set(f"{SUMMER_ENDS}T05:30:00")
        one.until(lambda: plan(one).get("started") == 1, "the first")
    assert instances(one) == [FIRST]


def test_everything_that_was_started_is_folded_again_in_silence(two: Stage) -> None:
    add_nightly(two)
    names = [two.names(number, 1)[0] for number in (0, 1)]
    both = nightly(*(daily(name) for name in names))
    wall = Wall(f"{SUMMER_ENDS}T05:29:59")
    with two.working(both, CLOSING, wall=wall):
        two.until(lambda: all("next" in plan(two, each) for each in names), "announcements")
        wall.set(f"{SUMMER_ENDS}T05:30:00")
        two.until(lambda: len(two.states("closing")) == 2, "both")
    before = begun(two)
    two.lose_everything()
    with two.working(both, CLOSING, wall=wall):
        two.until(lambda: len(two.states("closing")) == 2, "both again")
        two.until(lambda: all(plan(two, each).get("started") == 1 for each in names), "as it was")
    assert begun(two) == before
    assert {instance for instance, _ in before} == {f"{each}-20931101T053000Z" for each in names}
