"""pytest fixtures for real servers: `kafka`, `postgres`, `database`, `unique`, `own_kafka`, ….

Register with `pytest_plugins = ["refold.testing.servers"]`.

Law of this module: a test gets a real server or an error, never a stand-in. Servers come from the
environment (REFOLD_TEST_KAFKA, REFOLD_TEST_POSTGRES), else from testcontainers where a container
engine answers, else from the local pair. All pytest processes of a folder share one local pair;
it is left running for the next run and ended by `refold local down --dir …/tests`.
"""

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from refold.local.kafka import FAST_FAILURES, KAFKA_VERSION, ONE_NODE, QUICK_START, KafkaServer
from refold.local.pair import Pair, jar_folder, local_folder
from refold.local.postgres import PostgresServer, embedded_version
from refold.local.probe import postgres_version, probe_kafka, probe_postgres
from refold.local.server import free_port

KAFKA_VARIABLE: Final = "REFOLD_TEST_KAFKA"
POSTGRES_VARIABLE: Final = "REFOLD_TEST_POSTGRES"
KAFKA_IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"
POSTGRES_IMAGE: Final = "postgres:18"
PREFIX: Final = "refold-test-"
"""Begins the names of the folders of servers that one test alone has."""
ENGINE_TIMEOUT_S: Final = 5.0
"""An engine that does not answer `docker info` by then is not there."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running broker for tests: its address and where it comes from."""

    bootstrap: str
    source: str


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running PostgreSQL for tests.

    Attributes:
        dsn: Connection string of a superuser.
        source: Where the server comes from.
    """

    dsn: str
    source: str

    def dsn_of(self, database: str) -> str:
        """The superuser's connection string for another database."""
        return make_conninfo(self.dsn, dbname=database)

    def new_database(self) -> str:
        """Make an empty database with a name of its own; returns its connection string."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn_of(name)

    def drop_database(self, dsn: str) -> None:
        """Drop a database of `new_database`, whoever is still connected to it."""
        name = conninfo_to_dict(dsn)["dbname"]
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(str(name)))
        )

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)


class OwnKafka(Protocol):
    """Starts a broker of a test's own, to be stopped, killed, paused or restarted by it."""

    def __call__(self, settings: Mapping[str, str] | None = None) -> KafkaServer:
        """Start one with these settings on top of the test broker's."""
        ...


class OwnPostgres(Protocol):
    """Starts a PostgreSQL of a test's own, to be stopped, killed, paused or restarted by it."""

    def __call__(self, settings: Mapping[str, str] | None = None) -> PostgresServer:
        """Start one with these settings on top of the usual ones."""
        ...


def pytest_report_header() -> list[str]:
    """Say which servers the tests use."""
    postgres = ""
    if named := os.environ.get(POSTGRES_VARIABLE):
        try:
            postgres = f"PostgreSQL {postgres_version(named)} at {POSTGRES_VARIABLE}"
        except psycopg.Error as error:
            postgres = f"PostgreSQL at {POSTGRES_VARIABLE} does not answer ({error})"
    if KAFKA_VARIABLE in os.environ:
        kafka = f"Kafka at {KAFKA_VARIABLE}"
    elif has_engine():
        kafka = f"Kafka from the image {KAFKA_IMAGE}"
    else:
        kafka = f"Kafka {KAFKA_VERSION} of the local pair in {pair_folder()}"
    if not postgres and has_engine():
        postgres = f"PostgreSQL from the image {POSTGRES_IMAGE}"
    return [f"servers: {kafka}; {postgres or f'PostgreSQL {embedded_version()} of the local pair'}"]


