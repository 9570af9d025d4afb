"""Passing over fields that the reader does not have.

Law of this module: it walks any Avro schema, recursive ones too, and gives the position behind
the value; what is passed over is not checked beyond what finding its end needs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from refold.schemas.varint import Damage, read_count, read_length, read_long

_FIXED_BYTES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def skipper(schema: Any, named: Mapping[str, Any]) -> Callable[[bytes, int], int]:
    """A function from (bytes, position of a value) to the position behind it."""

    def skip(data: bytes, at: int) -> int:
        return _skip(schema, named, data, at)

    return skip


def _skip(schema: Any, named: Mapping[str, Any], data: bytes, at: int) -> int:
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):
        index, at = read_long(data, at)
        if not 0 <= index < len(schema):
            raise Damage("a union has no such branch")
        return _skip(schema[index], named, data, at)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind in _FIXED_BYTES:
        return at + _FIXED_BYTES[kind]
    if kind in ("int", "long", "enum"):
        return read_long(data, at)[1]
    if kind in ("string", "bytes"):
        size, at = read_length(data, at)
        return at + size
    if kind == "fixed":
        return at + int(schema["size"])
    if kind in ("array", "map"):
        return _skip_blocks(schema, named, data, at)
    for field in schema["fields"]:
        at = _skip(field["type"], named, data, at)
    return at


def _skip_blocks(schema: Any, named: Mapping[str, Any], data: bytes, at: int) -> int:
    while data[at]:
        count, at = read_count(data, at)
        for _ in range(count):
            if schema["type"] == "map":
                size, at = read_length(data, at)
                at += size
            at = _skip(schema.get("values", schema.get("items")), named, data, at)
    return at + 1
