"""A worker process of a stage: workflows, options and its end come from the environment."""

import importlib
import os

import msgspec
from msgspec.structs import replace

from refold.cli.logs import configure
from refold.cli.process import serve
from refold.processors.service import build_worker, options_of
from refold.testing.boundary import Plan, wrap
from refold.topics.settings import load_settings

END_S = 10.0


def main() -> None:
    module, _, name = os.environ["STAGE_WORKFLOW"].partition(":")
    named = getattr(importlib.import_module(module), name)
    workflows = {each.name: each for each in (named if isinstance(named, tuple) else (named,))}
    configure()
    settings = load_settings()
    options = replace(options_of(settings), **msgspec.json.decode(os.environ["STAGE_OPTIONS"]))
    text = os.environ.get("CRASH_PLAN")
    plan = msgspec.json.decode(text, type=Plan) if text else None
    worker = build_worker(settings, workflows, options=options, wrap=wrap(plan))
    serve(worker.run, worker.stop, END_S)


if __name__ == "__main__":
    main()
