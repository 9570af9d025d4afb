"""Times as the headers write them: RFC 3339 in UTC with milliseconds.

Law of this module: text from a number given by the caller; no clock is read here.
"""

from datetime import UTC, datetime


class Rfc3339:
    """Writes milliseconds since the epoch; the last one is kept, for batches share their time."""

    def __init__(self) -> None:
        self._last_ms = -1
        self._last = b""

    def of(self, ms: int) -> bytes:
        """`2026-01-31T08:15:00.250Z` for milliseconds since the epoch, 0 or more."""
        if ms != self._last_ms:
            self._last_ms, self._last = ms, rfc3339(ms).encode()
        return self._last


def rfc3339(ms: int) -> str:
    """`2026-01-31T08:15:00.250Z` for milliseconds since the epoch, 0 or more."""
    second, rest = divmod(ms, 1000)
    moment = datetime.fromtimestamp(second, UTC)
    return f"{moment.replace(tzinfo=None).isoformat()}.{rest:03d}Z"
