"""Generated decoders: one Python function for each pair of a writer's schema and a shape.

Law of this module: bytes are read with the schema that wrote them, into the shape that the
reader wants, by Avro's rules of schema resolution (Avro 1.12); nothing is mapped to another
field, branch or symbol, no digit is lost, and what the rules do not allow is `Unresolvable`
before a record is read. A zero-copy loop over one `bytes` with an index: no stream, no call for
each field. Damage is found by the exceptions that the code raises anyway (a byte behind the
end, a table without the entry) and by one look at the end: no byte may be left over.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from math import isfinite
from struct import Struct
from typing import Any, Final
from uuid import UUID

from refold.schemas.decimals import decimal_of
from refold.schemas.derive import EPOCH, EPOCH_DAY, logical_of, same_name
from refold.schemas.shapes import (
    Choice,
    Entries,
    Field,
    Items,
    Number,
    Record,
    Scalar,
    Shape,
    Symbols,
)
from refold.schemas.skipping import skipper
from refold.schemas.source import Source
from refold.schemas.varint import Damage, read_count, read_int, read_length, read_long

Reader = Callable[..., Any]
"""`read(data, at) -> object`: decodes the body that begins at `at` and ends with the bytes."""

_DOUBLE: Final = Struct("<d").unpack_from
_FLOAT: Final = Struct("<f").unpack_from


class Unresolvable(Exception):  # noqa: N818  # a finding, turned into a RefoldError by callers
    """A writer's schema cannot be read into a shape: where, and why."""


def reader_of(schema: Any, named: Mapping[str, Any], shape: Record) -> Reader:
    """Generate the decoder of a writer's schema into a shape.

    Args:
        schema: The writer's schema with full names, as `derive.parse` gives it.
        named: Its named types by full name.
        shape: What the reader wants.

    Raises:
        Unresolvable: The two do not fit.
    """
    reading = _Reading(named)
    value = reading.value(schema, shape, shape.name)
    source = reading.source
    with source.block("if i != size:"):
        source.line("raise Damage('bytes are left over or missing at the end')")
    source.line(f"return {value}")
    source.lines.insert(0, "    size = len(data)")
    source.constants |= {
        "Damage": Damage,
        "long_at": read_long,
        "int_at": read_int,
        "length_at": read_length,
        "count_at": read_count,
        "float8": _DOUBLE,
        "float4": _FLOAT,
        "isfinite": isfinite,
    }
    return source.function("read(data, i)")


