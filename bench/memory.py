"""Memory of a live instance above its own context: the slope of resident memory over instances."""

import json
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bench import product, workload
from bench.limits import wire
from bench.processes import module, running
from bench.servers import Servers

STEPS = 3
"""The first step fills buffers and caches; the slope is taken over the others."""
SETTLE_S = 20.0


class Memory(NamedTuple):
    """Bytes of each live instance."""

    above_bytes: float
    """What refold holds beside the context."""
    context_bytes: float
    fault: str = ""


def measure(servers: Servers, instances: int, logs: Path) -> Memory:
    """Folds `instances` more at each step and reads the worker's resident memory after it."""
    workload.renew(servers.bootstrap, wire.EVENTS)
    sizes = []
    with (
        product.fresh(servers, "w1") as deployment,
        deployment.worker(logs / "memory", {"rows": "false"}) as worker,
    ):
        events = wire.events(STEPS * instances, moved_on=False)
        for step in range(1, STEPS + 1):
            workload.write(servers.bootstrap, wire.EVENTS, islice(events, instances))
            fault = worker.until_folded(step * instances, 120.0)
            if fault:
                return Memory(0.0, 0.0, fault)
            sizes.append(_settled(worker))
        worker.stop()
    slope = (sizes[-1] - sizes[0]) / ((STEPS - 1) * instances)
    own = _context_bytes(instances, logs)
    return Memory(slope - own, own)


def _settled(worker: product.Worker) -> int:
    """Resident bytes once two readings in a row agree within 1 %."""
    last, deadline = 0, time.monotonic() + SETTLE_S
    while True:
        time.sleep(1.0)
        size = worker.process.rss_bytes()
        if abs(size - last) < size // 100 or time.monotonic() > deadline:
            return size
        last = size


def _context_bytes(count: int, logs: Path) -> float:
    command = module("bench.limits.footprint", "--count", str(count))
    with running(command, logs / "footprint") as process:
        ended = process.wait(60.0)
    return float(json.loads(ended.output)["context_bytes"])
