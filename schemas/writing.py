"""Generated encoders: one Python function for each shape, from an object to Avro's bytes.

Law of this module: strict. A value of another exact type (a bool for an int, an int for a
float, a subclass), beyond its width, not finite, or half a surrogate pair is refused, never
coerced; a union's branch is picked by the exact type alone. The code only says no, by any
exception; `refold.schemas.faults` then says why.
"""

from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from struct import Struct
from typing import Any

from refold.schemas.decimals import unscaled_bytes
from refold.schemas.derive import EPOCH, EPOCH_DAY, default_first
from refold.schemas.shapes import (
    REQUIRED,
    Choice,
    Entries,
    Field,
    Items,
    Number,
    Record,
    Scalar,
    Shape,
    Symbols,
    python_type,
)
from refold.schemas.source import Source
from refold.schemas.varint import MAX_INT, MIN_INT, SMALL, zigzag


class Refused(Exception):  # noqa: N818  # a signal between generated code and its caller
    """The value does not fit; raised without a text because nobody has looked why."""


def writer_of(shape: Record, prefix: bytes) -> Callable[[Any], bytes]:
    """Generate the encoder of a shape: `write(object) -> prefix + body`.

    The function raises any exception for a value that does not fit.
    """
    writing = _Writing()
    parts = writing.value(shape, "o")
    head = writing.source.constant("head", prefix)
    writing.source.line(f"return join(({head}, {', '.join(parts)}))" if parts else f"return {head}")
    writing.source.constants |= {
        "join": b"".join,
        "Refused": Refused,
        "SMALL": SMALL,
        "zigzag": zigzag,
        "isfinite": isfinite,
        "float8": Struct("<d").pack,
    }
    return writing.source.function("write(o)")


class _Writing:
    def __init__(self) -> None:
        self.source = Source()

    def value(self, shape: Shape, at: str) -> list[str]:
        """Write the checks of one value; gives the expressions whose bytes are its encoding.

        Args:
            shape: What it should be.
            at: Name of the variable that holds it.
        """
        source = self.source
        if isinstance(shape, Choice):
            return self._union(shape, at)
        if shape == Scalar("null"):
            self._check(f"{at} is not None")
            return []
        cls = python_type(shape)
        exact = cls.__name__ if cls in (bool, int, float, str, bytes, tuple, list, dict) else ""
        self._check(f"type({at}) is not {exact or source.constant('cls', cls)}")
        match shape:
            case Scalar(kind):
                return self._scalar(kind, at)
            case Number(digits) if digits:
                unscaled = source.constant("unscaled", unscaled_bytes)
                raw = self._held(f"{unscaled}({at}, {digits.precision}, {digits.scale})")
                return [self._length(raw), raw]
            case Symbols(members=members):
                table = {member: zigzag(index) for index, (_, member) in enumerate(members)}
                return [f"{source.constant('symbols', table)}[{at}]"]
            case Items(item):
                return self._items(item, at)
            case Entries(inner):
                return self._entries(inner, at)
            case Record(fields=fields):
                return [part for field in fields for part in self._field(field, at)]
        raise TypeError(f"no encoding for {shape}")

    def _check(self, wrong: str) -> None:
        with self.source.block(f"if {wrong}:"):
            self.source.line("raise Refused")

    def _held(self, expression: str) -> str:
        found = self.source.name()
        self.source.line(f"{found} = {expression}")
        return found

    def _field(self, field: Field, at: str) -> list[str]:
        shape = field.shape
        if field.default is not REQUIRED:
            shape = default_first(shape, field.default)
        return self.value(shape, self._held(f"{at}.{field.name}"))

    def _length(self, at: str) -> str:
        size = self._held(f"len({at})")
        return f"SMALL[{size}] if {size} < 4096 else zigzag({size})"

    def _scalar(self, kind: str, at: str) -> list[str]:
        source = self.source
        match kind:
            case "bool":
                return [f"b'\\x01' if {at} else b'\\x00'"]
            case "int":
                return [f"SMALL[{at}] if 0 <= {at} < 4096 else zigzag({at})"]
            case "int32":
                self._check(f"not {MIN_INT} <= {at} <= {MAX_INT}")
                return [f"zigzag({at})"]
            case "float":
                self._check(f"not isfinite({at})")
                return [f"float8({at})"]
            case "bytes":
                return [self._length(at), at]
            case "datetime":
                self._check(f"{at}.utcoffset() is None")
                epoch, micro = source.constant("epoch", EPOCH), source.constant("micro", _MICRO)
                return [f"zigzag(({at} - {epoch}) // {micro})"]
            case "date":
                return [f"zigzag({at}.toordinal() - {EPOCH_DAY})"]
        raw = self._held(f"{at}.encode()" if kind == "str" else f"str({at}).encode()")
        return [self._length(raw), raw]

    def _union(self, shape: Choice, at: str) -> list[str]:
        """The branch's index and value as one tuple, spread into the caller's parts."""
        source, found = self.source, self.source.name("u")
        for index, branch in enumerate(shape.branches):
            cls = python_type(branch)
            test = (
                f"{at} is None"
                if cls is type(None)
                else (f"type({at}) is {source.constant('cls', cls)}")
            )
            with source.block(f"{'el' if index else ''}if {test}:"):
                parts = [source.constant("branch", zigzag(index)), *self.value(branch, at)]
                source.line(f"{found} = ({', '.join(parts)},)")
        with source.block("else:"):
            source.line("raise Refused")
        return [f"*{found}"]

    def _items(self, item: Shape, at: str) -> list[str]:
        source, found, each = self.source, self.source.name("p"), self.source.name()
        source.line(f"{found} = [{self._length(at)}] if {at} else []")
        with source.block(f"for {each} in {at}:"):
            source.line(f"{found} += ({', '.join(self.value(item, each))},)")
        return [f"*{found}", "b'\\x00'"]

    def _entries(self, inner: Shape, at: str) -> list[str]:
        source, found = self.source, self.source.name("p")
        key, each = source.name(), source.name()
        source.line(f"{found} = [{self._length(at)}] if {at} else []")
        with source.block(f"for {key}, {each} in {at}.items():"):
            parts = [*self.value(Scalar("str"), key), *self.value(inner, each)]
            source.line(f"{found} += ({', '.join(parts)},)")
        return [f"*{found}", "b'\\x00'"]


_MICRO = timedelta(microseconds=1)
