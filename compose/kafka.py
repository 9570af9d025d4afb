"""One Apache Kafka broker in KRaft mode, run from its jars.

Law of this module: the broker's settings differ from Kafka's defaults only where one node or a
short test needs it; everything that refold relies on in production is left as a broker ships it.
"""

import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from refold.local.jars import Progress, ensure_jars
from refold.local.java import find_java
from refold.local.server import Server, free_port
from refold.schemas.errors import Code, ServerError

KAFKA_VERSION: Final = "4.1.1"
HEAP_MB: Final = 768
FORMAT_TIMEOUT_S: Final = 60.0

ONE_NODE: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # one node holds the only replica of everything
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 partitions each would slow every start and serve nobody here
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # a single worker need not wait for others to join
    "group.initial.rebalance.delay.ms": "0",
    # after a kill the broker must outwait its own last registration: three seconds, not nine
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # a mistyped topic name is an error, not a new topic
    "auto.create.topics.enable": "false",
}
FAST_FAILURES: Final[Mapping[str, str]] = {
    # a dead or paused worker is noticed in half a second instead of six
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # a transaction that timed out is aborted within a second instead of ten
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""For the brokers of tests and of the demo: failures are noticed soon, so that both are short."""

QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java options that halve the work of a start and cost throughput: for brokers of one test."""


class KafkaServer(Server):
    """A broker on 127.0.0.1.

    Args:
        home: Folder for data, log and pid file.
        port: TCP port; None takes that of the last start, else a free one.
        jars: Folder where jars are cached.
        settings: Broker settings on top of `ONE_NODE`.
        java_options: Options of the broker's Java.
        progress: Told about jars while they are downloaded.
    """

    name = "Kafka"
    option = "--kafka-port"

    def __init__(
        self,
        home: Path,
        port: int | None = None,
        *,
        jars: Path,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        super().__init__(home, port)
        self._java_options = java_options
        self._jars = jars
        self._settings = dict(settings or {})
        self._progress = progress

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def prepare(self, port: int) -> None:
        """Write the broker's settings; format its folder the first time."""
        data = self.home / "data"
        settings = {**ONE_NODE, **self._listeners(port), "log.dirs": str(data), **self._settings}
        lines = (f"{name}={value}\n" for name, value in settings.items())
        self._properties.write_text("".join(lines))
        if not (data / "meta.properties").exists():
            self._format()

    def command(self, port: int) -> Sequence[str]:
        """Java with the broker's main class."""
        return self._java(self._java_options, "kafka.Kafka", str(self._properties))

    def environment(self) -> Mapping[str, str]:
        """Ours, without variables by which a Java of the machine would be told other options."""
        ignored = {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
        return {name: value for name, value in os.environ.items() if name not in ignored}

    def probe(self) -> None:
        """Produce in a transaction, consume it, commit an offset: all coordinators are there."""
        from refold.local.probe import probe_kafka  # noqa: PLC0415 - loads the Kafka client

        probe_kafka(self.bootstrap)

    @property
    def _properties(self) -> Path:
        return self.home / "server.properties"

    @cached_property
    def _java_and_classpath(self) -> tuple[str, str]:
        jars = ensure_jars(self._jars, self._progress)
        return str(find_java()), os.pathsep.join(map(str, jars))

    def _java(self, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        java, classpath = self._java_and_classpath
        heap = [f"-Xmx{HEAP_MB}m", "-Xms128m"]
        logging = ["-Dlog4j2.level=WARN", f"-Dkafka.logs.dir={self.home}"]
        return [java, *heap, *logging, *options, "-cp", classpath, main, *arguments]

    def _listeners(self, port: int) -> dict[str, str]:
        controller = free_port()
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }

    def _format(self) -> None:
        cluster = "refold" + uuid.uuid4().hex[:16]
        arguments = ("format", "--cluster-id", cluster, "--config", str(self._properties))
        result = subprocess.run(  # noqa: S603 - a command line of our own making
            self._java(QUICK_START, "kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
            env=dict(self.environment()),
        )
        if result.returncode:
            raise ServerError(
                Code.LOCAL_START,
                f"Kafka's folder could not be formatted: {result.stdout}{result.stderr}",
                "`refold local reset` starts from nothing.",
            )
