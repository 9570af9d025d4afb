"""`refold executor`: act on the outside world for the commands of one target.

Law of this module: composes a service from settings; the service knows no settings file and no
signal.
"""

import signal
from types import FrameType
from typing import Annotated

import typer

from refold.cli.load import load_executor
from refold.cli.logs import Level, configure
from refold.executors.service import Service
from refold.topics.settings import load_settings

app = typer.Typer()


@app.command("executor")
def executor(
    declared: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The Executor that declares the actions.")
    ],
    log_level: Annotated[
        Level, typer.Option(case_sensitive=False, help="The least that is told.")
    ] = Level.INFO,
) -> None:
    """Do what commands ask for, through the ledger, until SIGTERM or Ctrl-C."""
    configure(log_level)
    settings = load_settings()
    service = Service(settings, load_executor(declared), settings.ledger_dsn)

    def stop(number: int, frame: FrameType | None) -> None:
        service.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    service.run()
