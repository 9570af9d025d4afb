"""Shapes → Avro schemas, their texts and fingerprints.

Law of this module: pure and stable. The same type gives the same text in every process. Two
texts matter: the *full text* (sorted JSON with logical types; it is registered and hashed) and
Avro's Parsing Canonical Form, which the 8-byte fingerprint of a record is taken from (Avro
1.12 specification, "Parsing Canonical Form for Schemas", "Single-object encoding").
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import fastavro
import fastavro.schema

from refold.schemas.annotations import shape_of
from refold.schemas.decimals import unscaled_bytes
from refold.schemas.errors import Code, DefinitionError, InvariantViolation
from refold.schemas.faults import fault_in
from refold.schemas.shapes import (
    AVRO_NAME,
    REQUIRED,
    Choice,
    Digits,
    Entries,
    Field,
    Items,
    Number,
    Record,
    Scalar,
    Shape,
    Symbols,
    python_type,
    refuse,
)

Schema = dict[str, Any]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

_SCALARS: Final[Mapping[str, Any]] = {
    "null": "null",
    "bool": "boolean",
    "int": "long",
    "int32": "int",
    "float": "double",
    "str": "string",
    "bytes": "bytes",
    "datetime": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}


def schema_of(cls: type) -> Schema:
    """Avro schema of a user's type. Not to be changed by the caller.

    Raises:
        DefinitionError: SCHEMA_INVALID, naming type, field and cure.
    """
    schema: Schema = derived(shape_of(cls))
    parse(schema)  # whatever Avro itself refuses (a name defined twice, a default that is none)
    return schema


def derived(shape: Shape) -> Any:
    """Avro schema of a shape, not yet checked by Avro's own rules."""
    where = shape.name if isinstance(shape, Record) else "it"
    return _Derivation().shape(shape, "", where)


def text_of(schema: object) -> str:
    """Full canonical JSON text of a schema: sorted keys, no spaces; equal schemas, equal texts."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def parse(schema: Any) -> tuple[Any, dict[str, Any]]:
    """Check a schema; gives it with full names, and its named types by full name.

    Raises:
        DefinitionError: SCHEMA_INVALID.
    """
    named: dict[str, Any] = {}
    try:
        parsed = fastavro.parse_schema(schema, named_schemas=named, _write_hint=False)
        fastavro.schema.to_parsing_canonical_form(parsed)
    except Exception as error:  # fastavro reports a bad schema by many types of exception
        raise DefinitionError(
            Code.SCHEMA_INVALID, f"This is no Avro schema: {error}.", "Correct the schema."
        ) from error
    return parsed, named


def parse_text(text: str) -> Schema:
    """The record schema that a text holds.

    Raises:
        DefinitionError: SCHEMA_INVALID: no JSON, no Avro, or not a record.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise DefinitionError(
            Code.SCHEMA_INVALID, f"The schema is no JSON: {error}.", "Correct the text."
        ) from error
    parse(schema)
    if not (isinstance(schema, dict) and schema.get("type") == "record"):
        raise DefinitionError(
            Code.SCHEMA_INVALID,
            "The schema is not a record.",
            "Events and commands are Avro records: wrap the value in one.",
        )
    return schema


def fingerprint_of(schema: Any) -> bytes:
    """CRC-64-AVRO of the Parsing Canonical Form: 8 bytes, little-endian, as records carry it."""
    form = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))


def sha256_of(text: str) -> bytes:
    """SHA-256 over the full text: the key of a schema on the schema topic."""
    return hashlib.sha256(text.encode()).digest()


def full_name(schema: Schema) -> str:
    """Avro full name of a named schema."""
    name, space = schema["name"], schema.get("namespace", "")
    return name if "." in name or not space else f"{space}.{name}"


_LOGICAL: Final = frozenset(
    {
        ("int", "date"),
        ("long", "timestamp-micros"),
        ("long", "timestamp-millis"),
        ("string", "uuid"),
        ("bytes", "decimal"),
        ("fixed", "decimal"),
    }
)


def logical_of(schema: Schema) -> str:
    """Logical type of a schema as far as it is known here; others are ignored, as Avro says."""
    logical = str(schema.get("logicalType", ""))
    return logical if (schema["type"], logical) in _LOGICAL else ""


def same_name(one: str, other: str) -> bool:
    """Two named types match by their unqualified names (Avro 1.12, "Schema Resolution")."""
    return one.rpartition(".")[2] == other.rpartition(".")[2]


def meaning_of(schema: Any) -> str:
    """Everything of a schema that decides what its bytes mean, as one text.

    The Parsing Canonical Form leaves out logical types, precision and scale; docs, defaults and
    aliases are left out here too, because bytes mean the same without them.
    """
    return text_of(_meaning(parse(schema)[0]))


_MEANS: Final = ("type", "name", "size", "symbols", "logicalType", "precision", "scale")


def _meaning(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_meaning(branch) for branch in schema]
    if not isinstance(schema, dict):
        return {"type": schema}
    found = {key: schema[key] for key in _MEANS if key in schema}
    for key in ("items", "values"):
        if key in schema:
            found[key] = _meaning(schema[key])
    if "fields" in schema:
        found["fields"] = [
            {"name": field["name"], "type": _meaning(field["type"])} for field in schema["fields"]
        ]
    return found


