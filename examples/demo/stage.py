"""Where the demo plays: its own topics, its own database, and the processes on it.

Law of this module: whatever is made here is named after one run and is gone after it, unless it
is kept; a process that is started here ends here.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final
from uuid import uuid4

import msgspec
import psycopg
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)
from psycopg import sql
from psycopg.conninfo import make_conninfo

from refold.examples.demo.worker import PLAN
from refold.schemas.errors import Code, ServerError
from refold.snapshots.migrate import migrate
from refold.testing.boundary import Plan
from refold.topics.clients import admin_config, opened
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import create, workflow_specs

PARTITIONS: Final = 4
SESSION_MS: Final = 3_000
"""A dead worker is noticed after this, where the broker allows it."""
STOP_S: Final = 60.0
TOPICS_S: Final = 30.0
PAUSE_S: Final = 0.02


class Line(msgspec.Struct, frozen=True):
    """What the demo reads in a worker's log."""

    event: str = ""
    timestamp: float = 0.0
    partitions: tuple[str, ...] = ()


class Process:
    """A child of the demo, with its log.

    Args:
        name: Of its log file.
        command: Module and arguments.
        environment: Of the child.
        folder: Where the log goes.
    """

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.trigger = folder / f"{name}.kill"
        """The file whose being there makes the plan due."""
        environment = {**environment, PLAN: self._plan()}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603  # our own modules, no shell
                [sys.executable, "-m", *command], env=environment, stdout=log, stderr=log
            )

    def _plan(self) -> str:
        """SIGKILL when the commit of a transaction is called: everything of it is sent by then."""
        plan = Plan("producer.commit_transaction", 1, "before", "kill", str(self.trigger))
        return msgspec.json.encode(plan).decode()

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def assigned(self) -> dict[int, float]:
        """Partitions that it owns → when it got them, in seconds since the epoch."""
        owned: dict[int, float] = {}
        for text in self.log.read_text(errors="replace").splitlines(keepends=True):
            if not (text.startswith("{") and text.endswith("\n")):
                continue
            line = msgspec.json.decode(text, type=Line)
            numbers = [int(each.rpartition("[")[2][:-1]) for each in line.partitions]
            if line.event == "assigned":
                owned |= dict.fromkeys(numbers, line.timestamp)
            elif line.event in {"revoked", "lost"}:
                owned = {key: value for key, value in owned.items() if key not in numbers}
        return owned

    def stop(self) -> None:
        """SIGTERM and a clean end.

        Raises:
            ServerError: It ended with an error, or not in time.
        """
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise self.failed()

    def failed(self) -> ServerError:
        """The error that tells how it ended, with the end of its log."""
        said = [line for line in self.log.read_text(errors="replace").splitlines() if line][-3:]
        return ServerError(
            Code.DEMO_FAILED,
            f"the demo's {self.name} ended with {self.process.poll()}: {' / '.join(said)[:800]}",
            f"Its log is {self.log}.",
        )

    def kill(self) -> None:
        """End it, whatever it does."""
        if self.is_running():
            self.process.kill()
        self.process.wait()


class Stage:
    """One run's topics, database and processes.

    Args:
        settings: Where the servers are.
    """

    def __init__(self, settings: Settings) -> None:
        mark = uuid4().hex[:8]
        self.namespace = f"demo-{mark}"
        self.database = f"refold_demo_{mark}"
        self.folder = Path(tempfile.mkdtemp(prefix="refold-demo-"))
        self.journal = self.folder / "outside.db"
        self._server_dsn = settings.postgres.dsn
        self._admin = opened(AdminClient, admin_config(settings))
        self.dsn = make_conninfo(self._server_dsn, dbname=self.database)
        self._shell = {
            "REFOLD_NAMESPACE": self.namespace,
            "REFOLD_KAFKA_BOOTSTRAP": settings.kafka.bootstrap,
            "REFOLD_POSTGRES_DSN": self.dsn,
        }
        session_ms = max(SESSION_MS, self._least_session_ms())
        self.environment = {
            **os.environ,
            **self._shell,
            "REFOLD_WORKER_GROUP": "",
            "REFOLD_WORKER_SESSION_TIMEOUT_MS": str(session_ms),
            "REFOLD_WORKER_HTTP_PORT": "-1",
            "REFOLD_WORKER_SNAPSHOT_MAX_AGE_S": "2",  # the end of a run is not waited for longer
        }
        self.settings = load_settings(
            namespace=self.namespace, kafka=settings.kafka, postgres={"dsn": self.dsn}
        )
        self.processes: list[Process] = []
        self._topics = workflow_specs(self.namespace, "incident", ("paging", "mail"), PARTITIONS)

    def make(self) -> None:
        """Make topics, database and tables."""
        self._database("CREATE DATABASE {}")
        migrate(self.dsn)
        create(self._admin, self._topics)

    def start(self, name: str, module: str, *arguments: str) -> Process:
        """Start a child: `module` of this package."""
        command = [f"refold.examples.demo.{module}", *arguments]
        child = Process(name, command, self.environment, self.folder)
        self.processes.append(child)
        return child

    def close(self, *, keep: bool) -> None:
        """End what still runs; remove topics and database unless they are kept."""
        for each in self.processes:
            each.kill()
        if not keep:
            removed = self._admin.delete_topics([each.name for each in self._topics])
            for done in removed.values():
                done.exception(TOPICS_S)
            self._database("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        del self._admin  # its thread would complain when the servers stop

    def shell_file(self) -> Path:
        """A file that a shell reads, so that every refold command finds the run."""
        path = self.folder / "env"
        path.touch(mode=0o600)  # the connection string may hold a password
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in self._shell.items())
        path.write_text("".join(lines))
        return path

    def _database(self, statement: str) -> None:
        with psycopg.connect(self._server_dsn, autocommit=True) as connection:
            text = sql.SQL(statement).format(sql.Identifier(self.database))
            connection.execute(text)

    def _least_session_ms(self) -> int:
        """What the broker allows at least."""
        nodes = self._admin.list_topics(timeout=TOPICS_S).brokers
        asked = ConfigResource(ResourceType.BROKER, str(next(iter(nodes))))
        (answer,) = self._admin.describe_configs([asked]).values()
        found = answer.result(TOPICS_S)["group.min.session.timeout.ms"].value
        return int(found or SESSION_MS)


@contextmanager
def stage(settings: Settings, *, keep: bool) -> Iterator[Stage]:
    """A stage that leaves no process behind, and nothing else unless it is kept.

    The logs stay too when something went wrong.
    """
    made = Stage(settings)
    try:
        made.make()
        yield made
    finally:
        made.close(keep=keep)
    if not keep:
        shutil.rmtree(made.folder)


def until(processes: list[Process], limit_s: float, what: str) -> Iterator[None]:
    """Turns of a loop that waits for something; an error when a process ended or time is over.

    Raises:
        ServerError: A process ended, or the time is over.
    """
    end_s = monotonic() + limit_s
    while True:
        yield
        for each in processes:
            if not each.is_running():
                raise each.failed()
        if monotonic() > end_s:
            raise ServerError(
                Code.DEMO_FAILED,
                f"the demo waited {limit_s:.0f} s in vain for {what}.",
                "The machine is too busy, or a server is away: the logs are in the folder above.",
            )
        sleep(PAUSE_S)
