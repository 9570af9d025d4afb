"""Canonical bytes of contexts: what is stored, hashed and reloaded.

Law of this module: one value, one text of bytes, whatever class holds it: a version byte 01,
then MessagePack with the keys of every map sorted by their UTF-8 bytes. A struct, a dataclass
and a pydantic model with the same fields give the same bytes, and a reload gives an equal
object of the same types. What could not come back equal is refused: non-finite numbers, moments
outside UTC (their zone would be lost), sets, halves of surrogate pairs. U+0000 is a character
like others here. docs/formats.md holds the format, golden vectors hold the bytes.
"""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import blake2b
from math import isfinite
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

import msgspec

from refold.schemas.decimals import unscaled_bytes
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.faults import fault_in
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
    shape_of,
)
from refold.schemas.source import Source
from refold.schemas.varint import MAX_INT, MAX_LONG, MIN_INT, MIN_LONG

T = TypeVar("T")
Value = Any
"""None, bool, int, float, str, bytes, datetime, list and dict, or what msgspec writes as these."""
Change = Callable[[Any], Any]

VERSION: Final = b"\x01"
_WRITE: Final = msgspec.msgpack.Encoder(order="sorted").encode
_READ: Final = msgspec.msgpack.Decoder().decode


def hash16(data: bytes) -> bytes:
    """BLAKE2b-128 of bytes: 16 bytes."""
    return blake2b(data, digest_size=16).digest()


def pack(value: Value) -> bytes:
    """Canonical bytes of a plain value: version byte and MessagePack with sorted keys."""
    return VERSION + _WRITE(value)


def unpack(data: bytes) -> Value:
    """The plain value of canonical bytes.

    Raises:
        RecordError: UNDECODABLE, they are not canonical bytes of version 1.
    """
    if data[:1] != VERSION:
        raise _damaged("the bytes", f"version byte {data[:1].hex() or 'missing'} is not 01")
    try:
        return _READ(memoryview(data)[1:])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _damaged("the bytes", error) from error


class Canonical(Generic[T]):
    """Canonical bytes ↔ objects of one class.

    Attributes:
        cls: The user's class.
        fault: `fault(obj) -> str | None`: why an object cannot be stored, None if it can.
        to_value: `to_value(obj)`: what to embed in a bigger value given to `pack`; sound only
            for an object without a fault.
        from_value: `from_value(value) -> obj`: the object of an embedded value. Raises
            RecordError UNDECODABLE.
        settle: `settle(obj) -> obj`: the object as it will be after a reload, with the keys of
            its dicts in sorted order; the very object where nothing is to be done. A fold that
            keeps an object in memory settles it first, or a reducer that walks a dict would
            see another order before a restart than after it.
    """

    __slots__ = ("cls", "fault", "from_value", "settle", "shape", "to_value")

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        try:
            self.shape: Record = shape_of(cls)
        except DefinitionError as error:
            raise DefinitionError(Code.NOT_STORABLE, error.what, error.cure) from error
        self.fault: Callable[[object], str | None] = _fault(self.shape)
        self.to_value: Callable[[T], Value] = _to(self.shape) or _same
        self.from_value: Callable[[Value], T] = _loader(self.shape)
        self.settle: Callable[[T], T] = _settler(self.shape) or _same

    def encode(self, obj: T) -> bytes:
        """Canonical bytes of an object.

        Raises:
            RecordError: NOT_STORABLE, naming the field.
        """
        fault = self.fault(obj)
        if fault is not None:
            raise RecordError(Code.NOT_STORABLE, f"{fault}.", "Give a value of the declared type.")
        return pack(self.to_value(obj))

    def decode(self, data: bytes, upcast: Callable[[dict[str, Any]], Any] | None = None) -> T:
        """The object of canonical bytes.

        Args:
            data: What `encode` gave, now or in an earlier release.
            upcast: Takes the old fields as plain values and gives the new ones.

        Raises:
            RecordError: UNDECODABLE, the bytes are damaged or do not fit the class.
        """
        value = unpack(data)
        return self.from_value(value if upcast is None else upcast(value))


def canonical_of(cls: type[T]) -> Canonical[T]:
    """Canonical encoding of a frozen struct, dataclass or pydantic model; made once for each.

    Raises:
        DefinitionError: NOT_STORABLE, naming type, field and cure.
    """
    known = _KNOWN.get(cls)
    if known is None:
        known = _KNOWN[cls] = Canonical(cls)
    return known


_KNOWN: Final[dict[type, Canonical[Any]]] = {}


def _same(value: Any) -> Any:
    return value


# object → plain value; None where msgspec writes the object itself as it should be


def _to(shape: Shape) -> Change | None:
    match shape:
        case Items(item):
            return _each(_to(item))
        case Entries(item):
            return _each_value(_to(item))
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
    changes = {field.name: _to(field.shape) for field in shape.fields}
    if _native(shape) and not any(changes.values()):
        return None
    steps = [(name, change or _same) for name, change in changes.items()]
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
        return _optional(_to(rest[0]))
    table = {python_type(branch): (label(branch), _to(branch) or _same) for branch in rest}

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


# object → the object that a reload would give; None where they are alike


