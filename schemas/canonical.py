"""Canonical bytes of contexts: what is stored, hashed and reloaded.

Law of this module: one value, one text of bytes, whatever class holds it: a version byte 01,
then MessagePack with the keys of every map sorted by their UTF-8 bytes. A struct, a dataclass
and a pydantic model with the same fields give the same bytes, and a reload gives an equal
object of the same types. What could not come back equal is refused: non-finite numbers, moments
outside UTC (their zone would be lost), sets, halves of surrogate pairs. U+0000 is a character
like others here. docs/formats.md holds the format, golden vectors hold the bytes.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

import msgspec

from refold.schemas.annotations import shape_of
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.plain import Value, damaged, loader_of, plain_of, same
from refold.schemas.settling import settler_of
from refold.schemas.shapes import Choice, Entries, Items, Record, Shape
from refold.schemas.storable import check_of

T = TypeVar("T")

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
        raise damaged("the bytes", f"version byte {data[:1].hex() or 'missing'} is not 01")
    try:
        return _READ(memoryview(data)[1:])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise damaged("the bytes", error) from error


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
        check = check_of(self.shape)
        self.fault: Callable[[object], str | None] = (
            self._comes_back(check) if _builds_itself(self.shape) else check
        )
        self.to_value: Callable[[T], Value] = plain_of(self.shape) or same
        self.from_value: Callable[[Value], T] = loader_of(self.shape)
        self.settle: Callable[[T], T] = settler_of(self.shape) or same

    def _comes_back(self, check: Callable[[object], str | None]) -> Callable[[object], str | None]:
        """The check of a class whose own code runs when an object is made, and so at each load."""

        def fault(obj: Any) -> str | None:
            found = check(obj)
            if found is not None:
                return found
            data = pack(self.to_value(obj))
            try:
                again = self.from_value(unpack(data))
            except RecordError as error:  # made past its validators, as model_copy does
                why = type(error.__cause__).__name__
                return f"{self.shape.name} is refused by its own class when it is loaded ({why})"
            if check(again) is not None or pack(self.to_value(again)) != data:
                return f"{self.shape.name} is another object when it is loaded again"
            return None

        return fault

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
            upcast: Takes the old fields as plain values and gives the new ones, or the object.

        Raises:
            RecordError: UNDECODABLE, the bytes are damaged or do not fit the class; NOT_STORABLE,
                what the upcaster gave cannot be stored.
        """
        value = unpack(data)
        if upcast is None:
            return self.from_value(value)
        given = upcast(value)
        lifted: T = given if isinstance(given, self.cls) else self.from_value(given)
        return self.from_value(unpack(self.encode(lifted)))  # as it comes back from a snapshot


def _builds_itself(shape: Shape) -> bool:
    """Whether a pydantic model or a `__post_init__` stands anywhere in a shape."""
    match shape:
        case Record(cls=cls, fields=fields, maker=maker):
            own = maker == "model" or hasattr(cls, "__post_init__")
            return own or any(_builds_itself(field.shape) for field in fields)
        case Choice(branches):
            return any(_builds_itself(branch) for branch in branches)
        case Items(item) | Entries(item):
            return _builds_itself(item)
        case _:
            return False


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
