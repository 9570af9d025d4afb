"""One worker process of the demo: an ordinary worker behind the crash matrix's seam.

Law of this module: everything that ends this process stands in the plan that it is given; the
worker itself knows nothing of it.
"""

import gc
import os
import signal
import sys
from types import FrameType
from typing import Final

import msgspec
import structlog

from refold.examples.incident import incident
from refold.processors.definition import Workflow
from refold.processors.service import build_worker
from refold.testing.boundary import Plan, wrap
from refold.topics.settings import load_settings

PLAN: Final = "DEMO_PLAN"
"""Variable that holds the plan as JSON."""


def main() -> None:
    """Fold until SIGTERM, or until the plan comes due."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=None),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )
    plan = msgspec.json.decode(os.environ[PLAN], type=Plan)
    workflow = Workflow("incident", [incident.build()])
    worker = build_worker(load_settings(), {"incident": workflow}, wrap=wrap(plan))

    def stop(number: int, frame: FrameType | None) -> None:
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    worker.run()


if __name__ == "__main__":
    main()
