"""Event sent → command seen by a separate `read_committed` reader, at a low and steady rate."""

import json
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import product, workload
from bench.limits import wire
from bench.openloop import OpenLoop
from bench.processes import Process, module, running
from bench.servers import Servers

RATE = 100.0
"""Events a second."""
WARM_UP = 300
"""Events before those that count."""


class Latency(NamedTuple):
    """Percentiles in milliseconds over the events that were seen."""

    p50_ms: float
    p99_ms: float
    seen: int
    fault: str = ""


@contextmanager
def watching(bootstrap: str, topic: str, log: Path) -> Iterator[Process]:
    """A reader process at the end of a topic, for the length of a block."""
    command = module("bench.watch", "--bootstrap", bootstrap, "--topic", topic)
    with running(command, log) as process:
        deadline = time.monotonic() + 30
        while "ready" not in log.with_suffix(".out").read_text():
            if not process.is_running() or time.monotonic() > deadline:
                raise RuntimeError(f"the reader did not start: {process.last_words()}")
            time.sleep(0.05)
        yield process


def seen_by(process: Process) -> list[tuple[str, int, int]]:
    """Ends a reader; returns [instance, partition, monotonic nanoseconds] of what it saw."""
    process.signal(signal.SIGTERM)
    ended = process.wait(30)
    found: list[tuple[str, int, int]] = json.loads(ended.output.splitlines()[-1])
    return found


def of_product(servers: Servers, events: int, logs: Path) -> Latency:
    """Latency of one worker with its default settings."""
    workload.renew(servers.bootstrap, wire.EVENTS)
    with (
        product.fresh(servers, "w1") as deployment,
        deployment.worker(logs / "latency", {}) as worker,
    ):
        loop = _warm(servers)
        fault = worker.until_folded(WARM_UP, 60.0)
        if fault:
            return Latency(0.0, 0.0, 0, fault)
        found = _measure(servers, loop, wire.COMMANDS, events, logs)
        worker.stop()
    return found


def of_plain_loop(servers: Servers, events: int, logs: Path) -> Latency:
    """Latency of the plain bare loop, the limit of this figure."""
    workload.renew(servers.bootstrap, wire.EVENTS)
    name = f"bench-{uuid.uuid4().hex[:8]}"
    workload.create(servers.bootstrap, name)
    command = module(
        "bench.limits.plain",
        *("--bootstrap", servers.bootstrap, "--events", wire.EVENTS, "--commands", name),
        *("--name", name, "--count", str(WARM_UP + events)),
    )
    with running(command, logs / "latency-plain"):
        found = _measure(servers, _warm(servers), name, events, logs)
    workload.delete(servers.bootstrap, name)
    return found


def _warm(servers: Servers) -> OpenLoop:
    """A sender that is connected: its first event would wait 0.3 s for that, and others behind."""
    loop = OpenLoop(servers.bootstrap, wire.EVENTS, 0, RATE)
    loop.run(WARM_UP)
    loop.due_ns.clear()
    return loop


def _measure(servers: Servers, loop: OpenLoop, commands: str, count: int, logs: Path) -> Latency:
    with watching(servers.bootstrap, commands, logs / "watch") as reader:
        loop.run(count)
        time.sleep(1.0)
        seen = seen_by(reader)
    waits = [
        (at - loop.due_ns[instance]) / 1e6 for instance, _, at in seen if instance in loop.due_ns
    ]
    fault = "" if len(waits) == count else f"{len(waits)} commands seen of {count}"
    return Latency(percentile(waits, 0.50), percentile(waits, 0.99), len(waits), fault)


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of all lie, nearest rank; 0 where there are none."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]
