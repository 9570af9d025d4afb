"""`refold worker`: fold the partitions that the group gives to this process.

Law of this module: composes a worker from settings; the worker itself knows no settings file,
no signal and no HTTP.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated

import structlog
import typer
from confluent_kafka import KafkaException

from refold.cli.load import load_workflows
from refold.cli.logs import Level, configure
from refold.cli.process import serve
from refold.cli.supervisor import supervise
from refold.processors.clients import KafkaClients
from refold.processors.definition import Workflow
from refold.processors.endpoint import Endpoint
from refold.processors.service import build_worker
from refold.snapshots.sessions import address_of
from refold.topics.failures import kafka_error
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import events_topic

_LOG = structlog.get_logger("refold.worker")
ANSWER_S = 5.0
"""Longest wait for Kafka's first answer; the worker itself waits without an end."""
END_S = 10.0
"""How long threads that are still busy may keep a worker that has stopped."""

app = typer.Typer()


@app.command("worker")
def worker(
    definitions: Annotated[
        list[str], typer.Argument(metavar="MODULE:NAME…", help="Definitions to fold.")
    ],
    processes: Annotated[
        int, typer.Option(min=1, max=256, help="Worker processes to run on this machine.")
    ] = 1,
    log_level: Annotated[
        Level, typer.Option(case_sensitive=False, help="The least that is told.")
    ] = Level.INFO,
) -> None:
    """Fold the partitions that the group gives to this process, until SIGTERM or Ctrl-C."""
    configure(log_level)
    settings = load_settings()
    workflows = load_workflows(definitions)
    port = settings.worker.http_port
    if processes > 1:
        raise typer.Exit(supervise([*definitions, "--log-level", log_level], processes, port))
    _tell_start(settings, workflows)
    running = build_worker(settings, workflows)
    endpoint = Endpoint(running.health, settings.worker.http_host, port) if port >= 0 else None
    if endpoint is not None:
        endpoint.start()
    serve(running.run, running.stop, END_S)


def _tell_start(settings: Settings, workflows: Mapping[str, Workflow]) -> None:
    """Say what will be folded, and with which servers: a wrong address is seen at once."""
    bootstrap = settings.kafka.bootstrap
    _LOG.info(
        "starting",
        version=version("refold"),
        group=settings.group,
        workflows={name: list(each.versions) for name, each in workflows.items()},
        kafka=bootstrap,
        postgres=address_of(settings.postgres.dsn),
    )
    try:
        found = KafkaClients(settings).admin().list_topics(timeout=ANSWER_S)
    except KafkaException as failure:
        error = kafka_error(failure, "asking for its topics", bootstrap=bootstrap)
        _LOG.warning("not connected to Kafka yet", error=str(error))
        return
    topics = [events_topic(settings.namespace, name) for name in workflows]
    _LOG.info(
        "connected to Kafka",
        brokers=[f"{each.host}:{each.port}" for each in found.brokers.values()],
        partitions={
            topic: len(found.topics[topic].partitions) for topic in topics if topic in found.topics
        },
        missing=[topic for topic in topics if topic not in found.topics],
    )
