"""A class beside a schema that somebody else wrote: an `.avsc` owned by another service.

Law of this module: the given schema is what stands on the wire, to the letter; the class only
has to say the same in Python. Order of fields, branches and symbols, names and widths are taken
from the schema; everything else must agree, or the pair is refused.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from refold.schemas.derive import Schema, derived, logical_of, meaning_of, parse, parse_text
from refold.schemas.errors import Code, DefinitionError
from refold.schemas.shapes import (
    REQUIRED,
    Choice,
    Digits,
    Entries,
    Items,
    Number,
    Record,
    Scalar,
    Shape,
    Symbols,
)


def given_schema(cls: type, shape: Record) -> tuple[Schema, Record] | None:
    """Schema of a class attribute `__avro_schema__` (JSON text) and the shape that writes it.

    None for a class without that attribute.

    Raises:
        DefinitionError: SCHEMA_INVALID, it is no record schema, or the class says otherwise.
    """
    text = cls.__dict__.get("__avro_schema__")
    if text is None:
        return None
    schema = parse_text(text)
    parsed, named = parse(schema)
    found = _record(shape, parsed, named, cls.__name__)
    if meaning_of(derived(found)) != meaning_of(schema):
        _differs(cls.__name__, "has a field of another type than the given schema")
    return schema, found


def _differs(where: str, how: str) -> None:
    raise DefinitionError(
        Code.SCHEMA_INVALID,
        f"{where} {how}.",
        "Let the class say what __avro_schema__ says, or leave the schema to be derived.",
    )


def _record(shape: Record, schema: Any, named: Mapping[str, Any], where: str) -> Record:
    fields = {field.name: field for field in shape.fields}
    written = {field["name"]: field["type"] for field in schema["fields"]}
    for name in sorted(fields.keys() ^ written.keys()):
        _differs(f"{where}.{name}", "stands in only one of class and given schema")
    ordered = tuple(
        dataclasses.replace(
            fields[name],
            shape=_shape(fields[name].shape, kind, named, f"{where}.{name}"),
            keyword=True,  # the constructor's order is the class's, not the schema's
            default=REQUIRED,  # defaults move branches in derived schemas; here nothing moves
        )
        for name, kind in written.items()
    )
    return dataclasses.replace(shape, name=schema["name"], fields=ordered)


def _shape(shape: Shape, schema: Any, named: Mapping[str, Any], where: str) -> Shape:
    schema = named.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return _union(shape, schema, named, where)
    match shape, schema["type"]:
        case Scalar("int"), "int" if not logical_of(schema):
            return Scalar("int32")
        case Number(None), _ if logical_of(schema) == "decimal":
            return Number(Digits(schema["precision"], schema.get("scale", 0)))
        case Symbols(), "enum":
            return _symbols(shape, schema, where)
        case Items(item), "array":
            return Items(_shape(item, schema["items"], named, f"{where}[]"), shape.cls)
        case Entries(item), "map":
            return Entries(_shape(item, schema["values"], named, f"{where}[*]"))
        case Record(), "record":
            return _record(shape, schema, named, where)
    return shape


def _symbols(shape: Symbols, schema: Any, where: str) -> Symbols:
    members = dict(shape.members)
    for symbol in sorted(members.keys() ^ set(schema["symbols"])):
        _differs(where, f"has the symbol {symbol} in only one of class and given schema")
    ordered = tuple((symbol, members[symbol]) for symbol in schema["symbols"])
    return Symbols(schema["name"], ordered, shape.cls, schema.get("default", shape.default))


def _union(shape: Shape, schema: list[Any], named: Mapping[str, Any], where: str) -> Shape:
    left: list[Shape] = list(shape.branches) if isinstance(shape, Choice) else [shape]
    ordered = []
    for branch in schema:
        found = next((one for one in left if _fits(one, branch, named, where)), None)
        if found is None:
            _differs(where, "lacks a branch of the given union")
        else:
            left.remove(found)
            ordered.append(_shape(found, branch, named, where))
    if left:
        _differs(where, "has a branch that the given union lacks")
    return Choice(tuple(ordered))


def _fits(shape: Shape, schema: Any, named: Mapping[str, Any], where: str) -> bool:
    try:
        found = _shape(shape, schema, named, where)
        resolved = named.get(schema, schema) if isinstance(schema, str) else schema
        return meaning_of(derived(found)) == meaning_of(resolved)
    except DefinitionError:
        return False
