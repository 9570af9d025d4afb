"""Stages of the worker's tests, for executors beside a worker."""

from tests.kafka.worker.conftest import one, stage_of

__all__ = ["one", "stage_of"]
