"""Schedules in the fold: each occurrence once, whatever clocks and calendars do (B046)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from tests.kafka.worker.nightly import DAILY, NEW_YORK, DayEnded, closing, ended

from refold import DefinitionError, Schedule, Schedules
from refold.processors import calendar
from refold.processors.checks import others
from refold.processors.definition import Workflow
from refold.processors.engine_events import SCHEDULE
from refold.processors.planned import Plan
from refold.processors.schedules import scheduled
from refold.processors.status import RunStatus
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver
from refold.testing.exchanging import exchange


def schedule(
    cron: str = DAILY,
    zone: str = NEW_YORK,
    *,
    catch_up: int = 1,
    within: timedelta | None = None,
    paused: bool = False,
) -> Schedule:
    return Schedule("close", cron, zone, "closing", ended, catch_up, within, paused)


def workflow(*schedules: Schedule) -> Workflow:
    return Workflow("nightly", [Schedules("nightly", *schedules, tenant="acme")])


def at(moment: str) -> int:
    return int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)


def driver(moment: str, *schedules: Schedule) -> Driver:
    """A driver whose owner has just announced them."""
    made = Driver(workflow(*schedules))
    made.now_ms = at(moment)
    made.announce()
    return made


def plan(made: Driver) -> Plan:
    found = made.instance("close").context
    assert isinstance(found, Plan)
    return found


def wait_until(made: Driver, moment: str) -> None:
    """Time passes, and whatever is due happens when it is due."""
    made.pass_time(timedelta(milliseconds=at(moment) - made.now_ms))


def away_until(made: Driver, moment: str) -> None:
    """Nobody is there until then."""
    made.now_ms = at(moment)
    made.pass_time(timedelta(seconds=10))


def started(made: Driver) -> list[str]:
    """Times of the occurrences that were started, in order."""
    return [one.instance.removeprefix("close-") for _, one in made.published]


def redeclared(made: Driver, *schedules: Schedule) -> None:
    """Another owner takes the partition, with these declarations."""
    made.workflow = workflow(*schedules)
    made.announce()


# summer time


@pytest.mark.parametrize(
    ("cron", "begin", "end", "expected"),
    [
        (
            "30 1 * * *",
            "2026-10-31T00:00",
            "2026-11-03T00:00",
            ["20261031T053000Z", "20261101T053000Z", "20261102T063000Z"],
        ),
        (
            "30 2 * * *",
            "2026-10-31T00:00",
            "2026-11-03T00:00",
            ["20261031T063000Z", "20261101T073000Z", "20261102T073000Z"],
        ),
        (
            "30 1 * * *",
            "2026-03-07T00:00",
            "2026-03-10T00:00",
            ["20260307T063000Z", "20260308T063000Z", "20260309T053000Z"],
        ),
        (
            "30 2 * * *",  # not there on the 8th: when the gap ends
            "2026-03-07T00:00",
            "2026-03-10T00:00",
            ["20260307T073000Z", "20260308T070000Z", "20260309T063000Z"],
        ),
        (
            "0,15,30 2,3 * * *",  # both hours are one moment for what is not there
            "2026-03-08T00:00",
            "2026-03-09T00:00",
            ["20260308T070000Z", "20260308T071500Z", "20260308T073000Z"],
        ),
        (
            "30 * * * *",  # every hour is every hour, there twice or not at all
            "2026-11-01T04:00",
            "2026-11-01T08:00",
            ["20261101T043000Z", "20261101T053000Z", "20261101T063000Z", "20261101T073000Z"],
        ),
        (
            "30 * * * *",
            "2026-03-08T06:00",
            "2026-03-08T08:00",
            ["20260308T063000Z", "20260308T073000Z"],
        ),
    ],
)
def test_each_occurrence_starts_once_when_the_clocks_change(
    cron: str, begin: str, end: str, expected: Sequence[str]
) -> None:
    made = driver(begin, schedule(cron))
    wait_until(made, end)
    assert started(made) == expected
    made.check_replay()
    made.check_counts()


def test_what_is_announced_in_the_repeated_hour_lies_ahead() -> None:
    made = driver("2026-11-01T06:15", schedule())  # the second 01:15
    assert plan(made).next == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("begin", "rules", "announced", "following"),
    [
        ("2026-10-31T12:00", "Etc/GMT+5", "20261101T053000Z", "2026-11-02T06:30:00"),
        ("2026-11-30T12:00", "Etc/GMT+4", "20261201T063000Z", "2026-12-02T05:30:00"),
    ],
    ids=["winter for ever", "summer for ever"],
)
def test_what_is_announced_stands_when_the_rules_of_a_zone_change_and_no_day_comes_twice(
    begin: str, rules: str, announced: str, following: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver(begin, schedule())
    monkeypatch.setattr(calendar, "ZoneInfo", lambda _: ZoneInfo(rules))
    redeclared(made, schedule())
    made.pass_time(timedelta(hours=23))
    assert started(made) == [announced]
    assert plan(made).next == datetime.fromisoformat(following).replace(tzinfo=UTC)
    monkeypatch.undo()
    made.check_replay()  # under the rules of before: the fold asks none


def test_the_instant_stands_with_the_zone_and_the_version_of_its_rules() -> None:
    made = driver("2026-10-31T12:00", schedule())
    found = plan(made)
    assert (found.next, found.local) == (
        datetime(2026, 11, 1, 5, 30, tzinfo=UTC),
        "2026-11-01T01:30:00",
    )
    assert (found.zone, found.rules) == (NEW_YORK, calendar.rules_of(NEW_YORK))
    assert found.rules


# once


def test_an_occurrence_has_one_instance_and_one_event_for_ever() -> None:
    """Golden: another id would be a second start."""
    made = driver("2026-10-31T12:00", schedule())
    wait_until(made, "2026-11-01T12:00")
    ((tenant, one),) = made.published
    assert (tenant, one.workflow, one.instance) == ("acme", "closing", "close-20261101T053000Z")
    assert one.id == "occurrence-2aaa0ef257f4c91da8c35a63476ab695"
    assert (one.type, one.time) == ("DayEnded", "2026-11-01T05:30:00.000Z")


def test_a_schedule_that_lost_its_memory_starts_nothing_that_was_started() -> None:
    made, days = driver("2026-10-31T12:00", schedule()), Driver(closing())
    wait_until(made, "2026-11-01T12:00")
    exchange(made, days)
    again = driver("2026-10-31T12:00", schedule())  # its log and all that it knew are gone
    away_until(again, "2026-11-01T12:00")
    exchange(again, days)
    assert days.verdicts() == [Verdict.APPLIED, Verdict.DUPLICATE]
    assert days.state("close-20261101T053000Z", tenant="acme") == "closed"


def test_an_occurrence_that_is_written_twice_starts_once() -> None:
    made = driver("2026-10-31T12:00", schedule())
    (timer,) = made.instance("close").more.timers
    made.now_ms = timer.due_ms
    assert made.ring("close", timer).verdict is Verdict.APPLIED
    assert made.ring("close", timer).verdict is Verdict.DUPLICATE
    assert started(made) == ["20261101T053000Z"]


def test_an_owner_that_announces_the_same_again_changes_nothing() -> None:
    made = driver("2026-10-31T12:00", schedule())
    before = made.instance("close")
    for _ in range(3):
        redeclared(made, schedule())
    after = made.instance("close")
    assert (after.state, after.context, after.more) == (before.state, before.context, before.more)


# what was missed


@pytest.mark.parametrize(
    ("catch_up", "within", "expected", "missed"),
    [
        (1, None, ["20261110T063000Z"], 9),
        (3, None, ["20261108T063000Z", "20261109T063000Z", "20261110T063000Z"], 7),
        (1_000, None, None, 0),
        (1_000, timedelta(days=1), ["20261110T063000Z"], 9),
        (1, timedelta(hours=5), [], 10),
    ],
)
def test_what_was_missed_is_made_good_as_declared(
    catch_up: int, within: timedelta | None, expected: Sequence[str] | None, missed: int
) -> None:
    made = driver("2026-11-01T00:00", schedule(catch_up=catch_up, within=within))
    away_until(made, "2026-11-10T12:00")
    assert expected is None or started(made) == expected
    assert (plan(made).started, plan(made).missed) == (10 - missed, missed)
    assert plan(made).next == datetime(2026, 11, 11, 6, 30, tzinfo=UTC)
    made.check_replay()


def test_more_than_one_event_can_pass_over_is_counted_to_the_last() -> None:
    made = driver("2026-11-01T00:00", schedule("* * * * *", "UTC", catch_up=2))
    away_until(made, "2026-11-11T00:00")
    assert (plan(made).started, plan(made).missed) == (2, 10 * 1440 - 2)
    assert started(made) == ["20261110T235900Z", "20261111T000000Z"]
    assert len(made.log) < 30


def test_how_late_an_occurrence_was_is_on_the_log() -> None:
    made = driver("2026-11-01T00:00", schedule())
    away_until(made, "2026-11-01T05:31")
    assert plan(made).late_ms == 60_000


# what is declared anew


def test_another_rule_counts_from_now_on() -> None:
    made = driver("2026-10-31T12:00", schedule())
    redeclared(made, schedule("0 12 * * *", "UTC"))
    assert plan(made).next == datetime(2026, 11, 1, 12, tzinfo=UTC)
    wait_until(made, "2026-11-01T13:00")
    assert started(made) == ["20261101T120000Z"]


def test_what_was_due_under_the_rule_of_before_is_started_first() -> None:
    made = driver("2026-10-31T12:00", schedule())
    made.now_ms = at("2026-11-01T11:00")
    redeclared(made, schedule("0 12 * * *", "UTC"))
    wait_until(made, "2026-11-01T13:00")
    assert started(made) == ["20261101T053000Z", "20261101T120000Z"]


def test_a_pause_starts_nothing_and_its_end_makes_nothing_good() -> None:
    made = driver("2026-10-31T12:00", schedule())
    redeclared(made, schedule(paused=True))
    assert (made.status("close"), plan(made).next) == (RunStatus.PAUSED, None)
    wait_until(made, "2026-11-05T12:00")
    redeclared(made, schedule())
    wait_until(made, "2026-11-06T12:00")
    assert started(made) == ["20261106T063000Z"]
    assert plan(made).missed == 0


def test_what_is_declared_no_more_is_not_started() -> None:
    made = driver("2026-10-31T12:00", schedule())
    redeclared(made)
    wait_until(made, "2026-11-05T12:00")
    assert (started(made), made.state("close")) == ([], "undeclared")
    redeclared(made, schedule())  # days later: from now on
    assert plan(made).next == datetime(2026, 11, 6, 6, 30, tzinfo=UTC)


def test_what_a_release_did_not_know_for_minutes_is_made_good() -> None:
    made = driver("2026-10-31T12:00", schedule())
    redeclared(made)
    wait_until(made, "2026-11-01T05:40")
    assert made.state("close") == "undeclared"
    redeclared(made, schedule())
    wait_until(made, "2026-11-01T05:41")
    assert started(made) == ["20261101T053000Z"]


def test_a_schedule_that_was_terminated_starts_nothing_any_more() -> None:
    made = driver("2026-10-31T12:00", schedule())
    made.terminate("close")
    assert made.announce()[0].verdict is Verdict.LATE
    wait_until(made, "2026-11-05T12:00")
    assert started(made) == []


def test_declarations_are_no_part_of_a_version() -> None:
    one, other = workflow(schedule()), workflow(schedule("0 0 * * *", "UTC", catch_up=5))
    assert one.latest.fingerprint == other.latest.fingerprint
    assert workflow().latest.to_json() == one.latest.to_json()


def test_the_graph_of_all_schedules_is_version_1() -> None:
    """Golden: with another graph, schedules that stand would be refused after an upgrade."""
    (definition,) = workflow().versions.values()
    assert definition.version == 1
    assert (
        definition.fingerprint == "a4e00d371426e536a2c48d9b90ef2749f0266ffb96df64d838a3c066ec10f05e"
    )


def test_what_is_started_must_have_a_topic() -> None:
    assert others(workflow(schedule())) == {"closing"}


def test_a_workflow_that_is_named_twice_is_built_once() -> None:
    made = Schedules("nightly", schedule(), tenant="acme")
    assert made.build() is made.build()


def test_an_event_that_cannot_be_made_is_told_and_tried_again() -> None:
    broken = True

    def sometimes(due: datetime) -> DayEnded:
        if broken and due.year > 2024:
            raise ValueError("no rate for that day")
        return ended(due)

    made = driver("2026-10-31T12:00", Schedule("close", DAILY, NEW_YORK, "closing", sometimes))
    wait_until(made, "2026-11-01T06:00")
    assert (made.state("close"), made.status("close")) == ("failing", RunStatus.RETRYING)
    assert "ValueError: no rate for that day" in plan(made).problem
    assert started(made) == []
    broken = False
    made.pass_time(timedelta(minutes=2))
    assert (started(made), plan(made).problem) == (["20261101T053000Z"], "")
    made.check_replay()


def test_rules_of_a_zone_that_are_gone_hold_up_a_schedule_until_they_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = driver("2026-10-31T12:00", schedule())

    def gone(zone: str) -> ZoneInfo:
        raise OSError(f"no file for {zone}")

    monkeypatch.setattr(calendar, "ZoneInfo", gone)
    wait_until(made, "2026-11-01T06:00")
    assert made.state("close") == "failing"
    assert "its rule has no next one: OSError: no file for America/New_York" in plan(made).problem
    monkeypatch.undo()
    made.pass_time(timedelta(minutes=2))
    assert started(made) == ["20261101T053000Z"]


def test_a_declaration_says_nothing_to_another_workflow() -> None:
    made = Driver(closing(), tenant="acme")
    fact = scheduled(schedule(), at("2026-10-31T12:00"))
    step = made.send("close", (SCHEDULE.name, SCHEDULE.encode(fact)))
    assert (step.verdict, step.instance) == (Verdict.REFUSED, None)


# what is wrong is said when it is built


def nothing(_: datetime) -> None:
    return None


@pytest.mark.parametrize(
    ("wrong", "what", "cure"),
    [
        (schedule("@daily"), "cron '@daily' has not five fields", "Write it as in"),
        (schedule("61 * * * *"), "cron '61 * * * *' cannot be read: Bad minute", "Write it"),
        (schedule("0 0 30 2 *"), "cannot be read: Bad day-of-month", "Write it"),
        (schedule(zone="Mars/Base"), "zone 'Mars/Base' is not known here", "'Europe/Berlin'"),
        (schedule(zone="../etc"), "zone '../etc' is not known here", "IANA"),
        (schedule(catch_up=0), "catch_up=0 is out of range", "`within`"),
        (schedule(within=timedelta(0)), "is no time", "above zero"),
        (Schedule("", DAILY, "UTC", "closing", ended), "its id is empty", "another id"),
        (Schedule("i" * 112, DAILY, "UTC", "closing", ended), "longer than 111 bytes", "time"),
        (Schedule("close", DAILY, "UTC", "a b", ended), "start 'a b' does not match", "workflow"),
        (Schedule("close", DAILY, "UTC", "closing", nothing), "cannot be made", "any datetime"),
    ],
)
def test_what_is_wrong_is_told_with_a_cure(wrong: Schedule, what: str, cure: str) -> None:
    with pytest.raises(DefinitionError) as failure:
        workflow(wrong)
    assert failure.value.code is Code.DEFINITION_INVALID
    assert what in failure.value.what
    assert cure in failure.value.cure


def test_two_schedules_of_one_id_are_refused() -> None:
    with pytest.raises(DefinitionError, match="declared twice"):
        workflow(schedule(), schedule("0 0 * * *"))
