"""The product under measurement: `refold worker` as a user starts it, over W1's topics.

Law of this module: the worker is a process like any user's, reached by its command line, its
settings and its tables alone; every run begins with empty command topics and an empty database.
"""

import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import psycopg
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench import workload
from bench.limits import clients, wire
from bench.processes import Process, running
from bench.servers import Servers
from refold.processors.cluster import LATEST
from refold.snapshots.migrate import migrate
from refold.topics import specs

REFOLD = str(Path(sys.executable).parent / "refold")
POLL_S = 0.1
STOP_TIMEOUT_S = 60.0
SETTINGS: Mapping[str, str] = {
    "rows": "REFOLD_WORKER_ROWS",
    "takeover_budget_s": "REFOLD_WORKER_TAKEOVER_BUDGET_S",
    "snapshot_max_age_s": "REFOLD_WORKER_SNAPSHOT_MAX_AGE_S",
    "session_timeout_ms": "REFOLD_WORKER_SESSION_TIMEOUT_MS",
}
"""Settings by the names that the figures use."""


class Stopped(NamedTuple):
    """How a worker ended."""

    cpu_s: float
    fault: str


class Deployment:
    """One database and one consumer group over W1's topics; workers come and go in it."""

    def __init__(self, servers: Servers, style: str, dsn: str) -> None:
        self.servers = servers
        self.style = style
        self.dsn = dsn
        self.group = f"bench-{uuid.uuid4().hex[:8]}"
        self._admin = AdminClient({"bootstrap.servers": servers.bootstrap})

    def environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Variables of one worker of this deployment."""
        return {
            "REFOLD_NAMESPACE": wire.NAMESPACE,
            "REFOLD_KAFKA_BOOTSTRAP": self.servers.bootstrap,
            "REFOLD_POSTGRES_DSN": self.dsn,
            "REFOLD_WORKER_GROUP": self.group,
            **{SETTINGS[name]: value for name, value in settings.items()},
        }

    @contextmanager
    def worker(self, log: Path, settings: Mapping[str, str]) -> Iterator["Worker"]:
        """Runs one worker for the length of a block; kills it if it still runs at the end."""
        command = [REFOLD, "worker", f"bench.{self.style}:w1"]
        with running(command, log, self.environment(settings)) as process:
            yield Worker(self, process)

    def command(self, *arguments: str) -> list[str]:
        """A command line of refold's own."""
        return [REFOLD, *arguments]

    def folded(self) -> int:
        """Records below the group's committed offsets, all partitions together."""
        return sum(self.committed().values())

    def committed(self) -> dict[int, int]:
        """The group's committed offset of each partition, 0 where it has none."""
        wanted = [TopicPartition(wire.EVENTS, p) for p in range(workload.PARTITIONS)]
        request = [ConsumerGroupTopicPartitions(self.group, wanted)]
        try:
            answer = self._admin.list_consumer_group_offsets(request)[self.group].result(10)
        except KafkaException:
            return {}  # the coordinator does not know the group yet
        return {each.partition: max(0, each.offset) for each in answer.topic_partitions}

    def ends(self) -> dict[int, int]:
        """Offset behind the last event of each partition."""
        wanted = {TopicPartition(wire.EVENTS, p): LATEST for p in range(workload.PARTITIONS)}
        found = self._admin.list_offsets(wanted)
        return {place.partition: each.result(10).offset for place, each in found.items()}

    def query(self, text: str) -> list[tuple[object, ...]]:
        """Rows of a constant query on the deployment's schema."""
        with psycopg.connect(self.dsn) as connection:
            connection.execute("SET search_path TO refold, public")
            return connection.execute(text.encode()).fetchall()

    def saved(self) -> int:
        """Records below the markers, all partitions together."""
        return self._sum("SELECT coalesce(sum(marker), 0)::bigint FROM workflow_partition")

    def rows_to(self) -> int:
        """Records whose rows are written, all partitions together."""
        return self._sum("SELECT coalesce(sum(rows_to), 0)::bigint FROM workflow_partition")

    def _sum(self, text: str) -> int:
        return int(str(self.query(text)[0][0]))

    def states(self) -> str:
        """Hash of the newest snapshot of every instance, as `clients.state_hash` makes it."""
        rows = self.query(
            "SELECT DISTINCT ON (tenant, instance_id) instance_id, state, data"
            " FROM workflow_snapshot ORDER BY tenant, instance_id, version DESC"
        )
        return clients.state_hash(
            (str(instance), str(state), context(data))
            for instance, state, data in rows
            if isinstance(data, bytes)
        )


class Worker:
    """One running `refold worker`."""

    def __init__(self, deployment: Deployment, process: Process) -> None:
        self.deployment = deployment
        self.process = process

    def until_folded(self, count: int, timeout_s: float) -> str:
        """Waits until so many records are committed; returns what went wrong, empty if nothing."""
        return self._until(lambda: self.deployment.folded() >= count, "folded", timeout_s)

    def until_rows_written(self, count: int, timeout_s: float) -> str:
        """Waits until the rows of so many records stand; returns what went wrong."""
        return self._until(lambda: self.deployment.rows_to() >= count, "written", timeout_s)

    def until_saved(self, count: int, timeout_s: float) -> str:
        """Waits until the markers stand behind so many records; returns what went wrong."""
        return self._until(lambda: self.deployment.saved() >= count, "saved", timeout_s)

    def _until(self, done: Callable[[], bool], what: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while not done():
            if not self.process.is_running():
                return f"worker ended: {self.process.last_words()}"
            if time.monotonic() > deadline:
                return f"not {what} within {timeout_s:.0f} s: {self.process.last_words()}"
            time.sleep(POLL_S)
        return ""

    def stop(self) -> Stopped:
        """SIGTERM: it finishes, saves, gives its partitions back and ends."""
        self.process.signal(signal.SIGTERM)
        ended = self.process.wait(STOP_TIMEOUT_S)
        fault = f"exit {ended.code}: {ended.error[-300:]}" if ended.code else ""
        return Stopped(ended.cpu_s, fault)

    def kill(self) -> None:
        """SIGKILL: it ends where it stands."""
        self.process.signal(signal.SIGKILL)
        self.process.wait(10)


def context(data: bytes) -> object:
    """The user's context inside an instance's canonical bytes."""
    found = msgspec.msgpack.decode(data[1:])
    return found["context"]


def make_topics(servers: Servers) -> None:
    """Makes W1's topics anew but for the events, which are written once a session."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    wanted = [
        spec
        for spec in specs.workflow_specs(
            wire.NAMESPACE, wire.WORKFLOW, [wire.WORKFLOW], workload.PARTITIONS
        )
        if spec.name != wire.EVENTS
    ]
    existing = admin.list_topics(timeout=10).topics
    old = [spec.name for spec in wanted if spec.name in existing]
    if old:
        workload.delete(servers.bootstrap, *old)
    specs.create(admin, wanted)


@contextmanager
def fresh(servers: Servers, style: str) -> Iterator[Deployment]:
    """A deployment with nothing behind it: empty database, new group, empty topics."""
    make_topics(servers)
    with ExitStack() as stack:
        dsn = servers.new_database()
        stack.callback(servers.drop_database, dsn)
        migrate(dsn)
        yield Deployment(servers, style, dsn)
