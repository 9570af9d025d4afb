"""Logs of long-running commands: one line an event, JSON where nobody is looking.

Law of this module: configures structlog once, at the start of a process.
"""

import logging
import sys
from collections.abc import Callable, MutableMapping
from enum import StrEnum
from time import monotonic
from typing import Any, Final

import structlog

from refold.processors.health import BACK, SERVERS

EVERY_S: Final = 10.0
"""Pause between two lines about one server that is away."""


class Level(StrEnum):
    """How much is told."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Seldom:
    """Tells that a server is away when it goes and once in a while, not for each failed try.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._next_s: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def __call__(
        self, logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass an event on, with how many were held back before it, or hold it back."""
        if event.get("event") == BACK:
            self._next_s.pop(event["code"], None)
            self._held.pop(event["code"], None)
            return event
        code = str(event.get("error", "")).partition(":")[0]
        if code not in SERVERS:
            return event
        now_s = self._clock()
        if now_s < self._next_s.get(code, 0.0):
            self._held[code] = self._held.get(code, 0) + 1
            raise structlog.DropEvent
        self._next_s[code] = now_s + EVERY_S
        held = self._held.pop(code, 0)
        if held:
            event["held_back"] = held
        return event


def configure(level: Level = Level.INFO) -> None:
    """Write logs to stderr, for a person on a terminal and as JSON lines elsewhere.

    Args:
        level: The least that is told; DEBUG tells each failed try while a server is away.
    """
    seldom: list[structlog.typing.Processor] = [] if level is Level.DEBUG else [Seldom()]
    human = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if human else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *seldom,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
