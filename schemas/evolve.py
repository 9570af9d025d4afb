"""How types may change: what a new schema must keep, and functions that lift old records.

Law of this module: the log is for ever, so a new schema must read what every older one wrote
(Avro's "backward"), and read it right: a rename, a promotion that loses digits or another
scale is refused, although some of it would decode. What cannot be expressed so is an upcaster:
a pure function from the old fields straight to the newest, named by (type, sequence), applied at
the edge, so that reducers see one shape only.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from refold.schemas.derive import logical_of, parse, same_name
from refold.schemas.errors import Code, DefinitionError
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
    python_type,
)

Upcast = Callable[[dict[str, Any]], Any]
"""Takes the old fields, records inside as dicts; gives the new fields or the new object. Pure."""

Upcasts = Mapping[int, Upcast]
"""Upcasters of one type by the sequence that their old schema has on the schema topic; of one
context by the version of the definition that the record was on."""

_WIDER: Final = {
    ("int", "long"),
    ("int", "double"),
    ("float", "double"),
    ("string", "bytes"),
}
"""Promotions that keep every value: Avro also allows long → double, which loses digits."""


def incompatibilities(old: Any, new: Any) -> list[str]:
    """Why records of an old schema would not be read right by a new one; empty if they are.

    Args:
        old: Schema that wrote records which stand on the log.
        new: Schema that wants to read them.

    Raises:
        DefinitionError: SCHEMA_INVALID, one of them is no Avro schema.
    """
    (writer, writers), (reader, readers) = parse(old), parse(new)
    return _Comparison(writers, readers).faults(writer, reader, "")


class _Comparison:
    def __init__(self, writers: Mapping[str, Any], readers: Mapping[str, Any]) -> None:
        self.writers, self.readers = writers, readers
        self.compared: set[tuple[str, str]] = set()

    def faults(self, old: Any, new: Any, where: str) -> list[str]:
        old, new = _resolved(old, self.writers), _resolved(new, self.readers)
        if isinstance(old, list):
            return [fault for branch in old for fault in self.faults(branch, new, where)]
        if isinstance(new, list):
            return self._into_union(old, new, where)
        kind, wanted = old["type"], new["type"]
        if kind == wanted == "record":
            return self._record(old, new, where)
        if kind == wanted == "enum":
            return self._enum(old, new, where)
        if kind == wanted == "array":
            return self.faults(old["items"], new["items"], f"{where}[]")
        if kind == wanted == "map":
            return self.faults(old["values"], new["values"], f"{where}[*]")
        return self._leaf(old, new, where)

    def _into_union(self, old: Any, new: list[Any], where: str) -> list[str]:
        tried = [self.faults(old, branch, where) for branch in new]
        if any(not faults for faults in tried):
            return []
        name = old.get("name")
        for branch, faults in zip(new, tried, strict=True):
            resolved = _resolved(branch, self.readers)
            if name and same_name(name, str(resolved.get("name", ""))):
                return faults  # the same type, changed: say what changed in it
        return [f"{where or 'the record'} could hold {_shown(old)}, which it no longer takes"]

    def _record(self, old: Any, new: Any, where: str) -> list[str]:
        if not _renamed_from(new, old["name"]):
            return [f"{where or 'the record'} was named {old['name']}, now {new['name']}"]
        if (old["name"], new["name"]) in self.compared:
            return []
        self.compared.add((old["name"], new["name"]))
        written = {field["name"]: field for field in old["fields"]}
        found: list[str] = []
        for field in new["fields"]:
            place = f"{where}.{field['name']}" if where else field["name"]
            names = (field["name"], *field.get("aliases", ()))
            before = next((written[name] for name in names if name in written), None)
            if before is not None:
                found += self.faults(before["type"], field["type"], place)
            elif "default" not in field:
                found.append(f"{place} is new and has no default")
        return found

    def _enum(self, old: Any, new: Any, where: str) -> list[str]:
        if not _renamed_from(new, old["name"]):
            return [f"{where} was the enum {old['name']}, now {new['name']}"]
        before, now = old["symbols"], new["symbols"]
        found = []
        if "default" not in new:
            found += [
                f"{where} lacks the symbol {one}, and has no default"
                for one in before
                if one not in now
            ]
            found += [
                f"{where} has the new symbol {one}, and no default (__avro_default__) for readers"
                " that do not know the next one"
                for one in now
                if one not in before
            ]
        return found

    def _leaf(self, old: Any, new: Any, where: str) -> list[str]:
        kind, wanted = old["type"], new["type"]
        if logical_of(old) != logical_of(new) or (kind != wanted and logical_of(old)):
            return [f"{where} was {_shown(old)}, now {_shown(new)}"]
        if logical_of(old) == "decimal":
            return _decimal_faults(old, new, where)
        if kind == wanted == "fixed":
            same = old["size"] == new["size"] and _renamed_from(new, old["name"])
            return [] if same else [f"{where} was {_shown(old)}, now {_shown(new)}"]
        if kind == wanted or (kind, wanted) in _WIDER:
            return []
        lossy = " (digits could be lost)" if kind in ("int", "long", "double") else ""
        return [f"{where} was {_shown(old)}, now {_shown(new)}{lossy}"]


def _decimal_faults(old: Any, new: Any, where: str) -> list[str]:
    if old.get("scale", 0) != new.get("scale", 0):
        return [
            f"{where} had {old.get('scale', 0)} digits after the point, now {new.get('scale', 0)}"
        ]
    if old["precision"] > new["precision"]:
        return [f"{where} had {old['precision']} digits, now {new['precision']}"]
    return []


def _resolved(schema: Any, named: Mapping[str, Any]) -> Any:
    return named.get(schema, {"type": schema}) if isinstance(schema, str) else schema


def _renamed_from(new: Any, old_name: str) -> bool:
    names = (new["name"], *new.get("aliases", ()))
    return any(same_name(name, old_name) for name in names)


def _shown(schema: Any) -> str:
    logical = logical_of(schema)
    name = schema.get("name")
    kind = f"{schema['type']} {name}" if name else str(schema["type"])
    return f"{kind} ({logical})" if logical else kind


def foreign_shape(schema: Any, named: Mapping[str, Any]) -> Record:
    """Shape of a schema that no class here stands for: records are read as dicts.

    Args:
        schema: A record schema, as `derive.parse` gives it.
        named: Its named types by full name.

    Raises:
        DefinitionError: SCHEMA_INVALID, it contains itself.
    """
    shape = _foreign(schema, named, ())
    if not isinstance(shape, Record):
        raise DefinitionError(Code.SCHEMA_INVALID, "The schema is not a record.", "Wrap it in one.")
    return shape


_SCALARS: Final[Mapping[tuple[str, str], Shape]] = {
    ("null", ""): Scalar("null"),
    ("boolean", ""): Scalar("bool"),
    ("int", ""): Scalar("int32"),
    ("long", ""): Scalar("int"),
    ("float", ""): Scalar("float"),
    ("double", ""): Scalar("float"),
    ("string", ""): Scalar("str"),
    ("bytes", ""): Scalar("bytes"),
    ("fixed", ""): Scalar("bytes"),
    ("int", "date"): Scalar("date"),
    ("long", "timestamp-micros"): Scalar("datetime"),
    ("long", "timestamp-millis"): Scalar("datetime"),
    ("string", "uuid"): Scalar("uuid"),
    ("bytes", "decimal"): Number(None),
    ("fixed", "decimal"): Number(None),
}


def _foreign(schema: Any, named: Mapping[str, Any], outer: tuple[str, ...]) -> Shape:
    schema = _resolved(schema, named)
    if isinstance(schema, list):
        return Choice(tuple(_foreign(branch, named, outer) for branch in schema))
    kind = schema["type"]
    if kind == "array":
        return Items(_foreign(schema["items"], named, outer), list)
    if kind == "map":
        return Entries(_foreign(schema["values"], named, outer))
    if kind == "enum":
        return Symbols(schema["name"], tuple((one, one) for one in schema["symbols"]), None)
    if kind != "record":
        return _SCALARS[kind, logical_of(schema)]
    name = schema["name"]
    if name in outer:
        raise DefinitionError(Code.SCHEMA_INVALID, f"{name} contains itself.", "Use ids instead.")
    fields = tuple(
        Field(field["name"], _foreign(field["type"], named, (*outer, name)))
        for field in schema["fields"]
    )
    return Record(name, dict, "dict", fields)


def build(shape: Shape, value: Any) -> Any:
    """The object that an upcaster's answer stands for: dicts become records, texts symbols.

    What is an object of the right class already is taken as it is; nothing else is changed.
    """
    match shape:
        case Record() if type(value) is dict:
            shapes = {field.name: field.shape for field in shape.fields}
            fields = {
                name: build(shapes[name], part) if name in shapes else part
                for name, part in value.items()
            }
            return shape.cls(**fields)
        case Symbols(cls=cls) if cls is not None and not isinstance(value, Enum):
            return dict(shape.members).get(value, value)
        case Items(item, cls) if type(value) in (list, tuple):
            return cls(build(item, each) for each in value)
        case Entries(inner) if type(value) is dict:
            return {key: build(inner, each) for key, each in value.items()}
        case Choice(branches):
            return _build_choice(branches, value)
    return value


def _build_choice(branches: tuple[Shape, ...], value: Any) -> Any:
    exact = [branch for branch in branches if python_type(branch) is type(value)]
    if not exact:
        near = [branch for branch in branches if _stands_for(branch, value)]
        exact = near if len(near) == 1 else []  # one of several would be a guess
    return build(exact[0], value) if exact else value


def _stands_for(shape: Shape, value: Any) -> bool:
    """True when plain data can be made into an object of this branch."""
    match shape:
        case Record():
            return type(value) is dict
        case Items():
            return type(value) in (list, tuple)
        case Symbols():
            return type(value) is str and value in dict(shape.members)
    return False
