"""The crash matrix: kill or pause a worker at every outside call; nothing is lost or done twice.

Law: the outcome (commands by key, states, markers, verdicts, rows, decisions) equals that of a
run that nobody disturbed. `REFOLD_CHAOS=n` runs every boundary n times at random calls.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.crash.scene import Outcome, scene

from refold.testing.boundary import Plan
from refold.testing.servers import Kafka

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

CALLS = {
    "consumer.consume": 12,
    "producer.begin_transaction": 3,
    "producer.produce": 70,
    "producer.send_offsets_to_transaction": 3,
    "producer.commit_transaction": 3,
    "store.claim": 1,
    "store.load": 1,
    "store.flush": 2,
    "store.save": 2,
}
"""Outside calls and the n-th time at which the plain run ends there."""
SEED = int(os.environ.get("REFOLD_SEED", "20261129"))
REPEATS = int(os.environ.get("REFOLD_CHAOS", "0"))


def plans() -> Iterator[Plan]:
    """Each boundary once; under chaos also repeats at seeded random calls."""
    random = Random(SEED)
    for call, nth in CALLS.items():
        for side in ("before", "after"):
            for how in ("kill", "pause"):
                yield Plan(call, nth, side, how)
                for _ in range(REPEATS):
                    yield Plan(call, random.randint(1, 2 * nth), side, how)


def name_of(plan: Plan) -> str:
    return f"{plan.how}-{plan.side}-{plan.call}-{plan.nth}"


@pytest.mark.parametrize("plan", list(plans()), ids=name_of)
def test_a_worker_that_ends_anywhere_loses_nothing_and_does_nothing_twice(
    plan: Plan, undisturbed: Outcome, kafka: Kafka, database: str
) -> None:
    print(f"REFOLD_SEED={SEED}")
    with scene(kafka.bootstrap, database) as run:
        run.publish(0.0, 0.5)
        if plan.call == "store.load":  # a worker that began with the log holds every instance
            before = run.worker()
            run.until_folded()
            run.stop(before)
        first = run.worker(plan)
        run.publish(0.5, 1.0)
        ended = _paused if plan.how == "pause" else _killed
        run.until(lambda: ended(first), f"the planned end {plan}")
        second = run.worker()
        run.until_folded()
        if plan.how == "pause":
            first.send_signal(signal.SIGCONT)
            run.stop(first)
        run.stop(second)

        assert run.outcome() == undisturbed, run.logs()


def _killed(child: subprocess.Popen[bytes]) -> bool:
    return child.poll() is not None


def _paused(child: subprocess.Popen[bytes]) -> bool:
    state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def test_a_plan_names_calls_that_a_worker_makes(unique: Callable[[str], str]) -> None:
    assert len({name_of(plan) for plan in plans()}) >= 4 * len(CALLS)
