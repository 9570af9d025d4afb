"""The engine's own events on a workflow's topic: an operator's acts, as facts on the log.

Law of this module: types and their names only. They stand under the instance's key with source
`/refold/<role>/<who>`; who may write to the topic may send them, and nobody else.
"""

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


REDRIVE: Final[Codec[Any]] = codec_of(Redrive)
TERMINATE: Final[Codec[Any]] = codec_of(Terminate)
