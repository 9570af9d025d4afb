"""Objects ↔ the plain values that canonical bytes are made of.

Law of this module: there and back gives an equal object of the same types. What MessagePack
writes as it should be already (a struct as the map of its fields) is not touched: that is the
common case, and it costs nothing. A plain value that does not fit is an error, never bent.
"""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from refold.schemas.errors import Code, RecordError
from refold.schemas.shapes import (
    Choice,
    Entries,
    Items,
    Number,
    Record,
    Scalar,
    Shape,
    Symbols,
    python_type,
)

Value = Any
"""None, bool, int, float, str, bytes, datetime, list and dict, or what msgspec writes as these."""
Change = Callable[[Any], Any]


def same(value: Any) -> Any:
    """The change that changes nothing."""
    return value


def plain_of(shape: Shape) -> Change | None:
    """A function from objects of a shape to plain values; None if msgspec needs no help."""
    match shape:
        case Items(item):
            return _each(plain_of(item))
        case Entries(item):
            return _each_value(plain_of(item))
        case Choice(branches):
            return _choice_to(branches)
        case Record():
            return _record_to(shape)
    return None


def _each(change: Change | None) -> Change | None:
    return None if change is None else lambda value: [change(each) for each in value]


def _each_value(change: Change | None) -> Change | None:
    if change is None:
        return None
    return lambda value: {key: change(each) for key, each in value.items()}


def _record_to(shape: Record) -> Change | None:
    changes = {field.name: plain_of(field.shape) for field in shape.fields}
    if _native(shape) and not any(changes.values()):
        return None
    steps = [(name, change or same) for name, change in changes.items()]
    return lambda obj: {name: change(getattr(obj, name)) for name, change in steps}


def _native(shape: Record) -> bool:
    """Does msgspec write an object of this class as a map of exactly its fields?"""
    if shape.maker == "struct":
        config = shape.cls.__struct_config__  # type: ignore[attr-defined]
        plain = not (config.array_like or config.omit_defaults or config.tag is not None)
        return plain and all(
            info.encode_name == info.name for info in msgspec.structs.fields(shape.cls)
        )
    if shape.maker == "dataclass":
        return all(info.init for info in dataclasses.fields(shape.cls))
    return False


def _choice_to(branches: tuple[Shape, ...]) -> Change | None:
    rest = [branch for branch in branches if branch != Scalar("null")]
    if len(rest) == 1:
        return _optional(plain_of(rest[0]))
    table = {python_type(branch): (label(branch), plain_of(branch) or same) for branch in rest}

    def change(value: Any) -> Value:
        if value is None:
            return None
        name, inner = table[type(value)]
        return {name: inner(value)}

    return change


def _optional(change: Change | None) -> Change | None:
    return None if change is None else lambda value: None if value is None else change(value)


def label(shape: Shape) -> str:
    """Name of a union's branch in canonical bytes: a record's or enum's name, else its kind."""
    match shape:
        case Scalar(kind):
            return "int" if kind == "int32" else kind
        case Record(name=name) | Symbols(name=name):
            return name
        case Number():
            return "decimal"
        case Items():
            return "list"
        case Entries():
            return "map"
        case Choice():
            return "union"


def loader_of(shape: Record) -> Change:
    """A function from plain values to objects of a shape.

    It raises RecordError UNDECODABLE for a value that does not fit, or that the user's class
    refuses.
    """
    load, name = _from(shape), shape.name

    def from_value(value: Value) -> Any:
        try:
            return load(value)
        except RecordError:
            raise
        except Exception as error:  # whatever the user's constructor raises, too
            raise damaged(name, error) from error

    return from_value


def _from(shape: Shape) -> Change:
    match shape:
        case Scalar("date"):
            return lambda value: date.fromisoformat(_typed(value, str))
        case Scalar("uuid"):
            return lambda value: UUID(_typed(value, str))
        case Scalar("datetime"):
            return lambda value: _typed(value, datetime).astimezone(UTC)
        case Scalar():
            cls = python_type(shape)
            return lambda value: _typed(value, cls)
        case Number():
            return lambda value: Decimal(_typed(value, str))
        case Symbols(members=members, cls=cls):
            table = {member.value if cls else member: member for _, member in members}  # type: ignore[attr-defined]
            return table.__getitem__
        case Items(item, made):
            load = _from(item)
            return lambda value: made([load(each) for each in _typed(value, list)])
        case Entries(item):
            load = _from(item)
            return lambda value: {
                _typed(key, str): load(each) for key, each in _typed(value, dict).items()
            }
        case Choice(branches):
            return _choice_from(branches)
        case Record():
            return _record_from(shape)


def _typed(value: Any, cls: type) -> Any:
    if type(value) is not cls:
        raise TypeError(f"{type(value).__name__} where {cls.__name__} is due")
    return value


def _choice_from(branches: tuple[Shape, ...]) -> Change:
    rest = [branch for branch in branches if branch != Scalar("null")]
    empty = len(rest) < len(branches)
    loads = {label(branch): _from(branch) for branch in rest}

    def load(value: Value) -> Any:
        if value is None and empty:
            return None
        if len(rest) == 1:
            return loads[label(rest[0])](value)
        ((name, inner),) = _typed(value, dict).items()
        return loads[name](inner)

    return load


def _record_from(shape: Record) -> Change:
    loads = {field.name: _from(field.shape) for field in shape.fields}
    needed = [field.name for field in shape.fields if not field.optional]
    make: Change = lambda fields: shape.cls(**fields)  # noqa: E731
    if shape.maker == "model":
        validate = shape.cls.__pydantic_validator__.validate_python  # type: ignore[attr-defined]
        make = lambda fields: validate(fields, by_alias=False, by_name=True)  # noqa: E731

    def load(value: Value) -> Any:
        fields = {}
        for name, part in _typed(value, dict).items():
            if name not in loads:
                raise ValueError(f"it holds the field {name!r}, which {shape.name} does not have")
            fields[name] = loads[name](part)
        for name in needed:
            if name not in fields:
                raise ValueError(f"it lacks the field {name!r} of {shape.name}")
        return make(fields)

    return load


def damaged(name: str, error: object) -> RecordError:
    """A stored value that cannot be loaded, and why."""
    return RecordError(
        Code.UNDECODABLE,
        f"A stored value of {name} cannot be loaded: {error}.",
        "Load it with the release that wrote it, or register an upcaster.",
    )
