"""Columns of a batch as PostgreSQL arrays, packed once and fast.

Law of this module: the bytes of the binary array format (PostgreSQL, array_recv) and nothing
else. psycopg writes a list element by element through a dumper each; a batch of the ledger has
thirty such elements a step, which was a quarter of an executor's processor time.
"""

from collections.abc import Mapping, Sequence
from struct import Struct, pack
from typing import Any, ClassVar, Final

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_HEAD: Final = Struct("!iiIii").pack
"""Dimensions, nulls or none, element type, length, lower bound."""
_LENGTH: Final = Struct("!i").pack
_INT4_MOST: Final = 2**31 - 1


class Packed(bytes):
    """An array in binary format; its class says of what."""

    element: ClassVar[int] = 0
    array: ClassVar[int] = 0


class Texts(Packed):
    """`text[]`."""

    element, array = 25, 1009


class Bytes(Packed):
    """`bytea[]`."""

    element, array = 17, 1001


class Bools(Packed):
    """`bool[]`."""

    element, array = 16, 1000


class Int4s(Packed):
    """`int4[]`."""

    element, array = 23, 1007


class Int8s(Packed):
    """`int8[]`."""

    element, array = 20, 1016


class Floats(Packed):
    """`float8[]`."""

    element, array = 701, 1022


class _PackedDumper(Dumper):
    format = Format.BINARY

    def __init__(self, cls: type[Packed], context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        # Not of the class: registering it would make this the dumper of every list of that type.
        self.oid = cls.array

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


for _kind in (Texts, Bytes, Bools, Int4s, Int8s, Floats):
    psycopg.adapters.register_dumper(_kind, _PackedDumper)


def packed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with every list that is not empty packed; other values as they are."""
    return {
        name: _packed(value) if isinstance(value, list) and value else value
        for name, value in columns.items()
    }


def _packed(values: Sequence[Any]) -> Packed:
    """A list of values of one type, none of them None.

    Raises:
        TypeError: They are of a type that has no array here.
    """
    first = values[0]
    if isinstance(first, str):
        return _variable(Texts, [each.encode() for each in values])
    if isinstance(first, bytes):
        return _variable(Bytes, values)
    if isinstance(first, bool):
        return _fixed(Bools, "?", 1, values)
    if isinstance(first, int):
        wide = max(values) > _INT4_MOST or min(values) < -_INT4_MOST
        return _fixed(Int8s, "q", 8, values) if wide else _fixed(Int4s, "i", 4, values)
    if isinstance(first, float):
        return _fixed(Floats, "d", 8, values)
    raise TypeError(f"no array of {type(first).__name__}")


def _variable(kind: type[Packed], values: Sequence[bytes]) -> Packed:
    parts = [_HEAD(1, 0, kind.element, len(values), 1)]
    for each in values:
        parts += (_LENGTH(len(each)), each)
    return kind(b"".join(parts))


def _fixed(kind: type[Packed], code: str, size: int, values: Sequence[Any]) -> Packed:
    flat: list[Any] = []
    for each in values:
        flat += (size, each)
    body = pack(f"!{f'i{code}' * len(values)}", *flat)
    return kind(_HEAD(1, 0, kind.element, len(values), 1) + body)
