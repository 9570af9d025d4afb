"""Times as the headers write them: RFC 3339 in UTC with milliseconds.

Law of this module: text from a number given by the caller; no clock is read here.
"""

from datetime import UTC, datetime
from typing import Final

MOST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: RFC 3339 has four digits for a year."""


class Rfc3339:
    """Writes milliseconds since the epoch; the last one is kept, for batches share their time."""

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._last = b""
        self._second, self._prefix = -1, b""

    def of(self, ms: int) -> bytes:
        """`2026-01-31T08:15:00.250Z` for milliseconds since the epoch, 0 or more."""
        if ms != self._last_ms:
            self._last_ms, self._last = ms, self._made(ms)
        return self._last

    def _made(self, ms: int) -> bytes:
        second, rest = divmod(min(max(ms, 0), MOST_MS), 1000)
        if second != self._second:
            self._second, self._prefix = second, rfc3339(ms).encode()[: -len(b"250Z")]
        return b"%b%03dZ" % (self._prefix, rest)


def rfc3339(ms: int) -> str:
    """`2026-01-31T08:15:00.250Z` for milliseconds since the epoch; at most the end of 9999.

    A topic that was not always on LogAppendTime may hold what a sender took for milliseconds: it
    must not stop the fold.
    """
    second, rest = divmod(min(max(ms, 0), MOST_MS), 1000)
    moment = datetime.fromtimestamp(second, UTC)
    return f"{moment.replace(tzinfo=None).isoformat()}.{rest:03d}Z"