class _Reading:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self.source = Source()
        self.named = named

    def value(self, schema: Any, shape: Shape, where: str) -> str:
        """Write the code that reads one value; gives the expression that holds it."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union(schema, shape, where)
        if isinstance(shape, Choice):
            return self.value(schema, self._branch(schema, shape, where), where)
        kind = schema["type"]
        match shape:
            case Scalar():
                return self._scalar(schema, shape, where)
            case Number():
                return self._number(schema, shape, where)
            case Symbols() if kind == "enum":
                return self._symbol(schema, shape, where)
            case Items(item) if kind == "array":
                return self._items(schema["items"], item, shape.cls, where)
            case Entries(value) if kind == "map":
                return self._entries(schema["values"], value, where)
            case Record() if kind in ("record", "error"):
                return self._record(schema, shape, where)
        return str(self._refuse(schema, where))

    def _resolved(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self.named.get(schema, {"type": schema})
        return schema

    def _refuse(self, schema: Any, where: str) -> Any:
        logical = logical_of(schema)
        found = f"{schema['type']} ({logical})" if logical else schema["type"]
        raise Unresolvable(f"{where} was written as {found}, which this code does not read there")

    def _union(self, schemas: list[Any], shape: Shape, where: str) -> str:
        source, found = self.source, self.source.name()
        if len(schemas) > 63:
            raise Unresolvable(f"{where} is a union of more than 63 branches")
        index = source.name("n")
        source.line(f"{index} = data[i]; i += 1")
        for position, schema in enumerate(schemas):
            with source.block(f"{'el' if position else ''}if {index} == {2 * position}:"):
                self._branch_of_union(schema, shape, where, found)
        with source.block("else:"):
            source.line("raise Damage('a union has no such branch')")
        return found

    def _branch_of_union(self, schema: Any, shape: Shape, where: str, found: str) -> None:
        before = len(self.source.lines)
        try:
            value = self.value(schema, shape, where)
        except Unresolvable as error:  # an error only for records that hold this branch
            del self.source.lines[before:]
            text = self.source.constant("text", str(error))
            self.source.line(f"raise Damage({text})")
        else:
            self.source.line(f"{found} = {value}")

    def _branch(self, schema: Any, shape: Choice, where: str) -> Shape:
        """The branch of the reader's union that reads a schema: the same kind, else promoted."""
        fallback: Shape | None = None
        for branch in shape.branches:
            if isinstance(branch, Record):
                if schema["type"] == "record" and same_name(schema["name"], branch.name):
                    return branch
            elif _exact(schema, branch):
                return branch
            elif fallback is None and self._readable(schema, branch, where):
                fallback = branch
        if fallback is None:
            self._refuse(schema, where)
        return fallback  # type: ignore[return-value]  # refused above when there is none

    def _readable(self, schema: Any, shape: Shape, where: str) -> bool:
        try:
            _Reading(self.named).value(schema, shape, where)
        except Unresolvable:
            return False
        return True

    def _scalar(self, schema: Any, shape: Scalar, where: str) -> str:  # noqa: PLR0912  # a table
        kind, logical = schema["type"], logical_of(schema)
        source = self.source
        match shape.kind, kind, logical:
            case "null", "null", _:
                return "None"
            case "bool", "boolean", _:
                found = source.name()
                source.line(f"{found} = {source.constant('bool', (False, True))}[data[i]]; i += 1")
                return found
            case "int", "int" | "long", "":
                return self._number_at(kind)
            case "int32", "int", "":
                return self._number_at(kind)
            case "float", "double" | "float", "":
                return self._float(kind)
            case "float", "int" | "long", "":
                return self._promoted(kind)
            case "str", "string", "":
                return f"{self._bytes()}.decode()"
            case "str", "bytes", "":
                return f"{self._bytes()}.decode()"
            case "bytes", "bytes" | "string", "":
                return self._bytes()
            case "bytes", "fixed", "":
                return self._fixed(schema)
            case "datetime", "long", "timestamp-micros" | "timestamp-millis":
                return self._moment(logical)
            case "date", "int", "date":
                day = source.constant("day", date.fromordinal)
                return self._held(f"{day}({self._number_at(kind)} + {EPOCH_DAY})")
            case "uuid", "string", "uuid":
                return self._held(f"{source.constant('uuid', _uuid)}({self._bytes()})")
        return str(self._refuse(schema, where))

    def _held(self, expression: str) -> str:
        found = self.source.name()
        self.source.line(f"{found} = {expression}")
        return found

    def _number_at(self, kind: str) -> str:
        """One byte holds -64 to 63, two hold -8192 to 8191; longer ones are worth a call."""
        source, found = self.source, self.source.name()
        source.line(f"{found} = data[i]; i += 1")
        with source.block(f"if {found} < 128:"):
            source.line(f"{found} = {found} >> 1 ^ -({found} & 1)")
        second = source.name("b")
        with source.block(f"elif ({second} := data[i]) < 128:"):
            source.line(f"{found} = {found} & 127 | {second} << 7; i += 1")
            source.line(f"{found} = {found} >> 1 ^ -({found} & 1)")
        with source.block("else:"):
            source.line(f"{found}, i = {kind}_at(data, i - 1)")
        return found

    def _bytes(self) -> str:
        """Read length and bytes into a variable."""
        source, found = self.source, self.source.name()
        source.line(f"{found} = data[i]; i += 1")
        with source.block(f"if {found} & 129:"):  # more than one byte, or negative
            source.line(f"{found}, i = length_at(data, i - 1)")
        with source.block("else:"):
            source.line(f"{found} >>= 1")
        source.line(f"{found} = data[i : (i := i + {found})]")
        return found

    def _fixed(self, schema: Any) -> str:
        return self._held(f"data[i : (i := i + {int(schema['size'])})]")

    def _float(self, kind: str) -> str:
        found, size = self.source.name(), 8 if kind == "double" else 4
        self.source.line(f"({found},) = float{size}(data, i); i += {size}")
        with self.source.block(f"if not isfinite({found}):"):
            self.source.line("raise Damage('a number is not finite')")
        return found

    def _promoted(self, kind: str) -> str:
        number = self._number_at(kind)
        found = self._held(f"float({number})")
        with self.source.block(f"if {found} != {number}:"):
            self.source.line("raise Damage('an integer does not fit a double')")
        return found

    def _moment(self, logical: str) -> str:
        delta, epoch = (
            self.source.constant("delta", timedelta),
            self.source.constant("epoch", EPOCH),
        )
        number = self._number_at("long")
        parts = f"0, 0, {number}" if logical == "timestamp-micros" else f"0, 0, 0, {number}"
        return self._held(f"{epoch} + {delta}({parts})")

    def _number(self, schema: Any, shape: Number, where: str) -> str:
        digits, kind = shape.digits, schema["type"]
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        fits = digits is None or (digits.scale == scale and precision <= digits.precision)
        if logical_of(schema) != "decimal" or not fits:
            self._refuse(schema, where)
        raw = self._fixed(schema) if kind == "fixed" else self._bytes()
        make = self.source.constant("decimal", decimal_of)
        return self._held(f"{make}({raw}, {int(precision)}, {int(scale)})")

    def _symbol(self, schema: Any, shape: Symbols, where: str) -> str:
        members, source, found = dict(shape.members), self.source, self.source.name()
        default = members.get(shape.default) if shape.default is not None else None
        symbols: list[str] = schema["symbols"]
        short = len(symbols) <= 64  # then the index takes one byte, and the byte is the key
        table = _Symbols(symbols, 2 if short else 1, where)
        for index, symbol in enumerate(symbols):
            if symbol in members or default is not None:
                table[index * table.step] = members.get(symbol, default)
        name = source.constant("symbols", table)
        if short:
            source.line(f"{found} = {name}[data[i]]; i += 1")
        else:
            source.line(f"{found}, i = int_at(data, i); {found} = {name}[{found}]")
        return found

    def _items(self, schema: Any, item: Shape, cls: type, where: str) -> str:
        found = self._held("[]")
        with self._blocks():
            value = self.value(schema, item, f"{where}[]")
            self.source.line(f"{found}.append({value})")
        return self._held(f"tuple({found})") if cls is tuple else found

    def _entries(self, schema: Any, shape: Shape, where: str) -> str:
        found = self._held("{}")
        with self._blocks():
            key = self._held(f"{self._bytes()}.decode()")
            value = self.value(schema, shape, f"{where}[*]")
            self.source.line(f"{found}[{key}] = {value}")
        return found

    @contextmanager
    def _blocks(self) -> Iterator[None]:
        """Write the loops over the blocks of an array or map, around what reads one item."""
        source, count = self.source, self.source.name("n")
        source.line(f"{count} = data[i]; i += 1")
        with source.block(f"while {count}:"):
            with source.block(f"if {count} & 129:"):  # more than one byte, or negative
                source.line(f"{count}, i = count_at(data, i - 1)")
            with source.block("else:"):
                source.line(f"{count} >>= 1")
                with source.block(f"if {count} > size - i:"):
                    source.line("raise Damage('a block counts more items than there are bytes')")
            with source.block(f"for _ in range({count}):"):
                yield
            source.line(f"{count} = data[i]; i += 1")

    def _record(self, schema: Any, shape: Record, where: str) -> str:
        if shape.maker != "dict" and not same_name(schema["name"], shape.name):
            raise Unresolvable(f"{where} was written as record {schema['name']}, not {shape.name}")
        wanted = {name: field for field in shape.fields for name in (*field.aliases, field.name)}
        values: dict[str, str] = {}
        for written in schema["fields"]:
            field = wanted.get(written["name"])
            if field is None:
                skip = self.source.constant("skip", skipper(written["type"], self.named))
                self.source.line(f"i = {skip}(data, i)")
            else:
                values[field.name] = self.value(
                    written["type"], field.shape, f"{where}.{field.name}"
                )
        return self._made(shape, values, where)

    def _made(self, shape: Record, values: dict[str, str], where: str) -> str:
        arguments: list[str] = []
        keywords = shape.maker in ("model", "dict")
        for field in shape.fields:
            if field.name in values:
                named = f"{field.name!r}: " if keywords else f"{field.name}="
                plain = (
                    not keywords and not field.keyword and len(arguments) == _index(shape, field)
                )
                arguments.append(values[field.name] if plain else named + values[field.name])
            elif not field.optional:
                raise Unresolvable(f"{where}.{field.name} was not written, and has no default")
        if shape.maker == "dict":
            return self._held(f"{{{', '.join(arguments)}}}")
        if shape.maker == "model":
            make = self.source.constant("make", shape.cls.__pydantic_validator__.validate_python)  # type: ignore[attr-defined]
            return self._held(f"{make}({{{', '.join(arguments)}}}, by_alias=False, by_name=True)")
        return self._held(f"{self.source.constant('make', shape.cls)}({', '.join(arguments)})")