@cache
def has_engine() -> bool:
    """Whether a container engine answers."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    try:
        asked = subprocess.run(  # noqa: S603 - the docker that was found, no shell
            [docker, "info"], capture_output=True, timeout=ENGINE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


def pair_folder() -> Path:
    """Folder of the pair that all test runs share."""
    return local_folder() / "tests"


def test_pair() -> Pair:
    """The pair that all test runs share: started when it does not run, from empty folders."""
    pair = Pair.at(
        pair_folder(), kafka_settings=FAST_FAILURES, postgres_settings={"max_connections": "300"}
    )
    with pair.lock():
        for server in (pair.postgres, pair.kafka):
            if not server.is_running():
                shutil.rmtree(server.home, ignore_errors=True)
            server.start()
    return pair


test_pair.__test__ = False  # type: ignore[attr-defined]  # a function of ours, not a test


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker that all tests share: use `unique` for topics, groups and transactional ids."""
    if named := os.environ.get(KAFKA_VARIABLE):
        probe_kafka(named)
        yield Kafka(named, KAFKA_VARIABLE)
    elif has_engine():
        with ExitStack() as stack:
            yield _kafka_container(stack)
    else:
        yield Kafka(test_pair().kafka.bootstrap, "the local pair")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that all tests share: use `database`."""
    if named := os.environ.get(POSTGRES_VARIABLE):
        probe_postgres(named)
        yield Postgres(named, POSTGRES_VARIABLE)
    elif has_engine():
        with ExitStack() as stack:
            yield _postgres_container(stack)
    else:
        yield Postgres(test_pair().postgres.dsn, "the local pair")


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """Connection string of an empty database, the test's own, dropped after it."""
    dsn = postgres.new_database()
    yield dsn
    postgres.drop_database(dsn)


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes names that no other test has: `unique("orders")` gives `orders-3f9c…`."""
    mark = uuid.uuid4().hex[:10]
    return lambda name: f"{name}-{mark}"


@pytest.fixture
def own_kafka() -> Iterator[OwnKafka]:
    """Makes brokers of the test's own; they are gone after it."""
    with ExitStack() as stack:

        def make(settings: Mapping[str, str] | None = None) -> KafkaServer:
            home = _open_folder(stack)
            server = KafkaServer(
                home / "kafka",
                jars=jar_folder(),
                settings={**FAST_FAILURES, **(settings or {})},
                java_options=QUICK_START,
            )
            stack.callback(server.kill)
            server.start()
            return server

        yield make


@pytest.fixture
def own_postgres() -> Iterator[OwnPostgres]:
    """Makes PostgreSQL servers of the test's own; they are gone after it."""
    with ExitStack() as stack:

        def make(settings: Mapping[str, str] | None = None) -> PostgresServer:
            server = PostgresServer(_open_folder(stack) / "postgres", settings=settings)
            stack.callback(server.kill)
            server.start()
            return server

        yield make


def _open_folder(stack: ExitStack) -> Path:
    # pytest's own folders are closed to the account that PostgreSQL runs under when we are root.
    end_orphans()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    me = psutil.Process()
    (folder / "owner").write_text(f"{me.pid} {me.create_time()}")
    return folder


def end_orphans() -> None:
    """End the servers that a killed test run left, and remove their folders."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not _is_owned(folder):
            for home in folder.iterdir():
                KafkaServer(home, jars=jar_folder()).kill()  # whichever server it is
            shutil.rmtree(folder, ignore_errors=True)


def _is_owned(folder: Path) -> bool:
    try:
        pid, created = (folder / "owner").read_text().split()
        return abs(psutil.Process(int(pid)).create_time() - float(created)) < 1.0
    except psutil.NoSuchProcess:
        return False
    except (OSError, ValueError):
        return True  # another run is making it just now, or it is no folder of ours


def _kafka_container(stack: ExitStack) -> Kafka:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - optional

    port = free_port()
    settings = {
        **ONE_NODE,
        **FAST_FAILURES,
        "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": "1@127.0.0.1:9093",
    }
    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(9092, port)
    for name, value in settings.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    stack.enter_context(container)
    _until_it_works(lambda: probe_kafka(f"127.0.0.1:{port}"))
    return Kafka(f"127.0.0.1:{port}", KAFKA_IMAGE)


def _postgres_container(stack: ExitStack) -> Postgres:
    from testcontainers.postgres import PostgresContainer  # noqa: PLC0415 - optional

    container = stack.enter_context(PostgresContainer(POSTGRES_IMAGE, driver=None))
    dsn = str(container.get_connection_url())
    _until_it_works(lambda: probe_postgres(dsn))
    return Postgres(dsn, POSTGRES_IMAGE)


def _until_it_works(probe: Callable[[], None]) -> None:
    from tenacity import retry, stop_after_delay, wait_fixed  # noqa: PLC0415 - containers only

    retry(stop=stop_after_delay(90), wait=wait_fixed(0.5), reraise=True)(probe)()


if __name__ == "__main__":  # `make stop`
    end_orphans()
    Pair.at(pair_folder()).down()
