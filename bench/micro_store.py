"""What the store costs: wall time and the client's own CPU, against a real PostgreSQL.

    python bench/micro_store.py [DSN]      # default: REFOLD_POSTGRES_DSN; makes and drops a schema

The CPU column is what matters beside a fold: the client shares Python's lock with it.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence

import psycopg

from refold.snapshots.migrate import migrate
from refold.snapshots.model import (
    Cut,
    EventRow,
    Flush,
    InstanceRow,
    PartitionRow,
    Snapshot,
    content_hash,
)
from refold.snapshots.store import PostgresStore

SCHEMA = "refold_bench"
TOPIC = "refold.order.events"
TOPIC_ID = "Zm9sZCB0aGUgbG9nIGFnYWlu"
NOW_MS = 1_796_000_000_000
ROWS = 10_000
EVENTS = 50_000


def measured(what: str, number: int, act: Callable[[], object], turns: int = 7) -> None:
    walls, cpus = [], []
    for _ in range(turns):
        wall, cpu = time.perf_counter(), time.thread_time()
        act()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
    best, median, most = min(walls), sorted(walls)[turns // 2], max(walls)
    rate = f"{number / median:>10,.0f}/s" if number else " " * 12
    print(
        f"{what:42} {best * 1e3:8.1f} {median * 1e3:8.1f} {most * 1e3:8.1f} ms {rate}"
        f" {min(cpus) * 1e6 / max(number, 1):7.2f} µs CPU each"
    )


def snapshots(start: int, version: int, offset: int, number: int = ROWS) -> Sequence[Snapshot]:
    made = []
    for n in range(start, start + number):
        data = os.urandom(400)
        made.append(
            Snapshot("acme", f"order-{n:08d}", version, 1, "f" * 32, "charging", offset + n - start,
                     "/shop", f"event-{n}-{version}", data, content_hash(data))
        )  # fmt: skip
    return made


def rows(start: int, number: int) -> tuple[Sequence[InstanceRow], Sequence[EventRow]]:
    events = [
        EventRow(n, "acme", f"order-{n // 2:08d}", "/shop", f"{os.urandom(8).hex()}-{n}",
                 "OrderPlaced", NOW_MS + n, "applied", "new/OrderPlaced/0", "new", "reserving",
                 (f"r1:acme:order:order-{n // 2:08d}:reserving:Reserve:%2Fshop%3A{n}:forward",),
                 "", "")
        for n in range(start, start + number)
    ]  # fmt: skip
    instances = [
        InstanceRow("acme", f"order-{n // 2:08d}", 1, "reserving", NOW_MS, "waiting_callback",
                    b'{"items":[1,2,3],"total":500,"name":"somebody"}', False, 2, n, "/shop",
                    f"event-{n}", None, None, None, NOW_MS, NOW_MS)
        for n in range(start, start + number, 2)
    ]  # fmt: skip
    return instances, events


class Bench:
    def __init__(self, dsn: str) -> None:
        self.store = PostgresStore(dsn, SCHEMA, "refold:bench")
        row = PartitionRow(topic=TOPIC, partition=0, workflow="order", topic_id=TOPIC_ID,
                           partitions=4, group="g", epoch=0, owner="bench", released=False,
                           marker=0, rows_to=0, decisions=0, digest=b"", counts={}, base=0,
                           takeovers=0)  # fmt: skip
        claimed = self.store.claim(row, None)
        if claimed is None:
            raise SystemExit("the schema is in use")
        self.row = claimed
        self.marker = self.rows_to = 0

    def save(self, made: Sequence[Snapshot]) -> None:
        moved = self.marker + len(made) or 1
        done = self.store.save(
            Cut(topic=TOPIC, partition=0, workflow="order", epoch=self.row.epoch,
                previous=self.marker, marker=moved, decisions=0, digest=b"",
                counts={"applied": moved}, snapshots=made)
        )  # fmt: skip
        if not done:
            raise SystemExit("fenced")
        self.marker = moved

    def flush(self, instances: Sequence[InstanceRow], events: Sequence[EventRow]) -> None:
        moved = self.rows_to + len(events)
        done = self.store.flush(
            Flush(topic=TOPIC, topic_id=TOPIC_ID, partition=0, workflow="order",
                  epoch=self.row.epoch, previous=self.rows_to, rows_to=moved, instances=instances,
                  events=events, resolved=())
        )  # fmt: skip
        if not done:
            raise SystemExit("fenced")
        self.rows_to = moved

    def load(self, keys: Sequence[tuple[str, str]], expected: int) -> None:
        if len(self.store.load(TOPIC, 0, "order", keys).snapshots) != expected:
            raise SystemExit("wrong number of snapshots")


def run(dsn: str) -> None:
    migrate(dsn, SCHEMA)
    bench = Bench(dsn)
    absent = [("acme", f"absent-{n:08d}") for n in range(2_500)]
    measured("load 2,500 absent, empty table", 2_500, lambda: bench.load(absent, 0))
    fresh = iter([snapshots(n * ROWS, 1, n * ROWS) for n in range(10)])
    measured("save 10,000 new snapshots of 400 B", ROWS, lambda: bench.save(next(fresh)))
    measured("load 2,500 absent, 70,000 rows", 2_500, lambda: bench.load(absent, 0))
    known = [("acme", f"order-{n * 61 % (7 * ROWS):08d}") for n in range(1_000)]
    measured("load 1,000 known", 1_000, lambda: bench.load(known, 1_000))
    measured("load 1 known", 1, lambda: bench.load(known[:1], 1), turns=50)
    empty: list[Snapshot] = []
    measured("save a cut without snapshots", 0, lambda: bench.save(empty), turns=50)
    made = iter([rows(n * EVENTS, EVENTS) for n in range(10)])
    measured("flush 50,000 events", EVENTS, lambda: bench.flush((), next(made)[1]), turns=4)
    made = iter([rows((4 + n) * EVENTS, EVENTS) for n in range(6)])
    measured("flush 50,000 events, 25,000 instances", EVENTS,
             lambda: bench.flush(*next(made)), turns=4)  # fmt: skip
    bench.store.close()


def main() -> None:
    dsn = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("REFOLD_POSTGRES_DSN")
    if not dsn:
        raise SystemExit("give a connection string, or set REFOLD_POSTGRES_DSN")
    print(f"{'':42} {'best':>8} {'median':>8} {'most':>8}")
    try:
        run(dsn)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA}_v1, {SCHEMA} CASCADE".encode())


if __name__ == "__main__":
    main()
