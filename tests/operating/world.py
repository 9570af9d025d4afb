"""A namespace of the test's own with a worker in this process, for the operator's tools.

The settings stand in the environment too, so that the command line and the processes that it
starts see the same world.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep, time
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from refold.examples.order.graph import Charged, OrderPlaced, Reserved, order
from refold.processors.clients import Clients, KafkaClients
from refold.processors.decisions import read_decisions
from refold.processors.definition import Workflow
from refold.processors.service import build_worker
from refold.processors.worker import Worker
from refold.schemas.codec import codec_of
from refold.schemas.verdicts import Activate
from refold.snapshots.migrate import migrate
from refold.snapshots.model import PartitionHashes
from refold.snapshots.ports import Store
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.reading import batches
from refold.topics.records import event_headers
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import create, workflow_specs

PATIENCE_S = 30.0
SPEC = "refold.examples.order.graph:order"


class World:
    """Topics, a database, and what a test does with them.

    Args:
        namespace: The test's own.
        bootstrap: Kafka.
        dsn: Database of the test's own.
        monkeypatch: Puts the settings into the environment.
        partitions: Partitions of the event topic.
    """

    def __init__(
        self,
        namespace: str,
        bootstrap: str,
        dsn: str,
        monkeypatch: pytest.MonkeyPatch,
        partitions: int = 1,
    ) -> None:
        environment = {
            "REFOLD_NAMESPACE": namespace,
            "REFOLD_KAFKA_BOOTSTRAP": bootstrap,
            "REFOLD_POSTGRES_DSN": dsn,
            "REFOLD_WORKER_SESSION_TIMEOUT_MS": "4000",
            "REFOLD_WORKER_FRESHNESS_S": "0.1",
            "REFOLD_WORKER_SNAPSHOT_MAX_AGE_S": "0.1",
            "REFOLD_WORKER_HTTP_PORT": "-1",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        self.namespace = namespace
        self.dsn = dsn
        self.bootstrap = bootstrap
        self.settings: Settings = load_settings()
        self.clients = KafkaClients(self.settings)
        self.topic = f"{namespace}.order.events"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.partitions = partitions
        self.workflow = Workflow("order", [order])
        self.make_topics()
        migrate(dsn)

    def reload(self) -> None:
        """Read the settings again: a test has changed the environment."""
        self.settings = load_settings()

    def make_topics(self) -> None:
        """Create the topics of the workflow `order`."""
        create(self.admin, workflow_specs(self.namespace, "order", ["order"], self.partitions))

    def producer(self, **options: Any) -> Producer:
        """A producer that partitions as all do."""
        return Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", **options}
        )

    def publish(self, *events: tuple[str, str, Any], tenant: str = "acme") -> None:
        """Put (instance, event id, event) on the log, in order."""
        producer = self.producer()
        for instance, event_id, event in events:
            codec = codec_of(type(event))
            producer.produce(
                self.topic,
                codec.encode(event),
                instance.encode(),
                headers=event_headers(event_id, "/shop", codec.name, tenant),
            )
        assert producer.flush(PATIENCE_S) == 0

    def orders(self, count: int, *, first: int = 0) -> None:
        """Place, reserve and charge so many orders; some repeated, some refused."""
        numbers = range(first, first + count)
        self.publish(
            *((f"o-{n}", f"p{n}", OrderPlaced(items=("pen",), total=n)) for n in numbers),
            *((f"o-{n}", f"r{n}", Reserved()) for n in numbers),
            *((f"o-{n}", f"p{n}", OrderPlaced(items=("pen",), total=n)) for n in numbers[::3]),
            *((f"x-{n}", f"x{n}", Reserved()) for n in numbers[::4]),
            *((f"o-{n}", f"c{n}", Charged(receipt=f"r-{n}")) for n in numbers[::2]),
        )

    @contextmanager
    def working(
        self, workflow: Workflow | None = None, wall: Callable[[], float] = time
    ) -> Iterator[Worker]:
        """A worker in a thread of this process, stopped cleanly at the end."""
        folded = self.workflow if workflow is None else workflow
        stores: list[Store] = []

        def kept(clients: Clients, store: Store) -> tuple[Clients, Store]:
            stores.append(store)
            return clients, store

        worker = build_worker(self.settings, {folded.name: folded}, wrap=kept, wall=wall)
        thread = Thread(target=worker.run, name="worker", daemon=True)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            for store in stores:
                cast(PostgresStore, store).close()

    def fold(self, workflow: Workflow | None = None) -> None:
        """Let a worker fold and save everything that is on the log, and end."""
        with self.working(workflow):
            self.until_saved()

    def end(self, partition: int = 0) -> int:
        """High watermark of a partition."""
        return self.end_of(self.topic, partition)

    def until_saved(self) -> None:
        """Wait until markers and rows stand at the end of the log."""
        ends = {number: self.end(number) for number in range(self.partitions)}
        # The end behind the last record, which control records do not follow: producers here
        # are not transactional, so the watermark is the next offset.
        wanted = {number: end for number, end in ends.items() if end}
        self.until(lambda: wanted.items() <= self.marks().items(), f"markers {wanted}")

    def delete_records(self, before: int, partition: int = 0) -> None:
        """Take records away as retention does."""
        here = TopicPartition(self.topic, partition, before)
        for done in self.admin.delete_records([here]).values():
            done.result(PATIENCE_S)

    def end_of(self, topic: str, partition: int = 0) -> int:
        """High watermark of a partition."""
        reader = self.clients.reader()
        try:
            return int(
                reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
            )
        finally:
            reader.close()

    def marks(self) -> dict[int, int]:
        """Partition → marker, where the rows are as far."""
        rows = self.sql("SELECT partition, least(marker, rows_to) FROM refold.workflow_partition")
        return dict(rows)

    def sql(self, text: str, *values: object) -> list[Any]:
        """Run a statement of the test's own; its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute(text.encode(), values)
            return found.fetchall() if found.description else []

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for something."""
        deadline_s = monotonic() + PATIENCE_S
        while not true():
            if monotonic() > deadline_s:
                rows = self.sql("SELECT * FROM refold.workflow_partition")
                raise AssertionError(f"waited in vain for {what}: {rows}")
            sleep(0.05)

    def live(self, partition: int = 0) -> PartitionHashes:
        """What `verify` reads of a partition."""
        store = PostgresStore(self.dsn)
        try:
            return Upkeep(store).partition_hashes(self.topic, partition)
        finally:
            store.close()

    def committed(self, topic: str) -> list[str]:
        """Idempotency keys of the committed commands of a topic's first partition."""
        reader = self.clients.reader()
        try:
            return [
                dict(cast(Sequence[tuple[str, bytes]], each.headers()))["idempotency-key"].decode()
                for messages in batches(reader, topic, 0, 0)
                for each in messages
            ]
        finally:
            reader.close()

    def remake_topics(self, *kinds: str) -> None:
        """Delete topics of the workflow and create them under the same names."""
        names = [f"{self.namespace}.order.{kind}" for kind in kinds]
        for done in self.admin.delete_topics(names, operation_timeout=PATIENCE_S).values():
            done.result(PATIENCE_S)
        self.until(
            lambda: not set(names) & self.admin.list_topics(timeout=10).topics.keys(),
            "the topics to be gone",
        )
        self.make_topics()

    def keep_marker(self) -> None:
        """Remember everything that a cut has saved, to put it back as a lost PostgreSQL would."""
        for table in ("partition", "snapshot", "instance", "event_log"):
            self.sql(f"CREATE TABLE kept_{table} AS SELECT * FROM refold.workflow_{table}")

    def put_marker_back(self) -> None:
        """Put back what `keep_marker` remembered."""
        for table in ("event_log", "instance", "snapshot", "partition"):
            self.sql(f"DELETE FROM refold.workflow_{table}")
            self.sql(f"INSERT INTO refold.workflow_{table} SELECT * FROM kept_{table}")

    def activations(self) -> Sequence[Activate]:
        """The activations on the decision log of the first partition."""
        rejected = f"{self.namespace}.order.rejected"
        return read_decisions(self.clients.reader(), rejected, 0, 0, 0).activations

    def states(self) -> dict[str, str]:
        """Instance → run status, by its row."""
        return dict(self.sql("SELECT instance_id, run_status FROM refold.workflow_instance"))

    def charged(self, receipt: str) -> Charged:
        """An event."""
        return Charged(receipt=receipt)

    def changed_spec(self, how: str) -> str:
        """`MODULE:NAME` of the same version of the graph with other code."""
        return f"tests.operating.changed:{how}"

    def counts(self) -> Mapping[str, int]:
        """Verdicts of all partitions, by their rows."""
        found: dict[str, int] = {}
        for (counts,) in self.sql("SELECT counts FROM refold.workflow_partition"):
            for name, number in counts.items():
                found[name] = found.get(name, 0) + number
        return found
