"""A command topic that a test writes, an executor beside it, and the answers that come back."""

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep, time
from typing import Any, NamedTuple

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from refold import Command, Event
from refold.executors.executor import Executor
from refold.executors.migrate import migrate_ledger
from refold.executors.service import Service
from refold.processors.engine_events import ENGINE
from refold.processors.keys import compensate_key, key_of
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord
from refold.testing.servers import Kafka
from refold.topics.records import CommandWriter
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import create, workflow_specs

PATIENCE_S = 60.0
SESSION_MS = 1_000


class Pay(Command):
    amount: int


class Repay(Command):
    amount: int


class Paid(Event):
    reference: str


class PayDeclined(Event):
    reason: str


CODECS = {
    **ENGINE,
    **{codec_of(each).name: codec_of(each) for each in (Paid, PayDeclined)},
}


class Heard(NamedTuple):
    """An answer on the event topic."""

    instance: str
    type: str
    outcome: str
    attempt: int
    id: str
    key: str
    source: str
    event: Any


class _Send(NamedTuple):
    type: str
    key: str
    state: str
    attempt: int


class Desk:
    """Topics of a test's own, one partition each unless said otherwise, and a ledger."""

    def __init__(self, bootstrap: str, dsn: str, *, partitions: int = 1) -> None:
        self.namespace = f"desk-{uuid.uuid4().hex[:10]}"
        self.bootstrap = bootstrap
        self.dsn = dsn
        self.partitions = partitions
        self.commands = f"{self.namespace}.bank.commands"
        self.events = f"{self.namespace}.shop.events"
        self.folder = Path(tempfile.mkdtemp(prefix="refold-desk-"))
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        create(self.admin, workflow_specs(self.namespace, "shop", ["bank"], partitions))
        migrate_ledger(dsn)
        self._writer = CommandWriter(self.namespace, "shop")
        self._children: list[subprocess.Popen[bytes]] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": f"{self.namespace}.test",
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
            }
        )  # fmt: skip
        self._reader.assign([TopicPartition(self.events, each, 0) for each in range(partitions)])
        self._heard: list[Heard] = []

    # commands

    def key(self, instance: str, command: Command | None = None, event: str = "e1") -> str:
        """Key of a forward command of an instance."""
        name = type(command or Pay(amount=1)).__name__
        return key_of("acme", "shop", instance, "paying", name, "/shop", event)

    def send(
        self,
        instance: str,
        command: Command | None = None,
        *,
        attempt: int = 1,
        event: str = "e1",
        undoes: str = "",
        value: bytes | None = None,
    ) -> str:
        """Put a command on the log; gives its key."""
        command = command or Pay(amount=100)
        codec = codec_of(type(command))
        key = compensate_key(undoes) if undoes else self.key(instance, command, event)
        record = EventRecord(
            "acme", instance, "/shop", event, "Ordered", b"", 0, int(time() * 1000), b"", b""
        )
        send = _Send(codec.name, key, "paying", attempt)
        headers = self._writer.headers(send, record, int(time() * 1000))
        self.put(instance.encode(), codec.encode(command) if value is None else value, headers)
        return key

    def put(self, key: bytes | None, value: bytes | None, headers: Any) -> None:
        """Put any record on the command topic."""
        self._producer.produce(self.commands, value, key, headers=headers)
        assert self._producer.flush(30) == 0

    # answers

    def heard(self) -> list[Heard]:
        """Every answer so far, in log order of its partition."""
        while True:
            messages = self._reader.consume(500, 0.05)
            for each in messages:
                if each.error() is None:
                    self._heard.append(_heard(each))
            if not messages:
                return list(self._heard)

    def outcomes(self, key: str) -> list[str]:
        """Outcomes of the answers about one action, each event id once, in order."""
        return [each.outcome for each in self.once() if each.key == key]

    def once(self) -> list[Heard]:
        """Answers as the fold sees them: a repeated id changes nothing."""
        return list({each.id: each for each in reversed(self.heard())}.values())[::-1]

    def until_heard(self, key: str, *outcomes: str) -> list[Heard]:
        """Wait for these answers about an action, and no others; gives them."""
        self.until(
            lambda: len(self.outcomes(key)) >= len(outcomes), f"answers {outcomes} about {key}"
        )
        found = [each for each in self.once() if each.key == key]
        assert [each.outcome for each in found] == list(outcomes), found
        return found

    def until_all_done(self, keys: Iterable[str]) -> None:
        """Wait until the last word about each of these is that it is done."""
        wanted = set(keys)

        def done() -> bool:
            last = {each.key: each.outcome for each in self.once()}
            return all(last.get(key) == "succeeded" for key in wanted)

        self.until(done, f"{len(wanted)} actions to be done")

    # the ledger

    def sql(self, text: str, *values: object) -> list[Any]:
        """Run a statement of the test's own on the ledger; its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SET search_path TO refold_ledger")
            found = connection.execute(text.encode(), values)
            return found.fetchall() if found.description else []

    def status(self, key: str) -> str:
        """Status of a row, empty without one."""
        found = self.sql("SELECT status FROM workflow_action WHERE key = %s", key)
        return str(found[0][0]) if found else ""

    def until_status(self, key: str, status: str) -> None:
        """Wait until a row stands so."""
        self.until(lambda: self.status(key) == status, f"{key} to be {status}")

    # executors

    def settings(self, **executor: Any) -> Settings:
        """Settings of an executor here."""
        return load_settings(
            namespace=self.namespace,
            kafka={"bootstrap": self.bootstrap},
            postgres={"dsn": self.dsn},
            executor={"session_timeout_ms": SESSION_MS, **executor},
        )

    @contextmanager
    def running(self, executor: Executor, **settings: Any) -> Iterator[Service]:
        """An executor on a thread for the length of a block; its failure is the test's."""
        service = Service(self.settings(**settings), executor)
        failures: list[BaseException] = []

        def run() -> None:
            try:
                service.run()
            except BaseException as failure:
                failures.append(failure)

        thread = Thread(target=run, name="executor", daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.stop()
            thread.join(30)
        assert not thread.is_alive(), "the executor did not stop"
        if failures:
            raise failures[0]

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start `refold executor` on `child.py` as a process of its own."""
        log = self.folder / f"executor-{len(self._children)}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "refold.cli.main", "executor", "child:bank", *options],
                env=self.environment() | environment,
                cwd=Path(__file__).parent,
                stderr=out,
                stdout=out,
            )
        self._children.append(child)
        return child

    def environment(self) -> dict[str, str]:
        """Settings of an executor's process."""
        return {
            **os.environ,
            "REFOLD_NAMESPACE": self.namespace,
            "REFOLD_KAFKA_BOOTSTRAP": self.bootstrap,
            "REFOLD_POSTGRES_DSN": self.dsn,
            "REFOLD_EXECUTOR_SESSION_TIMEOUT_MS": str(SESSION_MS),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DESK_FOLDER": str(self.folder),
        }

    def reached(self, point: str) -> bool:
        """Whether a process stands at a point."""
        return (self.folder / f"at-{point}").exists()

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait, bounded; the failure shows the logs and the ledger."""
        end_s = monotonic() + PATIENCE_S
        while not true():
            if monotonic() > end_s:
                raise AssertionError(f"waited {PATIENCE_S} s for {what}\n{self._told()}")
            sleep(0.02)  # polls what another process does

    def close(self) -> None:
        """Kill what still runs."""
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
                child.wait()
        self._reader.close()

    def _told(self) -> str:
        rows = self.sql(
            "SELECT key, status, attempt, epoch, reason, lease_until, not_before"
            " FROM workflow_action ORDER BY planned LIMIT 20"
        )
        logs = [path.read_text()[-3000:] for path in sorted(self.folder.glob("*.log"))]
        return "\n".join([*map(str, rows), *map(str, self.once()[:20]), *logs])


def _heard(message: Any) -> Heard:
    headers: Mapping[str, bytes] = dict(message.headers())

    def text(name: str) -> str:
        return headers.get(name, b"").decode()

    codec = CODECS.get(text("ce_type"))
    return Heard(
        message.key().decode(), text("ce_type"), text("ce_outcome"), int(text("ce_attempt")),
        text("ce_id"), text("idempotency-key"), text("ce_source"),
        codec.decode(message.value()) if codec is not None else None,
    )  # fmt: skip


DeskOf = Callable[[int], Desk]


@pytest.fixture
def desk_of(kafka: Kafka, database: str) -> Iterator[DeskOf]:
    """Makes the test's desk, with so many partitions."""
    with ExitStack() as stack:
        yield lambda partitions: stack.enter_context(
            closing(Desk(kafka.bootstrap, database, partitions=partitions))
        )


@pytest.fixture
def desk(desk_of: DeskOf) -> Desk:
    """A desk with one partition."""
    return desk_of(1)
