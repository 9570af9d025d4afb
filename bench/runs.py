"""One run of W1 each: a bare loop or the product, measured and checked in the same way.

Law of this module: the rate of either side is the number of commands over the time between the
first and the last one (as the records say it), and a run whose keys, values or states are wrong
has the rate zero.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench import product, readback, workload
from bench.limits import clients, neighbour, wire
from bench.processes import ROOT, module, running
from bench.servers import Servers

LOGS = ROOT / "bench" / "results" / "tmp"
RUN_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run."""

    side: str
    rate: float
    """Events per second; zero when the result was wrong."""
    seconds: float
    cpu_us: float
    """CPU of the whole process per event, start-up included, in microseconds."""
    fault: str = ""
    detail: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The run as it stands in a results file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a right run leaves behind."""

    events: int
    keys: str
    values: str
    """Empty where values are not compared."""
    states: str


@cache
def expected(instances: int) -> Expected:
    """What W1 must leave behind, computed from the generator alone."""
    commands = list(wire.expected_commands(instances))
    return Expected(
        events=2 * instances,
        keys=readback.digest(key.encode() for key, _ in commands),
        values=readback.digest(key.encode() + b"\0" + value for key, value in commands),
        states=clients.state_hash(wire.expected_states(instances)),
    )


@cache
def expected_neighbour(instances: int) -> Expected:
    """What the neighbours' loop must leave behind."""
    keys = readback.digest(key.encode() for key in neighbour.expected_keys(instances))
    states = (
        (wire.instance_id(number), "shipping", number % 100_000 + 100)
        for number in range(instances)
    )
    return Expected(2 * instances, keys, "", clients.state_hash(states))


@dataclass(frozen=True, slots=True)
class Bench:
    """What the runs of one session share: servers, size, and the events, written once."""

    servers: Servers
    instances: int

    @property
    def events(self) -> int:
        """Events of one run of W1."""
        return 2 * self.instances

    def prepare(self) -> float:
        """Writes the events of W1; returns the seconds that it took."""
        began = time.perf_counter()
        workload.create(self.servers.bootstrap, wire.EVENTS, neighbour.EVENTS)
        workload.write(self.servers.bootstrap, wire.EVENTS, wire.events(self.instances))
        workload.write_values(
            self.servers.bootstrap, neighbour.EVENTS, neighbour.events(self.instances)
        )
        return time.perf_counter() - began

    @contextmanager
    def topic(self) -> Iterator[str]:
        """A command topic for one run, deleted after it."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        workload.create(self.servers.bootstrap, name)
        try:
            yield name
        finally:
            workload.delete(self.servers.bootstrap, name)

    def limit(self, name: str, *options: str) -> Run:
        """One run of `bench.limits.<name>`: plain, tricks or neighbour; `options` go to it."""
        other = name == "neighbour"
        want = (expected_neighbour if other else expected)(self.instances)
        with self.topic() as commands:
            events = neighbour.EVENTS if other else wire.EVENTS
            line, cpu_s, fault = self._loop(name, events, commands, options)
            sent = readback.read(self.servers.bootstrap, commands)
        fault = fault or _fault(want, sent, line.get("states", ""))
        return _run(name, want.events, sent.seconds, cpu_s=cpu_s, fault=fault, detail=line)

    def replay_limit(self) -> Run:
        """One run of the bare replay loop; its own clock counts, since it sends nothing."""
        want = expected(self.instances)
        line, cpu_s, fault = self._loop("replay", wire.EVENTS, "", ())
        if not fault and line["states"] != want.states:
            fault = "wrong states"
        return _run(
            "replay", want.events, line.get("seconds", 0.0), cpu_s=cpu_s, fault=fault, detail=line
        )

    def replay_product(self, deployment: product.Deployment) -> Run:
        """One silent fold of W1's log by the product; the log must have been folded before."""
        want = expected(self.instances)
        environment = deployment.environment({})
        with running(module("bench.rebuild"), LOGS / "rebuild", environment) as process:
            ended = process.wait(RUN_TIMEOUT_S)
        line = {} if ended.code else json.loads(ended.output)
        fault = f"exit {ended.code}: {ended.error[-300:]}" if ended.code else ""
        if line and (line["events"], line["states"]) != (want.events, want.states):
            fault = f"wrong states, or {line['events']} records of {want.events}"
        seconds = line.get("seconds", 0.0)
        return _run("rebuild", want.events, seconds, cpu_s=ended.cpu_s, fault=fault, detail=line)

    def _loop(
        self, name: str, events: str, commands: str, options: Sequence[str]
    ) -> tuple[dict[str, Any], float, str]:
        command = module(
            f"bench.limits.{name}",
            *("--bootstrap", self.servers.bootstrap, "--events", events),
            *("--commands", commands, "--count", str(self.events)),
            *("--name", f"bench-{uuid.uuid4().hex[:8]}"),
            *options,
        )
        with running(command, LOGS / name) as process:
            ended = process.wait(RUN_TIMEOUT_S)
        if ended.code:
            return {}, ended.cpu_s, f"exit {ended.code}: {ended.error[-300:]}"
        return json.loads(ended.output), ended.cpu_s, ""

    def product(self, style: str = "w1", **settings: str) -> Run:
        """One run of the worker over W1.

        Args:
            style: Module of `bench` that holds the graph: w1, w1_dataclass or w1_pydantic.
            settings: Settings of the worker by name, `rows="true"` and the like.
        """
        want = expected(self.instances)
        drained_s, states = 0.0, ""
        with product.fresh(self.servers, style) as deployment:
            with deployment.worker(LOGS / "product", settings) as worker:
                fault = worker.until_folded(want.events, RUN_TIMEOUT_S)
                if not fault and settings.get("rows") == "true":
                    began = time.monotonic()
                    fault = worker.until_rows_written(want.events, RUN_TIMEOUT_S)
                    drained_s = time.monotonic() - began
                ended = worker.stop()
            fault = fault or ended.fault
            states = "" if fault else deployment.states()
            sent = readback.read(self.servers.bootstrap, wire.COMMANDS)
        fault = fault or _fault(want, sent, states)
        detail = {"settings": settings, "drained_s": drained_s}
        return _run(
            style,
            want.events,
            sent.seconds + drained_s,
            cpu_s=ended.cpu_s,
            fault=fault,
            detail=detail,
        )


def _fault(want: Expected, sent: readback.Commands, states: str) -> str:
    if sent.records != want.events:
        return f"{sent.records} commands, expected {want.events}"
    if sent.keys != want.keys:
        return f"wrong set of keys ({sent.distinct} different)"
    if want.values and sent.values != want.values:
        return "wrong command values"
    return "" if states == want.states else "wrong states"


def _run(
    side: str, events: int, seconds: float, *, cpu_s: float, fault: str, detail: dict[str, Any]
) -> Run:
    rate = events / seconds if seconds and not fault else 0.0
    return Run(side, rate, seconds, cpu_s / events * 1e6, fault, detail)


def clear_logs(folder: Path = LOGS) -> None:
    """Removes the outputs of an earlier session."""
    for path in folder.glob("*"):
        path.unlink()
