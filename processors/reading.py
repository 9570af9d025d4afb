"""An event's bytes become the author's object, or a reason why not.

Law of this module: total. A type that the definition does not know is not read: the graph will
refuse it, or a final state's default will take it.
"""

from typing import Any, Final

import msgspec

from refold.processors.definition import Definition
from refold.processors.engine_events import ENGINE
from refold.processors.records import plain, raised
from refold.schemas.codec import Codec
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, RecordError
from refold.schemas.verdicts import Reason

PARKING: Final = frozenset({Code.SCHEMA_UNKNOWN, Code.UPCASTER_RAISED})
"""Reasons that park an existing instance: a schema that comes later or a new version cures them."""


class Unreadable(msgspec.Struct, frozen=True):
    """Stands in place of an object that could not be read."""

    reason: Reason


def read(definition: Definition, event: EventRecord) -> Any:
    """Decode an event's value; `Unreadable` when it cannot be, None for an unknown type."""
    codec = definition.events.get(event.type) or ENGINE.get(event.type)
    return None if codec is None else decoded(codec, event.value)


def decoded(codec: Codec[Any], value: bytes) -> Any:
    """Decode a value; `Unreadable` when it cannot be."""
    try:
        return codec.decode(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a user's type may raise anything while it is made
        return Unreadable(unreadable(error))


def unreadable(error: BaseException) -> Reason:
    """Why a value could not be decoded: an unknown schema, or bad bytes."""
    if isinstance(error, RecordError):
        return Reason(error.code, plain(error.what))
    return Reason(Code.UNDECODABLE, raised(error))
