"""Named limits of every identifier and size, each with the reason for its number.

Law of this module: constants and pure checks only. Lengths are in UTF-8 bytes.
"""

import re
from typing import Final

NAME_BYTES: Final = 64
"""Namespace, tenant, workflow, target, state, action, type: part of topic names and keys."""
ID_BYTES: Final = 128
"""Instance id and event id: room for a UUID, an order number or a path, never a document."""
SOURCE_BYTES: Final = 256
"""A CloudEvents source is a URI reference."""
KEY_BYTES: Final = 255
"""Idempotency key: the longest that payment providers accept."""
DEDUP_ENTRIES: Final = 1024
"""Default K: event identities that an instance remembers (24 bytes each)."""
REASON_BYTES: Final = 1024
"""Reason text of a refusal: enough for a person, bounded so that headers never grow."""
HEADER_COUNT: Final = 64
"""Headers of one record that are read; more is not a CloudEvent of ours."""
TOPIC_BYTES: Final = 249
"""A topic's name, as Kafka allows it."""
VALUE_BYTES: Final = 1_000_000
"""Default bound of a command's value: below the broker's default of 1,048,588 with headers."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_TYPE: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def name_fault(text: object) -> str | None:
    """What is wrong with a namespace, tenant, workflow, target, state or action; else None."""
    if not isinstance(text, str):  # an author's mistake, told where it was made
        return "is no text"
    if len(text) > NAME_BYTES:
        return f"is longer than {NAME_BYTES} bytes"
    return None if _NAME.match(text) else "does not match [A-Za-z0-9_-]+"


def type_fault(text: str) -> str | None:
    """What is wrong with an event or command type (an Avro full name); None if nothing."""
    if len(text) > NAME_BYTES:
        return f"is longer than {NAME_BYTES} bytes"
    return None if _TYPE.match(text) else "does not match [A-Za-z0-9_-]+ with dots between"


def topic_fault(text: str) -> str | None:
    """What is wrong with the name of a topic; None if nothing."""
    if len(text) > TOPIC_BYTES:
        return f"is longer than {TOPIC_BYTES} bytes"
    return None if _TOPIC.match(text) and text.strip(".") else "is no name of a topic"


def id_fault(text: str, limit: int = ID_BYTES) -> str | None:
    """What is wrong with an instance id, event id or source; None if nothing."""
    if not text:
        return "is empty"
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if length > limit:
        return f"is longer than {limit} bytes"
    return "has control characters" if _CONTROL.search(text) else None


def bounded_text(text: str, limit: int = REASON_BYTES) -> str:
    """A reason's text cut to its limit in UTF-8 bytes; what UTF-8 cannot hold is escaped.

    Bounding twice changes nothing, so a reason read back from the log equals the one in state.
    """
    raw = text.encode(errors="backslashreplace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - 3].decode(errors="ignore") + "…"