class _Symbols(dict[int, object]):
    """Index on the wire → member, with a sentence for those that are missing."""

    def __init__(self, symbols: list[str], step: int, where: str) -> None:
        super().__init__()
        self.symbols, self.step, self.where = symbols, step, where

    def __missing__(self, key: int) -> object:
        index, rest = divmod(key, self.step)
        if rest or not 0 <= index < len(self.symbols):
            raise Damage(f"{self.where} has a symbol index that its schema does not have")
        raise Damage(f"{self.where} is {self.symbols[index]!r}, a symbol that this code lacks")


def _index(shape: Record, field: Field) -> int:
    return shape.fields.index(field)


_EXACT: Final[Mapping[str, tuple[str, str]]] = {
    "null": ("null", ""),
    "bool": ("boolean", ""),
    "int": ("long", ""),
    "int32": ("int", ""),
    "float": ("double", ""),
    "str": ("string", ""),
    "bytes": ("bytes", ""),
    "datetime": ("long", "timestamp-micros"),
    "date": ("int", "date"),
    "uuid": ("string", "uuid"),
}


def _exact(schema: Any, shape: Shape) -> bool:
    kind, logical = schema["type"], logical_of(schema)
    match shape:
        case Scalar(own):
            return _EXACT[own] == (kind, logical)
        case Number():
            return bool(logical == "decimal")
        case Symbols(name):
            return bool(kind == "enum" and same_name(schema["name"], name))
        case Items():
            return bool(kind == "array")
        case Entries():
            return bool(kind == "map")
    return False


def _uuid(raw: bytes) -> UUID:
    text = raw.decode()
    found = UUID(text)
    if str(found) != text.lower():  # UUID() also takes braces, prefixes and no dashes
        raise Damage("a text is no UUID as RFC 9562 writes it")
    return found
