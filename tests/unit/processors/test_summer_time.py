"""B046: a duration is elapsed time, a local time one instant, whatever the clocks do that night."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from refold import ANY, Context, Event, Late, StateGraph
from refold.testing.driver import Driver


class Wanted(Event):
    day: str
    """The day whose local time is waited for, or empty: a day from now."""
    at: str


class Alarm(Context):
    day: str = ""
    at: str = ""


def when(ctx: Alarm) -> timedelta | datetime:
    if not ctx.day:
        return timedelta(hours=24)
    moment = datetime.combine(date.fromisoformat(ctx.day), time.fromisoformat(ctx.at))
    return moment.replace(tzinfo=ZoneInfo("America/New_York"))


def alarm() -> StateGraph[Alarm]:
    made = StateGraph("alarm", version=1, context=Alarm, initial="new", tenant="acme")

    @made.on("new", Wanted, to="waiting")
    def wanted(_: Alarm, event: Wanted) -> Alarm:
        return Alarm(event.day, event.at)

    made.after("waiting", when, to="rung", name="ring")
    made.final("rung", late={ANY: Late.RECORD})
    return made


@pytest.mark.parametrize(
    ("day", "at", "due"),
    [
        ("2026-11-01", "01:30", "2026-11-01T05:30:00+00:00"),  # there twice: the first
        ("2026-11-02", "01:30", "2026-11-02T06:30:00+00:00"),
        ("2026-03-08", "02:30", "2026-03-08T07:30:00+00:00"),  # not there: 03:30 by the clock
        ("2026-03-09", "02:30", "2026-03-09T06:30:00+00:00"),
        ("", "", "2026-02-02T12:00:00+00:00"),
    ],
)
def test_what_is_due_is_an_instant(day: str, at: str, due: str) -> None:
    made = Driver(alarm(), tenant="acme")
    made.now_ms = int(datetime(2026, 2, 1, 12, tzinfo=UTC).timestamp() * 1000)
    made.send("a", Wanted(day, at))
    (timer,) = made.instance("a").more.timers
    assert datetime.fromtimestamp(timer.due_ms / 1000, UTC).isoformat() == due
    made.check_replay()


@pytest.mark.parametrize("before", ["2026-03-07T20:00:00+00:00", "2026-10-31T20:00:00+00:00"])
def test_24_hours_are_24_hours_in_the_night_in_which_the_clocks_change(before: str) -> None:
    made = Driver(alarm(), tenant="acme")
    made.now_ms = int(datetime.fromisoformat(before).timestamp() * 1000)
    made.send("a", Wanted("", ""))
    made.pass_time(timedelta(hours=23, minutes=59))
    assert made.state("a") == "waiting"
    made.pass_time(timedelta(minutes=1))
    assert made.state("a") == "rung"
