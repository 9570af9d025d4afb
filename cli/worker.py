"""`refold worker`: fold the partitions that the group gives to this process.

Law of this module: composes a worker from settings; the worker itself knows no settings file,
no signal and no HTTP.
"""

import gc
import signal
from types import FrameType
from typing import Annotated

import typer

from refold.cli.load import load_workflows
from refold.processors.service import build_worker
from refold.topics.settings import load_settings

app = typer.Typer()


@app.command("worker")
def worker(
    definitions: Annotated[
        list[str], typer.Argument(metavar="MODULE:NAME…", help="Definitions to fold.")
    ],
) -> None:
    """Fold the partitions that the group gives to this process, until SIGTERM or Ctrl-C."""
    settings = load_settings()
    workflows = load_workflows(definitions)
    running = build_worker(settings, workflows)

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # signal's signature
        running.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # Instance records are many, long-lived and free of cycles: the collector's default would
    # walk them again and again (docs/figures.md).
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    running.run()
