"""A run of many trips, with workers, executors and the world itself killed in the middle of it.

Executors are killed and not paused: one that stands still between its last check and its send, for
longer than that call's lease, may act late, and only another side that knows keys excludes that
(P31).
"""

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import msgspec
from tests.kafka.worker.stage import PATIENCE_S, Given, Stage

from refold.examples.travel.graph import Paid, TripCancelled, TripOrdered
from refold.executors.ledger import Ledger
from refold.executors.migrate import migrate_ledger
from refold.executors.outcome import Done
from refold.processors.keys import COMPENSATE, compensate_key
from refold.testing.journal import Effect
from refold.testing.world import Manners
from refold.testing.world_server import RemoteWorld, WorldServer
from refold.topics.specs import create, workflow_specs

WORKFLOW = "refold.examples.travel:trip"
EXECUTOR = "refold.examples.travel.executor:travel"
PARTITIONS = 4
EACH = 2
"""Worker processes, and executor processes."""
STALLED_S = 240.0
"""A run that ends no trip for so long has failed."""
ENDS = ("booked", "undone")
PAUSED, PAUSE_S = 0.3, 2.0
"""Share of hit workers that are paused instead, for longer than their session lasts."""
CANCELLED = 10
"""One of so many trips is cancelled by its traveller."""
BAD = Manners(
    declines=0.05,
    declinable=("book", "pay"),
    busy=0.02,
    unreached=0.03,
    drops=0.05,
    delay_s=(0.0, 0.05),
    late=0.005,
    late_s=3.0,
    visible_after_s=0.5,
    cannot_tell=0.1,
)
WORLD = {
    "hotel": BAD,
    "flight": msgspec.structs.replace(BAD, keys="repeat"),
    "bank": msgspec.structs.replace(BAD, accepts=0.3, answers_after_s=0.3, twice=0.3),
}
UNHEARD = 0.2
"""Share of the bank's later answers that nobody hears: they are asked for."""


@dataclass(slots=True)
class Kill:
    """One kill or pause: what, and how far the run was."""

    who: str
    at_s: float
    ended: int
    requests: int
    how: str = "killed"


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    seed: int
    trips: int
    kills: list[Kill] = field(default_factory=list)
    cancels: int = 0
    seconds: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    """By direction and status, as the ledger says."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of calls and questions, as the world says."""
    heard: Counter[str] = field(default_factory=Counter)
    """What later answers of the bank came to."""

    def __str__(self) -> str:
        kinds = Counter(f"{kill.who.partition('-')[0]} {kill.how}" for kill in self.kills)
        lines = [
            f"{self.trips} trips in {self.seconds:.0f} s, seed {self.seed}",
            f"hit: {dict(sorted(kinds.items()))}",
            *(
                f"  {kill.at_s:6.1f} s  {kill.who:<10} {kill.how} after {kill.requests} calls and"
                f" questions, {kill.ended} trips ended"
                for kill in self.kills
            ),
            f"trips: {dict(self.states)}, {self.cancels} times somebody cancelled one",
            f"actions: {dict(sorted(self.actions.items()))}",
            f"calls and questions: {dict(sorted(self.outcomes.items()))}",
            f"later answers: {dict(sorted(self.heard.items()))}",
        ]
        return "\n".join(lines)