def _settler(shape: Shape) -> Change | None:
    match shape:
        case Items(item, cls):
            inner = _settler(item)
            return None if inner is None else _settle_items(inner, cls)
        case Entries(item):
            return _settle_entries(_settler(item))
        case Choice(branches):
            table = {python_type(branch): _settler(branch) or _same for branch in branches}
            changed = any(change is not _same for change in table.values())
            return (lambda value: table[type(value)](value)) if changed else None
        case Record():
            return _settle_record(shape)
    return None


def _settle_items(change: Change, cls: type) -> Change:
    def settle(value: Any) -> Any:
        found = [change(each) for each in value]
        alike = all(one is other for one, other in zip(found, value, strict=True))
        return value if alike else cls(found)

    return settle


def _settle_entries(change: Change | None) -> Change:
    change = change or _same

    def settle(value: dict[str, Any]) -> dict[str, Any]:
        found = {key: change(value[key]) for key in sorted(value)}
        alike = list(found) == list(value) and all(found[key] is value[key] for key in found)
        return value if alike else found

    return settle


def _settle_record(shape: Record) -> Change | None:
    steps = [(f.name, change) for f in shape.fields if (change := _settler(f.shape)) is not None]

    def settle(obj: Any) -> Any:
        found = {name: change(getattr(obj, name)) for name, change in steps}
        found = {name: part for name, part in found.items() if part is not getattr(obj, name)}
        if not found:
            return obj
        if shape.maker == "model":
            return obj.model_copy(update=found)
        return (msgspec.structs if shape.maker == "struct" else dataclasses).replace(obj, **found)

    return settle if steps else None


# plain value → object


def _loader(shape: Record) -> Change:
    load, name = _from(shape), shape.name

    def from_value(value: Value) -> Any:
        try:
            return load(value)
        except RecordError:
            raise
        except Exception as error:  # whatever the user's constructor raises, too
            raise _damaged(name, error) from error

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


def _damaged(name: str, error: object) -> RecordError:
    return RecordError(
        Code.UNDECODABLE,
        f"A stored value of {name} cannot be loaded: {error}.",
        "Load it with the release that wrote it, or register an upcaster.",
    )


# the generated check


def _fault(shape: Record) -> Callable[[object], str | None]:
    def why(obj: object) -> str:
        fault = fault_in(shape, obj, shape.name, utc=True)
        return fault or f"{shape.name} cannot be read"

    source = Source()
    with source.block("try:"):
        _check(source, shape, "o")
    source.line("except Exception:  # half a surrogate, a missing field: `why` says which")
    source.line("    return why(o)")
    source.line("return None")
    source.constants |= {"why": why, "isfinite": isfinite}
    return source.function("fault(o)")


def _check(source: Source, shape: Shape, at: str) -> None:
    if isinstance(shape, Choice):
        _check_choice(source, shape, at)
        return
    cls = python_type(shape)
    if cls is type(None):
        _refuse_if(source, f"{at} is not None")
        return
    builtin = cls in (bool, int, float, str, bytes, tuple, list, dict)
    name = cls.__name__ if builtin else source.constant("cls", cls)
    bounds = _bounds(source, shape, at)
    _refuse_if(source, f"type({at}) is not {name}" + (f" or {bounds}" if bounds else ""))
    match shape:
        case Scalar("str"):
            source.line(f"if not {at}.isascii(): {at}.encode()")
        case Items(item):
            each = source.name()
            with source.block(f"for {each} in {at}:"):
                _check(source, item, each)
        case Entries(item):
            key, each = source.name(), source.name()
            with source.block(f"for {key}, {each} in {at}.items():"):
                _check(source, Scalar("str"), key)
                _check(source, item, each)
        case Record(fields=fields):
            for field in fields:
                part = source.name()
                source.line(f"{part} = {at}.{field.name}")
                _check(source, field.shape, part)


def _bounds(source: Source, shape: Shape, at: str) -> str:
    """What is wrong with a value of the right type, as an expression; empty if nothing can be."""
    match shape:
        case Scalar("int"):
            return f"not {MIN_LONG} <= {at} <= {MAX_LONG}"
        case Scalar("int32"):
            return f"not {MIN_INT} <= {at} <= {MAX_INT}"
        case Scalar("float"):
            return f"not isfinite({at})"
        case Scalar("datetime"):
            return f"{at}.tzname() != 'UTC'"
        case Number(None):
            return f"not {at}.is_finite()"
        case Number(digits) if digits:
            fits = source.constant("fits", unscaled_bytes)
            return f"not {fits}({at}, {digits.precision}, {digits.scale})"
        case Symbols(members=members, cls=None):
            return f"{at} not in {source.constant('symbols', frozenset(dict(members)))}"
    return ""


def _refuse_if(source: Source, wrong: str) -> None:
    with source.block(f"if {wrong}:"):
        source.line("return why(o)")


def _check_choice(source: Source, shape: Choice, at: str) -> None:
    for index, branch in enumerate(shape.branches):
        cls = python_type(branch)
        test = (
            f"{at} is None"
            if cls is type(None)
            else (f"type({at}) is {source.constant('cls', cls)}")
        )
        with source.block(f"{'el' if index else ''}if {test}:"):
            _check(source, branch, at)
    with source.block("else:"):
        source.line("return why(o)")
