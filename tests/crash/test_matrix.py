"""The crash matrix: kill or pause a worker at every outside call; nothing is lost or done twice.

Law: the outcome (commands by key, states, markers, verdicts, rows, decisions) equals that of a
run that nobody disturbed. `REFOLD_CHAOS=n` runs every boundary n times at random calls.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.crash.scene import Outcome, Scene, scene

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
        run.publish()
        first = run.worker(plan)
        if plan.how == "kill":
            run.until(lambda: first.poll() is not None or _folded(run), "the planned end")
            if first.poll() is None:
                run.stop(first)
            second = run.worker()
            run.until_folded()
        else:
            run.until(lambda: _paused(first.pid) or _folded(run), "the planned pause")
            second = run.worker()
            run.until_folded()
            first.send_signal(signal.SIGCONT)
            run.stop(first)
        run.stop(second)

        assert run.outcome() == undisturbed, run.logs()


def _folded(run: Scene) -> bool:
    return run._markers() == run._ends()


def _paused(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_plan_names_calls_that_a_worker_makes(unique: Callable[[str], str]) -> None:
    assert len({name_of(plan) for plan in plans()}) >= 4 * len(CALLS)