class Sagas:
    """The processes of one run.

    Args:
        stage: Kafka, a database, topics.
        world: The outside, in its own process.
        seed: Decides who is killed when.
        trips: How many.
    """

    def __init__(self, stage: Stage, world: WorldServer, seed: int, trips: int) -> None:
        self.stage = stage
        self.world = world
        self.report = Report(seed, trips)
        self._random = Random(seed)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, Path] = {}
        self._paused: dict[str, float] = {}
        """Name of a worker that stands still → when it is woken up."""
        self._begin_s = monotonic()
        migrate_ledger(stage.dsn)
        self._ledger = Ledger(stage.dsn, "callbacks")
        self._bank = RemoteWorld(world.address)
        create(stage.admin, workflow_specs(stage.namespace, "trip", ["travel"], PARTITIONS))

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()

    # processes

    def start_all(self) -> None:
        """Start workers and executors."""
        for number in range(EACH):
            self._start(f"worker-{number}")
            self._start(f"executor-{number}")

    def stop_all(self) -> None:
        """SIGTERM to all of them once they have begun, and clean ends."""
        for name, child in self._running.items():
            self.stage.until(partial(self._has_begun, name), f"{name} to begin")
            child.send_signal(signal.SIGTERM)
            code = child.wait(PATIENCE_S)
            assert code == 0, f"{name} ended with {code}\n{self._logs[name].read_text()[-4000:]}"

    def _has_begun(self, name: str) -> bool:
        return "assigned" in self._logs[name].read_text()

    def _start(self, name: str) -> None:
        kind = name.partition("-")[0]
        what = WORKFLOW if kind == "worker" else EXECUTOR
        self._logs[name] = self.stage.log / f"{name}-{len(self.report.kills)}.log"
        with self._logs[name].open("wb") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "refold.cli.main", kind, what],
                env=self.environment(),
                stdout=log,
                stderr=log,
            )
        self.stage.adopt(self._running[name])

    def environment(self) -> dict[str, str]:
        """Of every process of the run."""
        return self.stage.environment() | {
            "TRAVEL_WORLD": self.world.address,
            "REFOLD_EXECUTOR_SESSION_TIMEOUT_MS": "800",
            "REFOLD_WORKER_BATCH_RECORDS": "200",
        }

    # the run

    def order(self) -> None:
        """Put all trips on the log."""
        trips: list[Given] = [
            (f"t-{number}", f"o-{number}", TripOrdered("Rome", 1 + number % 7, 100 + number))
            for number in range(self.report.trips)
        ]
        self.stage.put(*trips, workflow="trip", tenant="travel")

    def kill_until_all_have_ended(self, kills: int) -> None:
        """Kill somebody now and then, and start a successor, until every trip has ended."""
        expected = self.report.trips * 3
        pace = max(1, expected // (kills + 1))
        due = self._requests() + self._random.randint(1, pace)
        cancels = [self._random.randint(1, expected) for _ in range(self.report.trips // CANCELLED)]
        moved_s, before = monotonic(), -1
        while (ended := self._ended()) < self.report.trips:
            self._check_alive()
            self._resume()
            if ended != before:
                moved_s, before = monotonic(), ended
            if monotonic() - moved_s > STALLED_S:
                raise AssertionError(f"{self.report}\n{self._open()}\n{self.stage.logs()}")
            requests = self._requests()
            self._hear()
            self._cancel(sum(each <= requests for each in cancels) - self.report.cancels)
            if requests >= due and len(self.report.kills) < kills:
                sleep(self._random.uniform(0.0, 0.05))  # into the middle of something
                self._kill(ended, requests)
                due += self._random.randint(1, 2 * pace)
            sleep(0.02)  # polls what other processes do
        for name in self._paused:
            self._running[name].send_signal(signal.SIGCONT)
        self.report.seconds = monotonic() - self._begin_s

    def _kill(self, ended: int, requests: int) -> None:
        name = self._random.choice([*sorted(self._running), "world"])
        at_s = monotonic() - self._begin_s
        self.report.kills.append(Kill(name, at_s, ended, requests))
        if name == "world":
            self.world.kill()
            self.world.start()
            return
        if (
            name.startswith("worker")
            and name not in self._paused
            and self._random.random() < PAUSED
        ):
            self.report.kills[-1].how = "paused"
            self._running[name].send_signal(signal.SIGSTOP)
            self._paused[name] = monotonic() + PAUSE_S
            return
        self._paused.pop(name, None)
        self._running[name].kill()
        self._running[name].wait()
        self._start(name)

    def _resume(self) -> None:
        """Paused workers wake up, and believe that they own what others have taken over."""
        for name, until_s in [*self._paused.items()]:
            if monotonic() >= until_s:
                self._paused.pop(name)
                self._running[name].send_signal(signal.SIGCONT)

    def _cancel(self, times: int) -> None:
        """Travellers change their minds, wherever their trips stand."""
        if times > 0:
            first = self.report.cancels
            self.report.cancels += times
            cancelled: list[Given] = [
                (f"t-{self._random.randrange(self.report.trips)}", f"c-{each}", TripCancelled())
                for each in range(first, first + times)
            ]
            self.stage.put(*cancelled, workflow="trip", tenant="travel")

    def _hear(self) -> None:
        """What a web hook does: the bank's later answers, some twice, some never."""
        for late in self._bank.answers():
            if self._random.random() < UNHEARD:
                continue
            refund = late.key.endswith(COMPENSATE)
            done = Done() if refund else Done(Paid(late.reference))
            heard = self._ledger.answer(done, target="travel", reference=late.reference)
            self.report.heard[str(heard)] += 1

    def _check_alive(self) -> None:
        for name, child in self._running.items():
            assert child.poll() is None, f"{name} ended with {child.poll()}\n{self.stage.logs()}"

    def _ended(self) -> int:
        ((found,),) = self.stage.sql(
            "SELECT count(*) FROM refold.workflow_instance WHERE state = ANY(%s)", list(ENDS)
        )
        return int(found)

    def _open(self) -> list[Any]:
        return [
            *self.stage.sql(
                "SELECT instance_id, state FROM refold.workflow_instance WHERE state <> ALL(%s)",
                list(ENDS),
            ),
            *self.unsettled(),
        ]

    def _requests(self) -> int:
        return self.world.journal.count()

    # what came out

    def unsettled(self) -> list[Any]:
        """Rows of the ledger whose outcome is open."""
        return self.stage.sql(
            "SELECT key, status, reason FROM refold_ledger.workflow_action"
            " WHERE status IN ('planned', 'in_flight', 'unknown')"
        )

    def check(self) -> None:
        """Hold the world's journal, the ledger and the trips against each other."""
        effects = self.world.journal.effects()
        statuses = dict(self.stage.sql("SELECT key, status FROM refold_ledger.workflow_action"))
        states = self.stage.states("trip")
        self.report.states.update(states.values())
        self.report.actions.update(
            f"{key.rpartition(':')[2]} {status}" for key, status in statuses.items()
        )
        self.report.outcomes.update(
            f"{one.kind} {one.outcome}" for one in self.world.journal.requests()
        )
        doubles = self.world.journal.doubles()
        assert doubles == {}, f"done twice: {doubles}"
        assert len(states) == self.report.trips
        _check_trips(effects, states)
        _check_ledger(effects, statuses)

    def verify(self) -> list[dict[str, Any]]:
        """What `refold verify` says of each partition, in a process with another hash seed."""
        done = subprocess.run(
            [sys.executable, "-m", "refold.cli.main", "verify", WORKFLOW, "--json"],
            env=self.environment() | {"PYTHONHASHSEED": str(self.report.seed % 1000)},
            capture_output=True,
            check=False,
        )
        assert done.stdout, done.stderr.decode()
        return msgspec.json.decode(done.stdout, type=list[dict[str, Any]])


def _check_trips(effects: list[Effect], states: Mapping[str, str]) -> None:
    """A trip stands whole or not at all; what was undone was undone from the last one on."""
    stands: dict[str, list[str]] = defaultdict(list)
    for effect in effects:
        trip = str(effect.request["trip"])
        if effect.action in ("book", "pay"):
            stands[trip].append(effect.key)
        else:
            assert compensate_key(stands[trip].pop()) == effect.key, f"{trip}: {effect}"
    for trip, state in states.items():
        wanted = {"booked": 3, "undone": 0}[state]
        assert len(stands[trip]) == wanted, f"{trip} is {state}: {stands[trip]}"


def _check_ledger(effects: list[Effect], statuses: Mapping[str, str]) -> None:
    """What the ledger calls done was done, and the other way round; nothing is left open."""
    done = {effect.key for effect in effects}
    succeeded = {key for key, status in statuses.items() if status == "succeeded"}
    assert done <= succeeded, f"done, and not known to be: {sorted(done - succeeded)[:5]}"
    for key in succeeded - done:
        body, _, direction = key.rpartition(":")
        assert direction == COMPENSATE, f"{key} never happened"
        assert f"{body}:forward" not in done, f"{key} was never undone"
    left = {key: status for key, status in statuses.items() if status not in _SETTLED}
    assert left == {}


_SETTLED = frozenset({"succeeded", "failed", "cancelled"})


@contextmanager
def sagas(stage: Stage, folder: Path, trips: int) -> Iterator[Sagas]:
    """A run whose seed is REFOLD_CHAOS_SEED, or drawn; nothing is left running."""
    seed = int(os.environ.get("REFOLD_CHAOS_SEED") or int.from_bytes(os.urandom(4), "big"))
    with WorldServer(folder / "world.db", seed=seed, systems=WORLD) as world:
        made = Sagas(stage, world, seed, trips)
        try:
            yield made
        finally:
            made.close()
