"""The headers of a record, read so that no record can end the process.

Law of this module: headers are read through `headers_of` and nowhere else. Kafka's header names
are bytes, the client's are text: for a name that is not UTF-8 it raises, and holds a broken list
from then on which ends the process at the next look (confluent-kafka 2.16). Such headers are
replaced by one that says so; the record is refused for them, and its bytes stay where they are.
"""

from collections.abc import Sequence
from operator import methodcaller
from typing import Final, TypeAlias

from confluent_kafka import Message

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""Headers as the client takes them; what is written here is always bytes."""
RawHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Headers as anybody may have written them."""

UNREADABLE: Final = "refold-unreadable-headers"
"""Name of the header that stands in place of those that the client cannot hold."""


_UNREADABLE: Final[RawHeaders] = [(UNREADABLE, b"a header's name is not UTF-8")]

_read = methodcaller("headers")
"""`message.headers()`, by a path on which Python checks what the client's C code gives. Python's
own fast path does not: the error would surface somewhere later, or the broken list be used."""


def headers_of(message: Message) -> RawHeaders:
    """Every header in order, repeated ones too; empty where there is none."""
    try:
        return _read(message) or ()
    except SystemError:
        message.set_headers(list(_UNREADABLE))
        return _UNREADABLE
