"""A worker in a thread of the test, behind ports that a test may wrap."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from time import time
from typing import Any

from msgspec.structs import replace
from tests.crash.scene import SESSION_MS, Scene

from refold.examples.order import order
from refold.processors.definition import Workflow
from refold.processors.service import build_worker, options_of
from refold.processors.worker import Worker
from refold.topics.settings import Settings, load_settings

Wrap = Callable[[Any, Any], tuple[Any, Any]]


def settings_of(
    scene: Scene,
    worker: Mapping[str, Any] | None = None,
    kafka: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings of a worker of this scene."""
    return load_settings(
        namespace=scene.namespace,
        kafka={"bootstrap": scene.bootstrap, **(kafka or {})},
        postgres={"dsn": scene.dsn},
        worker={
            "session_timeout_ms": SESSION_MS,
            "batch_ms": 20,
            "freshness_s": 0.1,
            "snapshot_max_age_s": 0.05,
            **(worker or {}),
        },
    )


@contextmanager
def running(
    scene: Scene,
    *,
    wrap: Wrap | None = None,
    workflow: Workflow | None = None,
    worker: Mapping[str, Any] | None = None,
    workflows: Sequence[Workflow] = (),
    options: Mapping[str, Any] | None = None,
    kafka: Mapping[str, Any] | None = None,
    wall: Callable[[], float] = time,
) -> Iterator[Worker]:
    """Runs a worker for the length of a block; its failure is the test's."""
    folded = workflows or [workflow or Workflow("order", [order])]
    settings = settings_of(scene, worker, kafka)
    made = build_worker(
        settings,
        {each.name: each for each in folded},
        wrap=wrap,
        options=replace(options_of(settings), **(options or {})),
        wall=wall,
    )
    failures: list[BaseException] = []

    def run() -> None:
        try:
            made.run()
        except BaseException as failure:
            failures.append(failure)

    thread = Thread(target=run, name="worker")
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(30)
    assert not thread.is_alive(), "the worker did not stop"
    if failures:
        raise failures[0]
