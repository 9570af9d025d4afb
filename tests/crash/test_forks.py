"""The crash matrix over forks and children: a worker is killed or paused at its outside calls.

Law: each start, each undoing, each answer and each command stands once, and where every instance
ends is as in a run that nobody disturbed. `REFOLD_CHAOS=n`: every boundary, n times.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message
from tests.crash.forks import BOTH, BRANCHES, Looked
from tests.crash.test_children import ended
from tests.crash.test_matrix import CALLS
from tests.kafka.worker.stage import Stage, header, stage
from tests.kafka.worker.test_between_workflows import add
from tests.unit.processors.parcels import Pack, Packed, Placed

from refold.processors.engine_events import FAILED, SUCCEEDED, Failed, Succeeded
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import Answer, Outcome, derived_id
from refold.testing.boundary import Plan
from refold.testing.servers import Kafka, Postgres
from refold.topics.records import event_headers

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

SPEC = "tests.crash.forks:BOTH"
NAMES = [f"o-{number}" for number in range(6)]
PARCELS = 3
"""Of each order; the first one of every third order is lost."""
ENDS = {name: "undone" if number % 3 == 0 else "done" for number, name in enumerate(NAMES)}
SEED = int(os.environ.get("REFOLD_SEED", "20261129"))
REPEATS = int(os.environ.get("REFOLD_CHAOS", "0"))
FEW = (
    Plan("producer.produce", 40, "before", "kill"),
    Plan("producer.commit_transaction", 3, "after", "kill"),
    Plan("producer.commit_transaction", 5, "before", "pause"),
    Plan("store.save", 2, "after", "kill"),
)
"""Those of every run; the others are part of the chaos."""
OWN: Mapping[type, Codec[Any]] = {Succeeded: SUCCEEDED, Failed: FAILED}


def plans() -> Iterator[Plan]:
    yield from FEW
    random = Random(SEED)
    for call, nth in CALLS.items():
        for side in ("before", "after"):
            for how in ("kill", "pause"):
                for _ in range(REPEATS):
                    yield Plan(call, random.randint(1, nth), side, how)


def name_of(plan: Plan) -> str:
    return f"{plan.how}-{plan.side}-{plan.call}-{plan.nth}"


class Left(NamedTuple):
    """What a run left behind, without what depends on the order in which answers came."""

    states: dict[str, dict[str, str]]
    commands: dict[tuple[str, ...], int]
    """(workflow, instance, state, action, direction, value) → how often it was sent."""
    between: dict[tuple[str, ...], int]
    """(workflow, instance, what it is about) → events that one workflow sent to the other."""


@contextmanager
def running(kafka: Kafka, dsn: str) -> Iterator[Stage]:
    with stage(kafka.bootstrap, dsn, 2) as made:
        add(made, "order", "ends")
        add(made, "parcel", "world")
        for name in NAMES:
            parcels = tuple(f"{name}-p{number}" for number in range(PARCELS))
            made.put((name, f"placed-{name}", Placed(parcels)))
        yield made


@pytest.fixture(scope="module")
def calm(kafka: Kafka, postgres: Postgres) -> Iterator[Left]:
    dsn = postgres.new_database()
    with running(kafka, dsn) as run:
        worker, says = run.process(SPEC), world(run)
        run.until(lambda: says() and run.states() == ENDS, "the end of all orders")
        run.stop(worker)
        yield left(run)
    postgres.drop_database(dsn)


@pytest.mark.parametrize("plan", list(plans()), ids=name_of)
def test_forks_join_once_and_children_answer_once_wherever_their_worker_ends(
    plan: Plan, calm: Left, kafka: Kafka, database: str
) -> None:
    print(f"REFOLD_SEED={SEED}")
    with running(kafka, database) as run:
        says = world(run)
        if plan.call == "store.load":  # a worker that began with the log holds every instance
            before = run.process(SPEC)
            run.until(lambda: says() and len(run.states("parcel")) > 0, "the first parcels")
            run.stop(before)
        first = run.process(SPEC, plan, batch_records=8)
        run.until(lambda: says() and ended(first, plan), f"the planned end {plan}")
        second = run.process(SPEC)
        run.until(lambda: says() and run.states() == ENDS, "the end of all orders")
        if plan.how == "pause":
            first.send_signal(signal.SIGCONT)
            run.stop(first)
        run.stop(second)
        assert left(run) == calm, run.logs()


def world(run: Stage) -> Callable[[], bool]:
    """What answers each new command at every call, always the same, and twice."""
    seen: set[str] = set()

    def says() -> bool:
        for command in run.committed("commands", "world"):
            key = header(command, "idempotency-key")
            if key not in seen:
                seen.add(key)
                answer(run, command, key)
                answer(run, command, key)
        return True

    return says


def answer(run: Stage, command: Message, key: str) -> None:
    name, lost = header(command, "ce_type"), False
    fact: Any = Succeeded("done")
    if name == "Look":
        fact = Looked(1)
    elif name == "Pack":
        article = codec_of(Pack).decode(bytes(command.value() or b"")).article
        order, _, number = article.removeprefix("article ").rpartition("-p")
        lost = number == "0" and ENDS[order] == "undone"
        fact = Failed("GONE", "it is lost", False, 0) if lost else Packed(1)
    codec = OWN.get(type(fact)) or codec_of(type(fact))
    outcome = Outcome.FAILED if lost else Outcome.SUCCEEDED
    parts = ("1",) if lost else ()
    headers = event_headers(
        derived_id("result", key, outcome, *parts), "/refold/executor/world", codec.name, "acme",
        answer=Answer(key, 1, outcome),
    )  # fmt: skip
    run.put_raw(command.key(), codec.encode(fact), headers, key.split(":")[2])


def left(run: Stage) -> Left:
    sent = [
        (*_about(header(each, "idempotency-key")), bytes(each.value() or b"").hex())
        for target in ("world", "ends")
        for each in run.committed("commands", target)
    ]
    between = [
        each
        for workflow in ("order", "parcel")
        for each in run.committed("events", workflow)
        if header(each, "ce_source").startswith("/refold/workflow/")
    ]
    assert max(Counter(header(each, "ce_id") for each in between).values()) == 1
    told = Counter(
        (header(each, "ce_source"), bytes(each.key() or b"").decode(), *_about(_key(each)))
        for each in between
    )
    states = {each.name: run.states(each.name) for each in BOTH}
    return Left(states, dict(Counter(sent)), dict(told))


def _key(event: Message) -> str:
    return header(event, "idempotency-key") or header(event, "ce_parentkey")


def _about(key: str) -> tuple[str, ...]:
    """Workflow, instance, state, action and direction of a key; not the event that caused it."""
    parts = key.split(":")
    return (*parts[2:6], parts[-1])


def test_the_matrix_is_about_every_branch_and_every_child(calm: Left) -> None:
    looks = [key for key in calm.commands if key[3].startswith("Look.")]
    starts = [key for key in calm.between if key[0] == "/refold/workflow/order"]
    cancelled = [key for key in starts if key[-1] == "compensate"]
    assert calm.states["order"] == ENDS
    assert len(looks) == len(NAMES) * BRANCHES
    assert len(starts) - len(cancelled) == len(NAMES) * PARCELS
    assert len(cancelled) == 2 * (PARCELS - 1)
    assert set(calm.commands.values()) == set(calm.between.values()) == {1}
