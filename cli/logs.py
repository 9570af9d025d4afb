"""Logs of long-running commands: one line an event, JSON where nobody is looking.

Law of this module: configures structlog once, at the start of a process.
"""

import logging
import sys

import structlog


def configure(level: str = "info") -> None:
    """Write logs to stderr, for a person on a terminal and as JSON lines elsewhere.

    Args:
        level: debug, info, warning or error.
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
