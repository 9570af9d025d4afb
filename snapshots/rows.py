"""Frozen rows as what COPY sends, and contexts that JSONB can hold.

Law of this module: pure. A value that a column cannot hold is replaced and marked, never an error:
these rows are a projection, the canonical snapshot holds the truth (B031 to B033).
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

from refold.snapshots.model import EventRow, InstanceRow, Snapshot

Row = TypeVar("Row", EventRow, InstanceRow)

SNAPSHOT_TYPES: Final = (
    "text", "int4", "text", "text", "int4", "int4", "text", "text", "int8", "text", "text",
    "bytea", "bytea",
)  # fmt: skip
EVENT_TYPES: Final = (
    "text", "int4", "int8", "text", "text", "text", "text", "text", "text", "int8",
    "text", "text", "text", "text", "text[]", "text", "text",
)  # fmt: skip
INSTANCE_TYPES: Final = (
    "text", "int4", "text", "text", "int4", "text", "int8", "text",
    "bytea", "bool", "int4", "int8", "text", "text", "int8", "text",
    "text", "int8", "int8", "bytea", "bytea",
)  # fmt: skip
# A timestamptz on the wire is an int8 of µs, a jsonb is a version byte and text: sending them as
# int8 and bytea saves a datetime and a parse for each row.

_YEAR_2000_MS: Final = 946_684_800_000
LEAST_MS: Final = -62_135_596_800_000
"""0001-01-01: the first day that Python's clients can read back."""
MOST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999: the last moment that they can."""
_DIGITS: Final = 4_000
"""Longest number that is passed on: JSONB holds 131,072 digits, people read far fewer."""


def snapshot_values(
    workflow: str, partition: int, rows: Iterable[Snapshot]
) -> Iterator[tuple[Any, ...]]:
    """Columns of `snapshot_copy`."""
    for r in rows:
        yield (
            workflow, partition, r.tenant, r.instance, r.version, r.definition, r.fingerprint,
            r.state, r.last_offset, r.last_source, r.last_id, r.data, r.hash,
        )  # fmt: skip


def event_values(
    topic_id: str, partition: int, workflow: str, rows: Sequence[EventRow]
) -> Iterator[tuple[Any, ...]]:
    """Columns of `event_copy`."""
    for r in rows:
        yield (
            topic_id, partition, r.offset, workflow, r.tenant, r.instance, r.source, r.id, r.type,
            micros(r.log_time_ms), r.verdict, r.transition, r.state_before, r.state_after,
            list(r.commands), r.code, plain(r.text),
        )  # fmt: skip


def instance_values(
    workflow: str, partition: int, rows: Sequence[InstanceRow]
) -> Iterator[tuple[Any, ...]]:
    """Columns of `instance_stage_copy`."""
    for r in rows:
        context, lossy = storable(r.context)
        yield (
            workflow, partition, r.tenant, r.instance, r.definition, r.state,
            micros(r.state_since_ms), r.run_status, b"\x01" + context, r.lossy or lossy, r.version,
            r.last_offset, r.last_source, r.last_id,
            None if r.due_ms is None else micros(r.due_ms), r.failure_code,
            None if r.failure_text is None else plain(r.failure_text),
            micros(r.created_ms), micros(r.updated_ms),
            None if r.timers is None else b"\x01" + r.timers,
            None if r.actions is None else b"\x01" + r.actions,
        )  # fmt: skip


def micros(time_ms: int) -> int:
    """A timestamptz on the wire: µs since 2000-01-01 from ms since 1970-01-01.

    Log times are the broker's, but a topic that was not always on LogAppendTime may hold what a
    sender took for ms; rows for people stay between the years 1 and 9999.
    """
    return (min(max(time_ms, LEAST_MS), MOST_MS) - _YEAR_2000_MS) * 1000


def plain(text: str) -> str:
    """Text that a text column holds: NUL and lone surrogates become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    kept = text.replace("\0", "\ufffd")
    return kept.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def storable(context: bytes) -> tuple[bytes, bool]:
    r"""JSON that JSONB accepts, and whether something of it was lost.

    The quick look finds every escape, which is the only way to NUL and lone surrogates in JSON,
    and the words that are no JSON; only then is it parsed.
    """
    if context and not (b"\\u" in context or b"NaN" in context or b"Infinity" in context):
        return context, False
    try:
        document = json.loads(context, parse_int=_integer)
    except (ValueError, RecursionError):
        return b"{}", True
    kept = _kept(document)
    text = json.dumps(kept, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(), kept != document


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _DIGITS else math.inf


def _kept(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return plain(value)
        case list():
            return [_kept(item) for item in value]
        case dict():
            return {plain(key): _kept(item) for key, item in value.items()}
        case _:
            return value


def tidied(row: Row) -> Row:
    """The same row with every text made plain: used once the server has refused a batch."""
    changes = {
        name: plain(value)
        for name in row.__struct_fields__
        if isinstance(value := getattr(row, name), str)
    }
    return msgspec.structs.replace(row, **changes)
