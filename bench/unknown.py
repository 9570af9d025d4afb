"""How soon unknown outcomes are settled when the other side answers again.

Many calls end in a dead line; the other side stays away for longer than it takes to show what it
did (`visible_after`), so that how long the executor waits between its questions counts. Then it
answers, and the ledger's rows say when each outcome was settled.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from bench import w2_runs, workload
from bench.limits import w2_wire, wire
from bench.outage import CALL_S, DEADLINE_S, VISIBLE_AFTER_S
from bench.processes import Process, running
from bench.product import REFOLD
from bench.servers import Servers
from refold.executors.migrate import migrate_ledger

TIMEOUT_S = 90.0
UNKNOWN = b"SELECT key FROM refold_ledger.workflow_action WHERE status = 'unknown'"
SETTLED = (
    b"SELECT extract(epoch FROM recorded)::float8 FROM refold_ledger.workflow_action"
    b" WHERE key = ANY (%s) AND status IN ('succeeded', 'failed')"
)


class Settling(NamedTuple):
    """One run."""

    p50_s: float
    last_s: float
    """From when the other side answers again to when the last outcome was settled."""
    unknown: int
    fault: str = ""


def measure(servers: Servers, actions: int, away_s: float, logs: Path) -> Settling:
    """One executor with its default settings.

    Args:
        servers: Where.
        actions: Calls whose answers are lost.
        away_s: So long the other side says nothing.
        logs: Folder of the processes' outputs.
    """
    up = logs / "outside-is-up"
    up.unlink(missing_ok=True)
    with w2_runs.place(servers) as (namespace, dsn):
        migrate_ledger(dsn)
        environment = {
            "REFOLD_NAMESPACE": namespace,
            "REFOLD_KAFKA_BOOTSTRAP": servers.bootstrap,
            "REFOLD_POSTGRES_DSN": dsn,
            "BENCH_OUTSIDE": str(up),
        }
        command = [REFOLD, "executor", "bench.outage:executor"]
        with running(command, logs / "unknown", environment) as process:
            _send(servers, namespace, actions)
            return _measured(dsn, actions, max(away_s, DEADLINE_S + VISIBLE_AFTER_S), up, process)


def _send(servers: Servers, namespace: str, actions: int) -> None:
    writer = workload.Writer(servers.bootstrap, w2_wire.commands_topic(namespace))
    now_ms = time.time_ns() // 1_000_000
    for number in range(actions):
        instance = f"w2-{number:07d}"
        key = next(w2_wire.expected_keys(instance))
        event = w2_wire.begun(number)
        value = {"customer": event["customer"], "item": event["item"], "step": 1}
        headers = w2_wire.command_headers(namespace, key, "Do", "s1", now_ms)
        writer.put(instance, wire.encode(w2_wire.DO, value), headers)
    writer.flush()


def _measured(dsn: str, actions: int, away_s: float, up: Path, process: Process) -> Settling:
    with psycopg.connect(dsn, autocommit=True) as connection:
        keys = _until(lambda: connection.execute(UNKNOWN).fetchall(), actions // 2, CALL_S)
        time.sleep(away_s)
        keys = connection.execute(UNKNOWN).fetchall()
        since_s = time.time()
        up.touch()
        names = [row[0] for row in keys]
        rows = _until(lambda: connection.execute(SETTLED, [names]).fetchall(), len(keys), 0.1)
    if not process.is_running():
        return Settling(0.0, 0.0, len(keys), f"ended: {process.last_words()}")
    waits = sorted(row[0] - since_s for row in rows)
    if not keys or len(waits) < len(keys):
        return Settling(0.0, TIMEOUT_S, len(keys), f"{len(waits)} settled of {len(keys)}")
    return Settling(waits[len(waits) // 2], waits[-1], len(keys))


def _until(look: Any, count: int, pause_s: float) -> Sequence[tuple[Any, ...]]:
    """What `look` finds, as soon as it is so much; what there is when the patience is over."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found: Sequence[tuple[Any, ...]] = look()
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(pause_s)
