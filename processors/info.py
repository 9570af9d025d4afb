"""What a reducer may know of its step beside context and event: time, ids, randomness.

Law of this module: everything here is derived from the log, so a replay sees the same (design:
fold time, derived values). Offered as the optional third parameter of a user's function.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from refold.processors.instance import Instance
from refold.processors.keys import derived_bytes
from refold.schemas.envelope import EventRecord

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StepInfo:
    """One step as a user's function may see it."""

    __slots__ = ("_count", "_event", "_workflow", "instance", "state", "tenant", "time_ms")

    def __init__(self, workflow: str, instance: Instance, event: EventRecord, time_ms: int) -> None:
        self._workflow = workflow
        self._event = event
        self._count = 0
        self.tenant = instance.tenant
        self.instance = instance.id
        """Instance id: the business key."""
        self.state = instance.state
        """State before the step."""
        self.time_ms = time_ms
        """Fold time in milliseconds since the epoch: never falls for an instance (P25)."""

    @property
    def time(self) -> datetime:
        """Fold time as an aware UTC datetime."""
        return _EPOCH + timedelta(milliseconds=self.time_ms)

    @property
    def event_id(self) -> str:
        """Id of the event."""
        return self._event.id

    @property
    def event_source(self) -> str:
        """Source of the event."""
        return self._event.source

    @property
    def event_time(self) -> str | None:
        """`ce_time` as the sender wrote it: data, not the fold's time."""
        return self._event.time

    def _next(self) -> bytes:
        count = self._count
        self._count = count + 1
        identity = self._event.identity
        return derived_bytes(self.tenant, self._workflow, self.instance, identity, count)

    def new_id(self) -> str:
        """A UUID (RFC 9562, version 8) that a replay draws again."""
        raw = bytearray(self._next())
        raw[6] = raw[6] & 0x0F | 0x80
        raw[8] = raw[8] & 0x3F | 0x80
        return str(UUID(bytes=bytes(raw)))

    def random(self) -> float:
        """A number in [0, 1) with 53 bits that a replay draws again."""
        return (int.from_bytes(self._next()[:8], "big") >> 11) / (1 << 53)
