"""A state that forks into two hundred branches and joins them all: how long that takes.

Each branch is a command that the executor carries out through its ledger; the handler does
nothing, so all that is measured is refold's. Instances begin at a steady rate whatever becomes of
them (an open loop, from when each was due), and a separate `read_committed` reader notes when the
command that follows the join is seen. A run in which a branch was sent twice or not at all, or an
instance did not join exactly once, has a fault.
"""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench import readback, w2_runs, workload
from bench.fan import Asked
from bench.latency import percentile, seen_by, watching
from bench.limits import w2_wire, wire
from bench.processes import Process, running
from bench.product import REFOLD
from bench.servers import Servers
from refold.processors.keys import key_of
from refold.schemas.codec import codec_of

BRANCHES = 200
RATE = 2.0
"""Instances that begin in a second: 400 branches, and 400 answers."""
WARM_UP = 10
"""Instances before those that count."""
PATIENCE_S = 60.0
SOURCE = "/bench/starter"


class Fans(NamedTuple):
    """One run."""

    p50_ms: float
    p99_ms: float
    """From when the fork's event was due to when the command behind the join was seen."""
    seen: int
    fault: str = ""


def measure(servers: Servers, instances: int, logs: Path) -> Fans:
    """One worker and one executor with their default settings.

    Args:
        servers: Where.
        instances: So many fork, one after the other, `RATE` a second.
        logs: Folder of the processes' outputs.
    """
    place = w2_runs.place(servers, "fan")
    with place as (namespace, dsn), ExitStack() as stack:
        environment = w2_runs.migrated(servers, namespace, dsn)
        reader = stack.enter_context(watching(servers.bootstrap, _ends(namespace), logs / "watch"))
        both = [
            stack.enter_context(running([REFOLD, *words], logs / f"fan-{words[0]}", environment))
            for words in (("worker", "bench.fan:fan"), ("executor", "bench.fan:executor"))
        ]
        writer = workload.Writer(servers.bootstrap, f"{namespace}.fan.events", linger_ms=0)
        _fork(writer, 0)  # both processes have started when it has joined
        fault = _until_joined(servers, namespace, 1, both)
        due_ns = {} if fault else _paced(writer, WARM_UP + instances)
        fault = fault or _until_joined(servers, namespace, WARM_UP + instances, both)
        seen = seen_by(reader)
        fault = fault or _wrong(servers, namespace, WARM_UP + instances)
    waits = [(at - due_ns[name]) / 1e6 for name, _, at in seen if name in due_ns]
    p50, p99 = (percentile(waits, part) for part in (0.50, 0.99))
    return Fans(p50, p99, len(waits), fault)


def _paced(writer: workload.Writer, count: int) -> dict[str, int]:
    """Forks one after the other; when each one that counts was due, in monotonic nanoseconds."""
    due_ns, began = dict[str, int](), time.monotonic_ns()
    for number in range(1, count):
        due = began + int(number * 1e9 / RATE)
        time.sleep(max(0.0, (due - time.monotonic_ns()) / 1e9))
        name = _fork(writer, number)
        if number >= WARM_UP:
            due_ns[name] = due
    return due_ns


def _fork(writer: workload.Writer, number: int) -> str:
    name = _name(number)
    headers = w2_wire.event_headers(f"{name}-asked", SOURCE, "Asked", time.time_ns() // 1_000_000)
    writer.put(name, codec_of(Asked).encode(Asked(BRANCHES)), headers)
    writer.flush()
    return name


def _name(number: int) -> str:
    return f"fan-{number:05d}"


def _ends(namespace: str) -> str:
    return w2_wire.commands_topic(namespace, w2_wire.ENDS)


def _until_joined(servers: Servers, namespace: str, count: int, both: Sequence[Process]) -> str:
    """Waits for so many joins; returns what went wrong, empty if nothing."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := len(list(readback.messages(servers.bootstrap, _ends(namespace))))) < count:
        for one in both:
            if not one.is_running():
                return f"ended: {one.last_words()}"
        if time.monotonic() > deadline:
            return f"{found} joined of {count}"
        time.sleep(0.2)
    return ""


def _wrong(servers: Servers, namespace: str, count: int) -> str:
    """What is wrong with the commands: each branch of each fork stands once, and each join."""
    where, topics = servers.bootstrap, (w2_wire.commands_topic(namespace, "fan"), _ends(namespace))
    branches, ends = (list(readback.messages(where, topic)) for topic in topics)
    names = [_name(number) for number in range(count)]
    want = Counter(
        key_of(wire.TENANT, "fan", name, "forked", f"Do.{number}", SOURCE, f"{name}-asked").encode()
        for name in names
        for number in range(BRANCHES)
    )
    if Counter(dict(each.headers())["idempotency-key"] for each in branches) != want:
        return f"{len(branches)} branches with wrong keys, expected {want.total()}"
    joined = Counter(each.key().decode() for each in ends)
    return "" if joined == Counter(names) else f"{joined.total()} joins of {count} instances"
