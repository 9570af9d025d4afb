"""One worker process of the crash matrix: an ordinary worker behind the seam."""

import os
import signal

import msgspec

from refold.cli.logs import configure
from refold.cli.process import serve
from refold.examples.order import order
from refold.processors.definition import Workflow
from refold.processors.service import build_worker
from refold.testing.boundary import Plan, wrap
from refold.topics.settings import load_settings

END_S = 10.0


def main() -> None:
    text = os.environ.get("CRASH_PLAN")
    plan = msgspec.json.decode(text, type=Plan) if text else None
    configure()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until it can be heeded
    workflow = Workflow("order", [order])
    worker = build_worker(load_settings(), {"order": workflow}, wrap=wrap(plan))

    def run() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        worker.run()

    serve(run, worker.stop, END_S)


if __name__ == "__main__":
    main()