class _Derivation:
    """One pass over a shape; remembers which named types stand already."""

    def __init__(self) -> None:
        self.defined: dict[str, Shape] = {}

    def record(self, shape: Record, space: str, where: str) -> Any:
        name = self._name(shape.name, space, where)
        if self._known(name, shape, where):
            return name
        space = name.rpartition(".")[0]
        fields = [self._field(field, space, f"{where}.{field.name}") for field in shape.fields]
        return {"type": "record", "name": name, "fields": fields}

    def _field(self, field: Field, space: str, where: str) -> Schema:
        if not AVRO_NAME.match(field.name):
            refuse(where, "has a name that Avro does not allow", "Use ASCII letters, digits and _.")
        shape = field.shape
        if field.default is not REQUIRED:
            fault = fault_in(shape, field.default, "it", utc=False)
            if fault:
                refuse(where, f"has a default that does not fit: {fault}", "Correct the default.")
            shape = default_first(shape, field.default)
        found: Schema = {"name": field.name, "type": self.shape(shape, space, where)}
        if field.default is not REQUIRED:
            found["default"] = default_json(shape, field.default)
        if field.aliases:
            found["aliases"] = list(field.aliases)
        return found

    def shape(self, shape: Shape, space: str, where: str) -> Any:
        match shape:
            case Scalar(kind):
                return _SCALARS[kind]
            case Number(digits) if digits is None:
                refuse(where, "is a Decimal without bounds", "Annotated[Decimal, Digits(10, 2)].")
            case Number(Digits() as digits):
                return {"type": "bytes", "logicalType": "decimal",
                        "precision": digits.precision, "scale": digits.scale}  # fmt: skip
            case Symbols():
                return self._symbols(shape, space, where)
            case Items(item):
                if _takes_no_bytes(item):
                    refuse(where, "has items that hold nothing", "Store their number as int.")
                return {"type": "array", "items": self.shape(item, space, f"{where}[]")}
            case Entries(value):
                return {"type": "map", "values": self.shape(value, space, f"{where}[*]")}
            case Choice(branches):
                return self._union(branches, space, where)
            case Record():
                return self.record(shape, space, where)
        raise InvariantViolation(f"No Avro schema for {shape}.")

    def _union(self, branches: tuple[Shape, ...], space: str, where: str) -> list[Any]:
        found = [self.shape(branch, space, where) for branch in branches]
        kinds = [branch_name(schema) for schema in found]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            refuse(where, f"is a union with two branches of Avro's {twice[0]}",
                   "Wrap one of them in a frozen class of its own.")  # fmt: skip
        return found

    def _symbols(self, shape: Symbols, space: str, where: str) -> Any:
        name = self._name(shape.name, space, where)
        if self._known(name, shape, where):
            return name
        symbols = [symbol for symbol, _ in shape.members]
        wrong = [symbol for symbol in symbols if not AVRO_NAME.match(symbol)]
        if wrong:
            refuse(where, f"has the text {wrong[0]!r}, which is no Avro symbol",
                   "Use ASCII letters, digits and _, an Enum with such names, or str.")  # fmt: skip
        found: Schema = {"type": "enum", "name": name, "symbols": symbols}
        if shape.default is not None:
            found["default"] = shape.default
        return found

    def _known(self, name: str, shape: Shape, where: str) -> bool:
        before = self.defined.setdefault(name, shape)
        if before is shape:
            return False
        if before != shape:
            refuse(where, f"uses the name {name} for a second type", "Give it an __avro_name__.")
        return True

    def _name(self, name: str, space: str, where: str) -> str:
        if not all(AVRO_NAME.match(part) for part in name.split(".")):
            refuse(where, f"has the name {name!r}, which Avro does not allow",
                   "Use ASCII letters, digits and _, with dots between.")  # fmt: skip
        return name if "." in name or not space else f"{space}.{name}"


def branch_name(schema: Any) -> str:
    """What a union tells its branches apart by: the full name, or the type of unnamed ones."""
    if isinstance(schema, str):
        return schema
    return full_name(schema) if "name" in schema else str(schema["type"])


def _takes_no_bytes(shape: Shape) -> bool:
    """No bytes on the wire: then a damaged count could ask for items without end."""
    if isinstance(shape, Record):
        return all(_takes_no_bytes(field.shape) for field in shape.fields)
    return shape == Scalar("null")


def default_first(shape: Shape, default: object) -> Shape:
    """A union with the default's branch first, as Avro wants it; other shapes as they are."""
    if not isinstance(shape, Choice):
        return shape
    first = [branch for branch in shape.branches if python_type(branch) is type(default)]
    return Choice((*first, *(branch for branch in shape.branches if branch not in first)))


def default_json(shape: Shape, value: Any) -> Any:
    """A default as Avro's JSON writes it: bytes as ISO-8859-1 text, moments as numbers."""
    match shape:
        case Scalar("bytes"):
            return str(value, "iso-8859-1")
        case Scalar("datetime"):
            return (value - EPOCH) // (datetime.resolution)
        case Scalar("date"):
            return value.toordinal() - EPOCH_DAY
        case Scalar("uuid"):
            return str(value)
        case Number(digits) if digits:
            return unscaled_bytes(value, digits.precision, digits.scale).decode("iso-8859-1")
        case Symbols(members=members):
            return next(symbol for symbol, member in members if member == value)
        case Items(item):
            return [default_json(item, each) for each in value]
        case Entries(inner):
            return {key: default_json(inner, each) for key, each in value.items()}
        case Choice(branches):
            return default_json(branches[0], value)
        case Record(fields=fields):
            return {f.name: default_json(f.shape, getattr(value, f.name)) for f in fields}
    return value
