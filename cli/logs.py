"""Logs of long-running commands: one line an event, JSON where nobody is looking.

Law of this module: configures structlog once, at the start of a process.
"""

import logging
import sys
from enum import StrEnum

import structlog


class Level(StrEnum):
    """How much is told."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(level: Level = Level.INFO) -> None:
    """Write logs to stderr, for a person on a terminal and as JSON lines elsewhere.

    Args:
        level: The least that is told.
    """
    human = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if human else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
