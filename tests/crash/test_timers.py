"""Timers when their owner dies, stops or changes: each one's effect once, in due order (P26)."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest
from tests.kafka.worker.stage import Stage, header, stage
from tests.kafka.worker.waits import WAIT, Asked, add_wait, closed, rung

from refold.testing.boundary import Plan
from refold.testing.servers import Kafka

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

SPEC = "tests.kafka.worker.waits:WAIT"
CALLS = {
    "consumer.consume": 4,
    "producer.begin_transaction": 2,
    "producer.produce": 30,
    "producer.send_offsets_to_transaction": 2,
    "producer.commit_transaction": 2,
    "store.due": 1,
    "store.flush": 2,
    "store.save": 2,
}
"""Outside calls of a worker that finds timers due, and the n-th time at which it ends there."""
INSTANCES = 60
STORM = 1_000
"""Instances of a storm: each has two timers."""


def plans() -> Iterator[Plan]:
    for call, nth in CALLS.items():
        for side in ("before", "after"):
            yield Plan(call, nth, side, "kill")
    for call in ("producer.produce", "producer.commit_transaction"):
        for side in ("before", "after"):
            yield Plan(call, CALLS[call], side, "pause")


def name_of(plan: Plan) -> str:
    return f"{plan.how}-{plan.side}-{plan.call}-{plan.nth}"


@pytest.fixture
def two(kafka: Kafka, database: str) -> Iterator[Stage]:
    with stage(kafka.bootstrap, database, 2) as made:
        add_wait(made)
        yield made


def armed(run: Stage, instances: int) -> list[str]:
    """Ask so many, all saved by a worker that ended before anything was due."""
    names = [f"i-{number}" for number in range(instances)]
    due = int(time() * 1000) + 10**7
    run.put(*((each, f"ask-{each}", Asked(due, due + 1)) for each in names), workflow="wait")
    with run.working(WAIT):
        run.until(lambda: sum(run.marks("wait").values()) == instances, "saved")
    return names


def asked_again(run: Stage, names: list[str]) -> None:
    """What is due is due now: the reminder a moment before the end, of all in the same second."""
    due = int(time() * 1000) - 60_000
    run.put(*((each, f"again-{each}", Asked(due, due + 1)) for each in names), workflow="wait")


def check(run: Stage, names: list[str], most: float) -> None:
    """Every timer moved its instance once, in due order, and few events were written for it."""
    assert Counter(run.sent("wait")) == Counter(f"{each}/closed" for each in names)
    texts = run.sql("SELECT DISTINCT context->>'reminders' FROM refold.workflow_instance")
    assert texts == [("1",)], run.logs()
    events = rung(run)
    first: dict[str, list[str]] = {}
    for message, event in events:
        seen = first.setdefault(bytes(message.key() or b"").decode(), [])
        if event.name not in seen:
            seen.append(event.name)
    assert first == {each: ["remind", "close"] for each in names}
    assert len(events) <= most * 2 * len(names), len(events)
    ids = Counter(header(message, "ce_id") for message, _ in events)
    assert max(ids.values()) <= 2


@pytest.mark.parametrize("plan", list(plans()), ids=name_of)
def test_a_worker_that_ends_anywhere_around_its_timers_rings_each_with_one_effect(
    plan: Plan, two: Stage
) -> None:
    names = armed(two, INSTANCES)
    asked_again(two, names)
    first = two.process(SPEC, plan, timer_records=20)
    ended = paused if plan.how == "pause" else killed
    two.until(lambda: ended(first), f"the planned end {plan}")
    second = two.process(SPEC)
    two.until(lambda: closed(two) == INSTANCES, "all closed")
    if plan.how == "pause":
        first.send_signal(signal.SIGCONT)
        two.stop(first)
    two.stop(second)
    check(two, names, most=2.0)


def test_a_rebalance_in_a_storm_of_timers_doubles_no_effect_and_few_events(two: Stage) -> None:
    names = armed(two, STORM)
    asked_again(two, names)
    first = two.process(SPEC, timer_records=5)
    two.until(lambda: closed(two) > 0, "the storm")
    second = two.process(SPEC, timer_records=5)
    two.until(lambda: len(two.owners()) == 2, "two owners")
    first.kill()
    assert closed(two) < STORM
    third = two.process(SPEC)
    two.until(lambda: closed(two) == STORM, "the end of the storm")
    two.until(lambda: "assigned" in (two.log / "worker-2.log").read_text(), "the third")
    two.stop(second)
    two.stop(third)
    check(two, names, most=1.2)


def test_a_worker_stops_cleanly_in_the_middle_of_a_storm(two: Stage) -> None:
    """B044: and what it wrote is not written again by the next one."""
    names = armed(two, STORM)
    asked_again(two, names)
    first = two.process(SPEC, timer_records=20)
    two.until(lambda: closed(two) > 0, "the storm")
    two.stop(first)
    assert closed(two) < STORM
    second = two.process(SPEC)
    two.until(lambda: closed(two) == STORM, "the end of the storm")
    two.stop(second)
    check(two, names, most=1.0)


def killed(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is not None


def paused(child: subprocess.Popen[bytes]) -> bool:
    if not os.path.exists(f"/proc/{child.pid}/stat"):
        return False
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
