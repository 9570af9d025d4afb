"""Timers of one worker: what they cost while they wait, and how late they ring.

A hundred thousand instances wait; for a while nothing is due, and the worker's processor time is
read. Then a thousand a second come due, and a separate `read_committed` reader notes when it sees
the command that each one causes: from when it was due, so the whole way is in it.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
from confluent_kafka.admin import AdminClient

from bench import latency
from bench.processes import Process, running
from bench.product import REFOLD
from bench.servers import Servers
from bench.waits import Asked
from refold.snapshots.migrate import migrate
from refold.topics.publisher import Draft, Publisher
from refold.topics.settings import load_settings
from refold.topics.specs import commands_topic, create, workflow_specs

PARTITIONS = 4
RATE = 1_000
"""Timers due in a second."""
FAR_S = 30 * 86_400
LEAD_S = 8.0
"""From the last record to the first timer that is due: the reader stands, the rest is over."""
SAVED_S = 40.0
"""A worker saves every 30 s: the rest begins when it has nothing left to do."""
STEP_TIMEOUT_S = 120.0
SEEN_S = 2.0


class Timers(NamedTuple):
    """One run."""

    empty_percent: float
    """Processor time of the worker before anything waits, in percent of a core."""
    rest_percent: float
    """The same while everything waits and nothing is due."""
    p50_ms: float
    p99_ms: float
    """From due to the command seen."""
    fault: str = ""


def measure(servers: Servers, armed: int, seconds: int, rest_s: float, logs: Path) -> Timers:
    """One worker with its default settings.

    Args:
        servers: Where.
        armed: Timers that wait.
        seconds: For so long `RATE` a second of them come due.
        rest_s: How long processor time is read.
        logs: Folder of the processes' outputs.
    """
    with (
        _place(servers) as environment,
        running([REFOLD, "worker", "bench.waits:waits"], logs / "timers", environment) as worker,
    ):
        time.sleep(5.0)
        empty = _percent(worker, rest_s)
        due = int((time.time() + SAVED_S + armed / 8_000 + rest_s + 2 * LEAD_S) * 1000)
        ringing = RATE * seconds
        closes = [due + number * 1000 // RATE for number in range(ringing)]
        closes += [due + FAR_S * 1000 + number for number in range(armed - ringing)]
        _publish(environment, closes)
        if not _until_saved(environment["REFOLD_POSTGRES_DSN"], armed, worker):
            return Timers(empty, 0.0, 0.0, 0.0, f"not saved: {worker.last_words()}")
        time.sleep(LEAD_S)
        rest = _percent(worker, rest_s)
        topic = commands_topic(environment["REFOLD_NAMESPACE"], "waits")
        with latency.watching(servers.bootstrap, topic, logs / "watch") as reader:
            spare_s = due / 1000 - time.time()
            time.sleep(max(0.0, spare_s) + seconds + SEEN_S)
            seen = latency.seen_by(reader)
    offset_ms = time.time() * 1000 - time.monotonic_ns() / 1e6
    late = [at / 1e6 + offset_ms - closes[int(instance)] for instance, _, at in seen]
    p50, p99 = (latency.percentile(late, part) for part in (0.50, 0.99))
    fault = f"{len(seen)} commands seen of {ringing}" if len(seen) != ringing else ""
    if spare_s < 0:
        fault = f"{-spare_s:.1f} s too late for the first timer"
    return Timers(empty, rest, p50, p99, fault)


def _percent(worker: Process, seconds: float) -> float:
    """Processor time of all threads over a while, in percent of a core."""
    process = psutil.Process(worker.pid)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, passed = process.cpu_times(), time.monotonic() - began
    spent = after.user + after.system - before.user - before.system
    return 100 * spent / passed


@contextmanager
def _place(servers: Servers) -> Iterator[Mapping[str, str]]:
    namespace, database = f"timers-{uuid.uuid4().hex[:8]}", servers.new_database()
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    specs = workflow_specs(namespace, "waits", ["waits"], PARTITIONS)
    create(admin, specs)
    migrate(database)
    try:
        yield {
            "REFOLD_NAMESPACE": namespace,
            "REFOLD_KAFKA_BOOTSTRAP": servers.bootstrap,
            "REFOLD_POSTGRES_DSN": database,
        }
    finally:
        for done in admin.delete_topics([each.name for each in specs]).values():
            done.exception(30)
        servers.drop_database(database)


def _publish(environment: Mapping[str, str], closes: list[int]) -> None:
    settings = load_settings(
        namespace=environment["REFOLD_NAMESPACE"],
        kafka={"bootstrap": environment["REFOLD_KAFKA_BOOTSTRAP"]},
    )
    with Publisher(settings, "waits", "/bench", tenant="acme") as sender:
        drafts = (
            Draft(instance=str(number), event=Asked(close), id=f"a-{number}")
            for number, close in enumerate(closes)
        )
        for _ in sender.send_many(drafts):
            pass


def _until_saved(dsn: str, records: int, worker: Process) -> bool:
    deadline = time.monotonic() + STEP_TIMEOUT_S
    text = "SELECT coalesce(sum(least(marker, rows_to)), 0)::bigint FROM refold.workflow_partition"
    with psycopg.connect(dsn, autocommit=True) as connection:
        while time.monotonic() < deadline and worker.is_running():
            found = connection.execute(text.encode()).fetchone()
            if found is not None and int(found[0]) >= records:
                return True
            time.sleep(0.2)
    return False
