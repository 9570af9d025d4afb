"""A scene of the crash matrix: topics, a database, an input, worker processes, what came out.

Law of this module: every scene gets the same input byte for byte, so that what came out can be
compared with the run that nobody disturbed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import msgspec
import psycopg
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from refold.examples.order.graph import Charged, ChargeDeclined, OrderPlaced, Reserved
from refold.schemas.codec import codec_of
from refold.snapshots.migrate import migrate
from refold.testing.boundary import Plan
from refold.topics.records import event_headers
from refold.topics.specs import create, workflow_specs

PARTITIONS = 2
INSTANCES = 120
SESSION_MS = 800
PATIENCE_S = 60.0


class Outcome(msgspec.Struct, frozen=True):
    """What a scene left behind, comparable between scenes."""

    commands: Mapping[str, int]
    """Idempotency key and hash of value → how often a read_committed reader saw it."""
    states: Mapping[str, tuple[str, str, int]]
    """Instance → state, context, version."""
    verdicts: Mapping[str, int]
    markers: tuple[int, ...]
    rows: Mapping[str, int]
    """Verdicts by the event-log index."""
    decisions: Mapping[str, int]
    """Decisions by offset and verdict → how often they stand on the decision log."""


def inputs(seed: int) -> list[tuple[str, bytes | None, list[tuple[str, Any]]]]:
    """(key, value, headers) of a mixed input: good, repeated, conflicting, refused, poison."""
    random = Random(seed)
    records: list[tuple[str, bytes | None, list[tuple[str, Any]]]] = []

    def add(instance: int, number: str, event: Any, value: bytes | None = None) -> None:
        codec = codec_of(type(event))
        headers = event_headers(f"{number}-{instance}", "/shop", codec.name, "acme")
        body = codec.encode(event) if value is None else value
        records.append((f"order-{instance}", body, headers))

    for instance in range(INSTANCES):
        add(instance, "placed", OrderPlaced(items=("pen", "ink"), total=instance))
    for instance in range(INSTANCES):
        add(instance, "reserved", Reserved())
        if instance % 5 == 0:
            add(instance, "placed", OrderPlaced(items=("pen", "ink"), total=instance))
        if instance % 7 == 0:
            add(instance, "placed", OrderPlaced(items=("pen",), total=instance + 1))
        if instance % 11 == 0:
            add(instance, "poison", Reserved(), b"\x00not avro")
    order = list(range(INSTANCES))
    random.shuffle(order)
    for instance in order:
        if instance % 4 == 0:
            add(instance, "declined", ChargeDeclined(reason="no funds"))
        else:
            add(instance, "charged", Charged(receipt=f"r-{instance}"))
        if instance % 9 == 0:
            add(instance, "late", Reserved())
    return records


BEGUN = "connected to PostgreSQL"
"""What a worker says when it runs: from then on it ends when it is told to."""


class Scene:
    """One run: its own topics, group and database.

    Args:
        bootstrap: Kafka.
        dsn: Superuser's connection string of the database.
        rows: Whether workers write rows and index.
        partitions: Of every topic.
    """

    def __init__(
        self, bootstrap: str, dsn: str, *, rows: bool = True, partitions: int = PARTITIONS
    ) -> None:
        self.namespace = f"crash-{uuid.uuid4().hex[:10]}"
        self.bootstrap = bootstrap
        self.dsn = dsn
        self.log = Path(tempfile.mkdtemp(prefix="refold-crash-"))
        self._rows = rows
        self._partitions = partitions
        self._children: list[subprocess.Popen[bytes]] = []
        self._events = f"{self.namespace}.order.events"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create(admin, workflow_specs(self.namespace, "order", ["order"], partitions))
        migrate(dsn)

    def publish(self, first: float = 0.0, last: float = 1.0) -> None:
        """Put a stretch of the input on the log, in order, once; the whole of it by default."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        records = inputs(1)
        for key, value, headers in records[int(first * len(records)) : int(last * len(records))]:
            producer.produce(self._events, value, key.encode(), headers=headers)
        assert producer.flush(30) == 0

    def worker(self, plan: Plan | None = None) -> subprocess.Popen[bytes]:
        """Start a worker process, which ends where the plan says."""
        environment = self.environment()
        if plan is not None:
            environment["CRASH_PLAN"] = msgspec.json.encode(plan).decode()
        return self.start(Path(__file__).parent / "child.py", environment)

    def environment(self) -> dict[str, str]:
        """Settings of a worker process of this scene."""
        return {
            **os.environ,
            "REFOLD_NAMESPACE": self.namespace,
            "REFOLD_KAFKA_BOOTSTRAP": self.bootstrap,
            "REFOLD_POSTGRES_DSN": self.dsn,
            "REFOLD_WORKER_SESSION_TIMEOUT_MS": str(SESSION_MS),
            "REFOLD_WORKER_BATCH_RECORDS": "40",
            "REFOLD_WORKER_BATCH_MS": "20",
            "REFOLD_WORKER_FRESHNESS_S": "0.1",
            "REFOLD_WORKER_SNAPSHOT_MAX_AGE_S": "0.05",
            "REFOLD_WORKER_ROWS": str(self._rows).lower(),
        }

    def start(self, script: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a script as a worker process; its log is this scene's."""
        number = len(self._children)
        with (self.log / f"worker-{number}.log").open("wb") as log:
            command = [sys.executable, str(script)]
            child = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
        self._children.append(child)
        return child

    def adopt(self, child: subprocess.Popen[bytes]) -> None:
        """A process that a test started ends with the scene, too."""
        self._children.append(child)

    def until_folded(self) -> None:
        """Wait until the workers have saved every record of the log."""
        ends = self._ends()
        self.until(lambda: self._markers() == ends, f"markers {ends}")

    def until_cut(self) -> None:
        """Wait until something is saved."""
        self.until(lambda: sum(self._markers()) > 0, "the first cut")

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait, bounded; the failure shows the workers' logs."""
        end_s = monotonic() + PATIENCE_S
        while not true():
            if monotonic() > end_s:
                raise AssertionError(f"waited {PATIENCE_S} s for {what}\n{self.logs()}")
            sleep(0.05)  # polls what another process does

    def stop(self, child: subprocess.Popen[bytes]) -> None:
        """SIGTERM and a clean end; a process that has not begun yet could not end cleanly."""
        if child in self._children:  # what a test has adopted writes elsewhere
            log = self.log / f"worker-{self._children.index(child)}.log"
            self.until(lambda: BEGUN in log.read_text(), "the worker to begin")
        child.send_signal(signal.SIGTERM)
        code = child.wait(PATIENCE_S)
        assert code == 0, f"a worker ended with {code}\n{self.logs()}"

    def close(self) -> None:
        """Kill whatever still runs."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()

    def logs(self) -> str:
        """The tail of every worker's log."""
        parts = []
        for path in sorted(self.log.iterdir()):
            parts.append(f"--- {path.name}\n" + path.read_text()[-4000:])
        return "\n".join(parts)

    def owners(self) -> set[str]:
        """Workers that have claimed partitions and not given them back, killed ones included."""
        with psycopg.connect(self.dsn) as connection:
            found = connection.execute(
                "SELECT DISTINCT owner FROM refold.workflow_partition WHERE NOT released"
            ).fetchall()
        return {str(owner) for (owner,) in found}

    def outcome(self) -> Outcome:
        """Read back what came out."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute("SET search_path TO refold")
            states = connection.execute(
                "SELECT DISTINCT ON (instance_id) instance_id, state, version"
                " FROM workflow_snapshot ORDER BY instance_id, version DESC"
            ).fetchall()
            rows = connection.execute(
                "SELECT instance_id, state, context::text, version FROM workflow_instance"
            ).fetchall()
            partitions = connection.execute(
                "SELECT marker, counts FROM workflow_partition ORDER BY partition"
            ).fetchall()
            index = connection.execute(
                "SELECT verdict, count(*) FROM workflow_event_log GROUP BY verdict"
            ).fetchall()
        if self._rows:
            shown = {(i, s, v) for i, s, _, v in rows}
            assert shown == set(states), f"{shown ^ set(states)}\n{self.logs()}"
        verdicts: Counter[str] = Counter()
        for _, counts in partitions:
            verdicts.update(counts)
        contexts = {instance: context for instance, _, context, _ in rows}
        return Outcome(
            commands=self._read(f"{self.namespace}.order.commands", "idempotency-key"),
            states={i: (s, contexts.get(i, ""), v) for i, s, v in states},
            verdicts=dict(sorted(verdicts.items())),
            markers=tuple(marker for marker, _ in partitions),
            rows=dict(sorted((str(verdict), int(count)) for verdict, count in index)),
            decisions=self._read(f"{self.namespace}.order.rejected", "refold-source"),
        )

    def _markers(self) -> tuple[int, ...]:
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute(
                "SELECT marker, rows_to FROM refold.workflow_partition ORDER BY partition"
            ).fetchall()
        behind = any(self._rows and rows_to < marker for marker, rows_to in rows)
        return () if behind else tuple(int(marker) for marker, _ in rows)

    def _ends(self) -> tuple[int, ...]:
        reader = self._reader()
        try:
            return tuple(
                reader.get_watermark_offsets(TopicPartition(self._events, number))[1]
                for number in range(self._partitions)
            )
        finally:
            reader.close()

    def _read(self, topic: str, header: str) -> dict[str, int]:
        """Header and value of every committed record → how often."""
        found: Counter[str] = Counter()
        reader = self._reader()
        reader.assign([TopicPartition(topic, each, 0) for each in range(self._partitions)])
        open_ = set(range(self._partitions))
        while open_:
            for message in reader.consume(500, 5.0):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_.discard(message.partition() or 0)
                    continue
                headers: dict[str, Any] = dict(message.headers() or ())
                name: Any = headers.get(header)
                if name is None:
                    continue
                source = name.decode().removeprefix(self.namespace)
                verdict = (headers.get("refold-verdict") or b"").decode()
                found[f"{source} {verdict} {(message.value() or b'').hex()}"] += 1
        reader.close()
        return dict(found)

    def _reader(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.namespace}-check",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )


@contextmanager
def scene(
    bootstrap: str, dsn: str, *, rows: bool = True, partitions: int = PARTITIONS
) -> Iterator[Scene]:
    """A scene that leaves no process behind."""
    made = Scene(bootstrap, dsn, rows=rows, partitions=partitions)
    try:
        yield made
    finally:
        made.close()
