"""`refold executor`: act on the outside world for the commands of one target.

Law of this module: composes a service from settings; the service knows no settings file, no
signal and no HTTP.
"""

from importlib.metadata import version
from typing import Annotated

import structlog
import typer

from refold.cli.load import load_executor
from refold.cli.logs import Level, configure
from refold.cli.process import serve
from refold.cli.supervisor import supervise
from refold.executors.health import StatusCollector
from refold.executors.service import Service
from refold.processors.endpoint import Endpoint
from refold.snapshots.sessions import address_of
from refold.topics.settings import load_settings

_LOG = structlog.get_logger("refold.executor")
END_S = 5.0
"""How long a handler that never returns may keep a process that has stopped."""

app = typer.Typer()


@app.command("executor")
def executor(
    declared: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The Executor that declares the actions.")
    ],
    processes: Annotated[
        int, typer.Option(min=1, max=256, help="Executor processes to run on this machine.")
    ] = 1,
    log_level: Annotated[
        Level, typer.Option(case_sensitive=False, help="The least that is told.")
    ] = Level.INFO,
) -> None:
    """Do what commands ask for, through the ledger, until SIGTERM or Ctrl-C."""
    configure(log_level)
    settings = load_settings()
    own = settings.executor
    found = load_executor(declared)
    if processes > 1:
        arguments = [declared, "--log-level", log_level]
        raise typer.Exit(supervise(arguments, processes, own.http_port, command="executor"))
    _LOG.info(
        "starting",
        version=version("refold"),
        target=found.target,
        actions={name: str(each.truth.mode) for name, each in found.actions.items()},
        kafka=settings.kafka.bootstrap,
        ledger=address_of(settings.ledger_dsn),
    )
    service = Service(settings, found)
    if own.http_port >= 0:
        collector = StatusCollector(service.health)
        Endpoint(service.health, own.http_host, own.http_port, collector).start()
    serve(service.run, service.stop, END_S)
