"""Whatever clocks and owners do: each occurrence of a rule is started once or counted as missed."""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import takewhile
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.processors.test_schedules import at, driver, plan, redeclared, schedule, started

from refold.processors.calendar import Slot, slots
from refold.processors.instance import Timer
from refold.processors.schedules import instance_id
from refold.testing.driver import Driver

RULES: Final = (
    ("30 1 * * *", "America/New_York"),
    ("30 2 * * *", "America/New_York"),
    ("0,30 1-2 * * *", "America/New_York"),
    ("*/20 * * * *", "America/New_York"),
    ("15 * * * *", "Australia/Lord_Howe"),
    ("10 2 * * SAT,SUN", "Europe/Berlin"),
    ("0 0 L * *", "UTC"),
)
BEGINS: Final = ("2026-03-07T05:00", "2026-03-28T22:00", "2026-10-24T22:00", "2026-10-31T22:00")
"""Nights before the clocks change."""


@dataclass
class World:
    """A schedule, and the timers that it ever had."""

    made: Driver
    catch_up: int
    rule: tuple[str, str]
    timers: dict[str, Timer] = field(default_factory=dict)

    def see(self) -> None:
        self.timers |= {one.id: one for one in self.made.instance("close").more.timers}

    def do(self, act: str, minutes: int) -> None:
        if act == "pass":
            self.made.pass_time(timedelta(minutes=minutes))
        elif act == "away":
            self.made.now_ms += minutes * 60_000
        elif act == "back":
            self.made.now_ms -= minutes * 60_000
        elif act == "owner":
            redeclared(self.made, schedule(*self.rule, catch_up=self.catch_up))
        elif act == "crash":
            self.made.kill_and_recover()
        else:  # another owner believes that all these are due still
            for one in self.timers.values():
                if one not in self.made.instance("close").more.timers:
                    self.made.ring("close", one)
        self.see()


ACTS: Final = st.tuples(
    st.sampled_from(("pass", "pass", "away", "back", "owner", "crash", "zombie")),
    st.integers(1, 4_000),
)


@settings(max_examples=150, deadline=None)
@given(
    rule=st.sampled_from(RULES),
    begin=st.sampled_from(BEGINS),
    catch_up=st.integers(1, 4),
    acts=st.lists(ACTS, max_size=12),
)
def test_each_occurrence_is_started_once_or_missed(
    rule: tuple[str, str], begin: str, catch_up: int, acts: list[tuple[str, int]]
) -> None:
    world = World(driver(begin, schedule(*rule, catch_up=catch_up)), catch_up, rule)
    world.see()
    for act, minutes in acts:
        world.do(act, minutes)
    made, known = world.made, plan(world.made)
    passed = list(takewhile(lambda one: one.ms < known.next_ms, slots(*rule, Slot(at(begin), ""))))
    names = [instance_id("close", one.ms).removeprefix("close-") for one in passed]
    assert started(made) == sorted(set(started(made)))
    assert set(started(made)) <= set(names)
    assert len(names) == known.started + known.missed
    assert known.started == len(started(made))
    made.check_replay()
    made.check_counts()
