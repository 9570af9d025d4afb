"""`refold worker`: fold the partitions that the group gives to this process.

Law of this module: composes a worker from settings; the worker itself knows no settings file,
no signal and no HTTP.
"""

import faulthandler
import gc
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from refold.cli.load import load_workflows
from refold.cli.logs import Level, configure
from refold.cli.supervisor import supervise
from refold.processors.endpoint import Endpoint
from refold.processors.service import build_worker
from refold.processors.worker import Worker
from refold.topics.settings import load_settings

SWITCH_S = 0.0005
"""How long a thread that computes keeps the interpreter from one that waits for it."""

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
    running = build_worker(settings, workflows)
    endpoint = Endpoint(running.health, settings.worker.http_host, port) if port >= 0 else None
    if endpoint is not None:
        endpoint.start()
    _run(running)


def _run(running: Worker) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        running.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # Instance records are many, long-lived and free of cycles: the collector's default would
    # walk them again and again (docs/figures.md).
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    # The saver computes while the loop waits for Kafka; the loop must not wait 5 ms for its turn.
    sys.setswitchinterval(SWITCH_S)
    running.run()
    # The interpreter waits for threads that a frozen server never answers; nobody else does.
    faulthandler.dump_traceback_later(END_S, exit=True)
