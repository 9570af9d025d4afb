"""What librdkafka wants to say, as log events, the same thing once in a while.

Law of this module: a client that cannot connect says so twenty times a second; a person reads it
once every ten seconds.
"""

import logging
import sys
from time import monotonic
from typing import Final

import structlog

EVERY_S: Final = 10.0
"""Pause between two lines of one kind."""


class _Seldom(logging.Handler):
    """Passes the first line of each kind, then one every ten seconds with how many it held back."""

    def __init__(self) -> None:
        super().__init__()
        self._log = structlog.get_logger("refold.kafka")
        self._next_s: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Pass or hold back one line."""
        text = record.getMessage()
        kind = text.split(" ", 1)[0]
        now_s = monotonic()
        if now_s < self._next_s.get(kind, 0.0):
            self._held[kind] = self._held.get(kind, 0) + 1
            return
        self._next_s[kind] = now_s + EVERY_S
        if not structlog.is_configured():  # a tool, or a service that logs by other means
            sys.stderr.write(f"kafka client: {text}\n")
            return
        level = logging.getLevelName(record.levelno).lower()
        write = getattr(self._log, level, self._log.warning)
        write("kafka client", text=text, held_back=self._held.pop(kind, 0))


def client_logger() -> logging.Logger:
    """The logger that every Kafka client of this process is given."""
    logger = logging.getLogger("refold.kafka.client")
    if not logger.handlers:
        logger.addHandler(_Seldom())
        logger.propagate = False
    return logger
