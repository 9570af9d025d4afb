"""A scene whose log a test writes record by record, with a worker in a thread of the test."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from time import time
from typing import Any

import msgspec
import psycopg
from confluent_kafka import ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # these are public
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.crash.scene import PATIENCE_S, Scene
from tests.kafka.worker.graphs import count as count_workflow
from tests.running import Wrap, running, settings_of

from refold.examples.order import order
from refold.examples.order.graph import OrderPlaced
from refold.processors.clients import KafkaClients
from refold.processors.definition import Workflow
from refold.processors.judgement import Choice
from refold.processors.partition import Phase
from refold.processors.worker import Worker
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.testing.boundary import Plan
from refold.topics.partition import partition_of
from refold.topics.reading import batches
from refold.topics.records import event_headers
from refold.topics.specs import create, workflow_specs

Given = tuple[str, str, Any]
"""Instance, event id, event."""
ORDER = Workflow("order", [order])
QUICK = {"fence_retry_s": 0.2, "retry_s": 0.1}
"""A fenced partition is looked at again soon, so that tests of its cure are short."""


class Stage(Scene):
    """A scene of the test's own; the workflow is `order` unless said otherwise."""

    def __init__(self, bootstrap: str, dsn: str, *, partitions: int = 1) -> None:
        super().__init__(bootstrap, dsn, partitions=partitions)
        self.partitions = partitions
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.group = f"{self.namespace}.workers"

    def topic(self, kind: str = "events", workflow: str = "order") -> str:
        """Name of a topic of a workflow."""
        return f"{self.namespace}.{workflow}.{kind}"

    def add_count(self) -> None:
        """Create the topics of the workflow `count`."""
        create(self.admin, workflow_specs(self.namespace, "count", ["count"], self.partitions))

    def producer(self, **options: Any) -> Producer:
        """A producer that partitions as all do."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "topic.metadata.refresh.interval.ms": 1000,
                **options,
            }
        )

    def put(self, *events: Given, workflow: str = "order", tenant: str | None = "acme") -> None:
        """Put events on the log, in order."""
        producer = self.producer()
        for instance, event_id, event in events:
            codec = codec_of(type(event))
            headers = event_headers(event_id, "/shop", codec.name, tenant or "acme")
            if tenant is None:
                headers = [each for each in headers if each[0] != "ce_tenant"]
            self._produce(producer, workflow, codec.encode(event), instance.encode(), headers)
        assert producer.flush(30) == 0

    def put_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Any],
        workflow: str = "order",
    ) -> None:
        """Put one record on the log of a workflow, whatever it is."""
        producer = self.producer()
        self._produce(producer, workflow, value, key, headers)
        assert producer.flush(30) == 0

    def act(self, instance: str, order: Any, *, workflow: str = "order", id_: str = "a1") -> None:
        """Put an operator's act on the log: redrive or terminate."""
        codec = codec_of(type(order))
        headers = event_headers(id_, "/refold/operator/ann", codec.name, "acme")
        self.put_raw(instance.encode(), codec.encode(order), headers, workflow)

    def _produce(
        self,
        producer: Producer,
        workflow: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Any],
    ) -> None:
        producer.produce(self.topic("events", workflow), value, key, headers=list(headers))

    def place(self, *instances: str) -> None:
        """Begin orders."""
        self.put(*(placed(each) for each in instances))

    def names(self, partition: int, number: int, partitions: int = 0) -> list[str]:
        """So many instance ids of one partition."""
        found: list[str] = []
        for each in count():
            name = f"i-{each}"
            if partition_of(name.encode(), partitions or self.partitions) == partition:
                found.append(name)
                if len(found) == number:
                    return found
        return found

    def working(
        self,
        *workflows: Workflow,
        wrap: Wrap | None = None,
        worker: Mapping[str, Any] | None = None,
        kafka: Mapping[str, Any] | None = None,
        wall: Callable[[], float] = time,
        **options: Any,
    ) -> AbstractContextManager[Worker]:
        """A worker for the length of a block; the options are `Options`'."""
        return running(
            self,
            wrap=wrap,
            workflows=workflows or (ORDER,),
            worker=worker,
            options={**QUICK, **options},
            kafka=kafka,
            wall=wall,
        )

    def fold(self, *workflows: Workflow, **options: Any) -> None:
        """Let a worker fold and save everything on the logs of these workflows, and end."""
        with self.working(*workflows, **options):
            for each in workflows or (ORDER,):
                self.until_saved(each.name)

    def until_saved(self, workflow: str = "order", **ends: int) -> None:
        """Wait until markers and rows stand at the ends of the log."""
        wanted = {f"p{number}": end for number, end in enumerate(self.ends(workflow)) if end}
        wanted |= ends
        self.until(lambda: wanted.items() <= self.marks(workflow).items(), f"markers {wanted}")

    def ends(self, workflow: str = "order", kind: str = "events") -> list[int]:
        """High watermark of each partition."""
        reader = self._reader()
        try:
            return [
                int(reader.get_watermark_offsets(place, timeout=10)[1])
                for place in (
                    TopicPartition(self.topic(kind, workflow), each)
                    for each in range(self.partitions)
                )
            ]
        finally:
            reader.close()

    def marks(self, workflow: str = "order") -> dict[str, int]:
        """p<number> → marker, where the rows are as far."""
        rows = self.sql(
            "SELECT partition, least(marker, rows_to) FROM refold.workflow_partition"
            " WHERE workflow = %s",
            workflow,
        )
        return {f"p{number}": mark for number, mark in rows}

    def sql(self, text: str, *values: object) -> list[Any]:
        """Run a statement of the test's own; its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute(text.encode(), values)
            return found.fetchall() if found.description else []

    def counts(self, workflow: str = "order") -> dict[str, int]:
        """Verdicts of all partitions as saved."""
        found: dict[str, int] = {}
        for (counts,) in self.sql(
            "SELECT counts FROM refold.workflow_partition WHERE workflow = %s", workflow
        ):
            for name, number in counts.items():
                found[name] = found.get(name, 0) + number
        return found

    def committed(self, kind: str, workflow: str = "order") -> list[Message]:
        """Every committed record of a topic, partition by partition."""
        clients = KafkaClients(settings_of(self))
        found: list[Message] = []
        for number in range(self.partitions):
            reader = clients.reader()
            try:
                for some in batches(reader, self.topic(kind, workflow), number, 0):
                    found += some
            finally:
                reader.close()
        return found

    def sent(self, workflow: str = "order") -> list[str]:
        """`instance/state` of every committed command, in log order of each partition."""
        return [
            "/".join(header(each, "idempotency-key").split(":")[3:5])
            for each in self.committed("commands", workflow)
        ]

    def decided(self, workflow: str = "order") -> list[tuple[int, str, str]]:
        """(source offset, verdict, code) of every decision that is committed."""
        return [
            (
                int(header(each, "refold-source").rpartition("/")[2]),
                header(each, "refold-verdict"),
                header(each, "refold-code"),
            )
            for each in self.committed("rejected", workflow)
            if header(each, "refold-kind") == "decision"
        ]

    def states(self, workflow: str = "order") -> dict[str, str]:
        """Instance → state, by its newest snapshot."""
        return dict(
            self.sql(
                "SELECT DISTINCT ON (tenant, instance_id) instance_id, state"
                " FROM refold.workflow_snapshot WHERE workflow = %s"
                " ORDER BY tenant, instance_id, version DESC",
                workflow,
            )
        )

    def run_status(self, instance: str) -> str:
        """What the row of an instance says that it is doing, empty without a row."""
        found = self.sql(
            "SELECT run_status FROM refold.workflow_instance WHERE instance_id = %s", instance
        )
        return str(found[0][0]) if found else ""

    def saved(self) -> dict[str, list[Any]]:
        """Everything that a fold left in PostgreSQL, but for clocks, epochs and owners."""
        return {
            "partitions": self.sql(
                "SELECT topic, partition, marker, rows_to, digest, counts"
                " FROM refold.workflow_partition ORDER BY 1, 2"
            ),
            "snapshots": self.sql(
                "SELECT DISTINCT ON (workflow, tenant, instance_id) workflow, tenant, instance_id,"
                " partition, version, definition, fingerprint, state, last_offset, data, hash"
                " FROM refold.workflow_snapshot"
                " ORDER BY workflow, tenant, instance_id, version DESC"
            ),
            "instances": self.sql(
                "SELECT workflow, tenant, instance_id, state, run_status, context, version,"
                " last_offset FROM refold.workflow_instance ORDER BY 1, 2, 3"
            ),
            "index": self.sql(
                "SELECT partition, log_offset, tenant, instance_id, id, verdict, transition,"
                " state_before, state_after, commands, code, doubled, resolution, resolved_by"
                " FROM refold.workflow_event_log ORDER BY 1, 2"
            ),
        }

    def keep(self) -> None:
        """Remember what stands in PostgreSQL, to put it back as a lost server would."""
        for table in TABLES:
            self.sql(f"DROP TABLE IF EXISTS kept_{table}")
            self.sql(f"CREATE TABLE kept_{table} AS SELECT * FROM refold.workflow_{table}")

    def put_back(self) -> None:
        """Put back what `keep` remembered, as a fail-over to a copy that was behind does."""
        with psycopg.connect(self.dsn) as connection:
            for table in reversed(TABLES):
                connection.execute(f"DELETE FROM refold.workflow_{table}")
                connection.execute(
                    f"INSERT INTO refold.workflow_{table} OVERRIDING SYSTEM VALUE"
                    f" SELECT * FROM kept_{table}"
                )

    def lose_everything(self) -> None:
        """Empty PostgreSQL, as after a restore of nothing."""
        self.sql(f"TRUNCATE {', '.join(f'refold.workflow_{each}' for each in TABLES)}")

    def raise_partitions(self, number: int, *topics: str) -> None:
        """Give topics more partitions."""
        wanted = [NewPartitions(each, number) for each in topics]
        for done in self.admin.create_partitions(wanted).values():
            done.result(30)

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(30)

    def delete_records(self, before: int, partition: int = 0) -> None:
        """Take records away as retention does."""
        here = TopicPartition(self.topic(), partition, before)
        for done in self.admin.delete_records([here]).values():
            done.result(30)

    def delete_topics(self, *topics: str) -> None:
        """Delete topics and wait until they are gone."""
        for done in self.admin.delete_topics(list(topics), operation_timeout=30).values():
            done.result(30)
        self.until(
            lambda: not set(topics) & self.admin.list_topics(timeout=10).topics.keys(),
            "the topics to be gone",
        )

    def make_topics(self, workflow: str = "order") -> None:
        """Create what is missing of a workflow's topics."""
        create(self.admin, workflow_specs(self.namespace, workflow, [workflow], self.partitions))

    def move_offset(self, offset: int, partition: int = 0) -> None:
        """Move the group's offset as a person with a plain tool does: the metadata is gone."""
        place = TopicPartition(self.topic(), partition, offset)
        request = ConsumerGroupTopicPartitions(self.group, [place])
        for done in self.admin.alter_consumer_group_offsets([request]).values():
            done.result(30)

    def forget_offsets(self) -> None:
        """Delete the group with its offsets."""
        for done in self.admin.delete_consumer_groups([self.group]).values():
            done.result(30)

    def choose(self, code: Code, choice: str, partition: int = 0) -> None:
        """Choose as `refold partitions resolve` does."""
        epoch = self.sql(
            "SELECT epoch FROM refold.workflow_partition WHERE topic = %s AND partition = %s",
            self.topic(),
            partition,
        )[0][0]
        chosen = Choice(
            code=code, choice=choice, who="ann", reason="a test", epoch=epoch, group=self.group
        )
        self.sql(
            "UPDATE refold.workflow_partition SET choice = %s WHERE topic = %s AND partition = %s",
            msgspec.json.encode(chosen).decode(),
            self.topic(),
            partition,
        )

    def until_codes(
        self, worker: Worker, wanted: Mapping[int, str], workflow: str = "order"
    ) -> None:
        """Wait until the worker's health shows these codes, empty for live."""
        self.until(
            lambda: codes(worker, workflow) == dict(wanted),
            f"the codes {dict(wanted)}, it has {worker.health.status.partitions}",
        )

    def process(
        self, spec: str, plan: Plan | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start a worker process of the workflow that `MODULE:NAME` names."""
        return self.start(Path(__file__).parent / "child.py", self.environment() | {
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "STAGE_WORKFLOW": spec,
            "STAGE_OPTIONS": msgspec.json.encode(options).decode(),
            "CRASH_PLAN": msgspec.json.encode(plan).decode() if plan is not None else "",
        })  # fmt: skip


TABLES = ("partition", "snapshot", "instance", "event_log", "suspect", "definition", "choice")


def placed(instance: str, total: int = 1) -> Given:
    """The event that begins an order."""
    return instance, f"p-{instance}", OrderPlaced(items=("pen",), total=total)


def header(message: Message, name: str) -> str:
    """A header's text, empty if it is not there."""
    held: Any = dict(message.headers() or ()).get(name)
    return bytes(held).decode() if held is not None else ""


def codes(worker: Worker, workflow: str = "order") -> dict[int, str]:
    """Partition → code of what keeps it from being live; its phase where there is no code."""
    return {
        each.partition: each.code or ("" if each.phase == Phase.LIVE else each.phase)
        for each in worker.health.status.partitions
        if each.workflow == workflow
    }


@contextmanager
def stage(bootstrap: str, dsn: str, partitions: int) -> Iterator[Stage]:
    """A stage that leaves no process behind."""
    made = Stage(bootstrap, dsn, partitions=partitions)
    try:
        yield made
    finally:
        made.close()


__all__ = ["ORDER", "PATIENCE_S", "Given", "Stage", "codes", "count_workflow", "header", "placed"]
