"""The engine's own events on a workflow's topic: acts of operators, reports of executors, time.

Law of this module: types and their names only. They stand under the instance's key with source
`/refold/<role>/<who>`; who may write to the topic may send them, and nobody else.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from refold.schemas.codec import Codec, codec_of
from refold.schemas.types import Event

PREFIX: Final = "refold."
"""Types that begin so are the engine's: refused from publishers and in definitions."""


class Redrive(Event):
    """A parked instance goes on: its queue is folded again, in order (P14)."""

    __avro_name__: ClassVar[str] = "refold.redrive"

    offsets: tuple[int, ...]
    """The first offsets of its queue, in order; empty: all that are queued at this record."""
    version: int
    """Version of the definition that it goes on with; 0: the one that it has."""
    who: str
    why: str


class Terminate(Event):
    """An instance ends here, whatever its state."""

    __avro_name__: ClassVar[str] = "refold.terminate"

    reason: str
    who: str


class Failed(Event):
    """An attempt of an action certainly did nothing."""

    __avro_name__: ClassVar[str] = "refold.failed"

    code: str
    """Class of the failure, for `Retry.never` and for people."""
    text: str
    retry: bool
    """False: no other attempt can cure it."""
    retry_after_ms: int
    """The other side asks for so much time before the next attempt."""


class Unknown(Event):
    """An attempt of an action may have been done, and nobody knows yet."""

    __avro_name__: ClassVar[str] = "refold.unknown"

    text: str


class Succeeded(Event):
    """An action was done and has no event of the user's to say so, or there was nothing to do."""

    __avro_name__: ClassVar[str] = "refold.succeeded"

    text: str


class Rung(Event):
    """A timer of an instance is due (P26)."""

    __avro_name__: ClassVar[str] = "refold.timer"

    id: str
    name: str
    due_ms: int


class Scheduled(Event):
    """What a schedule's declaration says, as the owner of its partition finds it."""

    __avro_name__: ClassVar[str] = "refold.schedule"

    cron: str
    zone: str
    starts: str
    """Workflow whose instances it starts."""
    catch_up: int
    paused: bool
    at_ms: int
    """The owner's wall clock."""
    next_ms: int
    """The next occurrence after it; likewise by the zone's clock."""
    local: str
    rules: str
    """Version of the zones' rules by which it was calculated."""


class Occurrence(Event):
    """An occurrence of a schedule is due: what becomes of it, and which one is next."""

    __avro_name__: ClassVar[str] = "refold.occurrence"

    id: str
    """Of the timer."""
    name: str
    due_ms: int
    at_ms: int
    """The owner's wall clock."""
    outcome: str
    """`start`, `skip`, `undeclared` or `failed`."""
    skipped: int
    """So many occurrences from this one on are not started."""
    next_ms: int
    local: str
    rules: str
    workflow: str
    """What is started: an instance of this workflow, by an event of this type and value."""
    instance: str
    type: str
    value: bytes
    text: str
    """Why it failed."""


REDRIVE: Final[Codec[Any]] = codec_of(Redrive)
TERMINATE: Final[Codec[Any]] = codec_of(Terminate)
FAILED: Final[Codec[Any]] = codec_of(Failed)
UNKNOWN: Final[Codec[Any]] = codec_of(Unknown)
SUCCEEDED: Final[Codec[Any]] = codec_of(Succeeded)
TIMER: Final[Codec[Any]] = codec_of(Rung)
SCHEDULE: Final[Codec[Any]] = codec_of(Scheduled)
OCCURRENCE: Final[Codec[Any]] = codec_of(Occurrence)
ORDERS: Final = frozenset({REDRIVE.name, TERMINATE.name})
"""An operator's acts: they never wait in a queue."""
ENGINE: Final[Mapping[str, Codec[Any]]] = {
    codec.name: codec
    for codec in (
        *(REDRIVE, TERMINATE, FAILED, UNKNOWN, SUCCEEDED),
        *(TIMER, SCHEDULE, OCCURRENCE),
    )
}
"""Every type of the engine's own, by name."""
