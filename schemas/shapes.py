"""The user's types as plain data: one small tree of shapes for structs, dataclasses and models.

Law of this module: data only. `refold.schemas.annotations` makes a shape from a class, once;
Avro, canonical bytes and checks all read the same shape, and so agree.
"""

import dataclasses
import re
import types
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import (
    Any,
    Final,
    Literal,
    NoReturn,
)
from uuid import UUID

import msgspec

from refold.schemas.errors import Code, DefinitionError

AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""Names and symbols as Avro allows them."""
REQUIRED: Final = msgspec.NODEFAULT
"""Stands where a field has no default."""


@dataclasses.dataclass(frozen=True, slots=True)
class Digits:
    """Bounds of a decimal number: `Annotated[Decimal, Digits(10, 2)]` holds 99,999,999.99.

    Args:
        precision: Digits altogether, 1 to 1000.
        scale: Digits after the point, 0 to precision.
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 1000 and 0 <= self.scale <= self.precision):
            raise DefinitionError(
                Code.SCHEMA_INVALID,
                f"Digits({self.precision}, {self.scale}) bounds no decimal number.",
                "Give a precision of 1 to 1000 and a scale of 0 to precision.",
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Bits:
    """Width of an integer on the wire: `Annotated[int, Bits(32)]` is Avro's `int`."""

    width: Literal[32, 64]


@dataclasses.dataclass(frozen=True, slots=True)
class WasNamed:
    """Former names of a field: `Annotated[str, WasNamed("old_name")]` still reads old records."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


Kind = Literal["null", "bool", "int", "int32", "float", "str", "bytes", "datetime", "date", "uuid"]


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts."""

    kind: Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A decimal number; without digits it can be stored, but not put on the wire."""

    digits: Digits | None


@dataclasses.dataclass(frozen=True, slots=True)
class Symbols:
    """One of a closed set of texts: an Enum (members of `cls`) or a Literal (`cls` is None)."""

    name: str
    members: tuple[tuple[str, object], ...]
    """Symbol on the wire and the Python value that it stands for."""
    cls: type[Enum] | None
    default: str | None = None
    """Symbol that stands for one that this code does not know."""


@dataclasses.dataclass(frozen=True, slots=True)
class Items:
    """Any number of items in order; `cls` is tuple or list."""

    item: "Shape"
    cls: type


@dataclasses.dataclass(frozen=True, slots=True)
class Entries:
    """Text keys to values."""

    value: "Shape"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One of several shapes, told apart by the value's exact Python type."""

    branches: tuple["Shape", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One stored field of a record."""

    name: str
    shape: "Shape"
    default: Any = REQUIRED
    """Value of the field where a record has none; REQUIRED if there is no such value."""
    optional: bool = False
    """The constructor fills it when it is not given (by default or factory)."""
    keyword: bool = False
    """The constructor takes it by keyword only."""
    aliases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Named fields, built by a class of the user (or a plain dict for foreign schemas)."""

    name: str
    cls: type
    maker: Literal["struct", "dataclass", "model", "dict"]
    fields: tuple[Field, ...]


Shape = Scalar | Number | Symbols | Items | Entries | Choice | Record

_PYTHON: Final[Mapping[Kind, type]] = {
    "null": types.NoneType,
    "bool": bool,
    "int": int,
    "int32": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "datetime": datetime,
    "date": date,
    "uuid": UUID,
}


def python_type(shape: Shape) -> type:
    """The exact class of the values of a shape; unions have none."""
    match shape:
        case Scalar(kind):
            return _PYTHON[kind]
        case Number():
            return Decimal
        case Symbols(cls=cls):
            return cls or str
        case Items(cls=cls) | Record(cls=cls):
            return cls
        case Entries():
            return dict
        case Choice():
            return object


def refuse(where: str, found: str, cure: str) -> NoReturn:
    """Say that a type cannot be understood.

    Raises:
        DefinitionError: Always, SCHEMA_INVALID.
    """
    raise DefinitionError(Code.SCHEMA_INVALID, f"{where} {found}.", cure)
