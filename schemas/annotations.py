"""From a class and its annotations to its shape.

Law of this module: what refold understands of a Python type is decided here and nowhere else.
What cannot be understood is refused with the type, the field and the cure; nothing is guessed.
"""

import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from keyword import iskeyword
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import msgspec
import pydantic
from pydantic_core import PydanticUndefined

from refold.schemas.shapes import (
    AVRO_NAME,
    REQUIRED,
    Bits,
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
    WasNamed,
    python_type,
    refuse,
)

DEPTH: Final = 12
"""Types inside types: Python compiles at most 20 nested blocks, and a person reads fewer."""
_CONTAINERS: Final = (tuple, list, dict, object)
_SCALARS: Final[Mapping[object, Shape]] = {
    None: Scalar("null"),
    types.NoneType: Scalar("null"),
    bool: Scalar("bool"),
    int: Scalar("int"),
    float: Scalar("float"),
    str: Scalar("str"),
    bytes: Scalar("bytes"),
    datetime: Scalar("datetime"),
    pydantic.AwareDatetime: Scalar("datetime"),
    date: Scalar("date"),
    UUID: Scalar("uuid"),
}
_CURES: Final[Mapping[object, str]] = {
    set: "Use tuple[T, ...], sorted: a set has no order that two processes share.",
    frozenset: "Use tuple[T, ...], sorted: a set has no order that two processes share.",
    Any: "Name the type.",
    object: "Name the type.",
    time: "Store the seconds since midnight as int.",
    timedelta: "Store the length as int, with its unit in the field's name.",
    complex: "Store two floats.",
    pydantic.NaiveDatetime: "Use datetime with a time zone.",
}
_CURE: Final = (
    "Use bool, int, float, str, bytes, Decimal, datetime, date, UUID, Enum, Literal of texts, "
    "tuple[T, ...], list[T], dict[str, T], a frozen class of these, or a union of them."
)


def shape_of(cls: type) -> Record:
    """Shape of a frozen `msgspec.Struct`, dataclass or pydantic model.

    Raises:
        DefinitionError: SCHEMA_INVALID, naming type, field and cure.
    """
    return _record(cls, cls.__name__ if isinstance(cls, type) else repr(cls), ())


def _record(cls: Any, where: str, outer: tuple[type, ...]) -> Record:
    if cls in outer:
        refuse(where, f"contains {cls.__name__} in itself", "Refer to it by an id.")
    if len(outer) >= DEPTH:
        refuse(where, f"is more than {DEPTH} types deep", "Use fewer levels.")
    outer = (*outer, cls)
    name = cls.__dict__.get("__avro_name__", cls.__name__) if isinstance(cls, type) else ""
    if not isinstance(name, str):
        refuse(where, "has an __avro_name__ that is not a text", "Give a dotted name.")
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        return Record(name, cls, "struct", tuple(_struct_fields(cls, where, outer)))
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        return Record(name, cls, "dataclass", tuple(_dataclass_fields(cls, where, outer)))
    if isinstance(cls, type) and issubclass(cls, pydantic.BaseModel):
        return Record(name, cls, "model", tuple(_model_fields(cls, where, outer)))
    return refuse(
        where, "is not a record type", "Use a frozen msgspec.Struct, dataclass or pydantic model."
    )


def _hints(cls: type, where: str) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as error:
        refuse(
            where,
            f"has an annotation that cannot be resolved ({error})",
            "Define the types of its fields at module level, before or after it.",
        )


def _frozen(where: str, frozen: bool, cure: str) -> None:
    if not frozen:
        refuse(where, "is not frozen: it could be changed behind the fold's back", cure)


def _keywords(cls: type, where: str) -> frozenset[str]:
    try:
        parameters = inspect.signature(cls).parameters.values()
    except ValueError as error:
        refuse(where, f"has a constructor that cannot be called ({error})", "Rename the field.")
    return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def _made(default: Any, factory: Any, missing: object) -> Any:
    """The default as a value; only the factories of empty containers give the same each time."""
    if factory in (list, dict, tuple):
        return factory()
    return REQUIRED if default is missing else default


def _struct_fields(
    cls: type[msgspec.Struct], where: str, outer: tuple[type, ...]
) -> Iterator[Field]:
    _frozen(where, cls.__struct_config__.frozen, f"class {cls.__name__}(…, frozen=True).")
    hints, keywords = _hints(cls, where), _keywords(cls, where)
    for info in msgspec.structs.fields(cls):
        default = _made(info.default, info.default_factory, msgspec.NODEFAULT)
        yield _field(
            info.name, hints[info.name], default, not info.required,
            info.name in keywords, f"{where}.{info.name}", outer,
        )  # fmt: skip


def _dataclass_fields(cls: Any, where: str, outer: tuple[type, ...]) -> Iterator[Field]:
    _frozen(where, cls.__dataclass_params__.frozen, "Use @dataclass(frozen=True, slots=True).")
    hints, keywords = _hints(cls, where), _keywords(cls, where)
    missing = dataclasses.MISSING
    for info in dataclasses.fields(cls):
        if not info.init:
            continue  # computed by the class itself: not stored
        optional = info.default is not missing or info.default_factory is not missing
        yield _field(
            info.name, hints[info.name], _made(info.default, info.default_factory, missing),
            optional, info.name in keywords, f"{where}.{info.name}", outer,
        )  # fmt: skip


def _model_fields(
    cls: type[pydantic.BaseModel], where: str, outer: tuple[type, ...]
) -> Iterator[Field]:
    if issubclass(cls, pydantic.RootModel):
        refuse(where, "is a RootModel", "Give its value a field with a name.")
    _frozen(where, bool(cls.model_config.get("frozen")), f"class {cls.__name__}(…, frozen=True).")
    if cls.model_config.get("extra") == "allow":
        refuse(where, "allows extra fields", "Use extra='forbid', or a field of type dict[str, T].")
    if cls.__private_attributes__:
        refuse(where, "has private attributes, which are not stored", "Make them fields.")
    for name, info in cls.model_fields.items():
        hint: Any = info.annotation
        for extra in info.metadata:
            hint = Annotated[hint, extra]
        default = _made(info.default, info.default_factory, PydanticUndefined)
        yield _field(name, hint, default, not info.is_required(), True, f"{where}.{name}", outer)


def _field(
    name: str,
    hint: Any,
    default: Any,
    optional: bool,
    keyword: bool,
    where: str,
    outer: tuple[type, ...],
) -> Field:
    if not name.isidentifier() or iskeyword(name):  # it becomes part of generated source
        refuse(where, "has a name that Python does not allow for an attribute", "Rename it.")
    aliases: tuple[str, ...] = ()
    for extra in _extras(hint):
        if isinstance(extra, WasNamed):
            aliases += extra.names
    return Field(name, _shape(hint, where, outer), default, optional, keyword, aliases)


def _extras(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.__metadata__) if get_origin(hint) is Annotated else ()


def _shape(hint: Any, where: str, outer: tuple[type, ...]) -> Shape:
    extras = _extras(hint)
    if extras:
        hint = get_args(hint)[0]
    while isinstance(hint, NewType) or hasattr(hint, "__value__"):
        hint = hint.__supertype__ if isinstance(hint, NewType) else hint.__value__
    if hint is Decimal:
        return Number(_digits(extras))
    if hint is int and Bits(32) in extras:
        return Scalar("int32")
    try:
        if hint in _SCALARS:
            return _SCALARS[hint]
    except TypeError:  # an annotation that cannot be hashed is none of ours
        refuse(where, f"has the unsupported type {hint!r}", _CURE)
    return _generic(hint, where, outer)


def _generic(hint: Any, where: str, outer: tuple[type, ...]) -> Shape:
    origin, args = get_origin(hint), get_args(hint)
    if len(outer) >= DEPTH:
        refuse(where, f"is more than {DEPTH} types deep", "Use fewer levels.")
    if origin is Literal:
        return _literal(args, where, outer)
    if origin in (Union, types.UnionType):
        return _choice(args, where, outer)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return Items(_shape(args[0], f"{where}[]", (*outer, tuple)), tuple)
    if origin is tuple or hint is tuple:
        refuse(where, f"has the type {hint!r}", "Use tuple[T, ...], or a frozen class with fields.")
    if origin is list:
        return Items(_shape(args[0], f"{where}[]", (*outer, list)), list)
    if origin is dict and args[0] is str:
        return Entries(_shape(args[1], f"{where}[*]", (*outer, dict)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint, where)
    if isinstance(hint, type) and (
        dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct | pydantic.BaseModel)
    ):
        return _record(hint, where, outer)
    shown = getattr(hint, "__name__", None) or repr(hint)
    return refuse(where, f"has the unsupported type {shown}", _CURES.get(origin or hint, _CURE))


def _digits(extras: tuple[Any, ...]) -> Digits | None:
    precision = scale = None
    for extra in extras:
        if isinstance(extra, Digits):
            return extra
        # pydantic's Field(max_digits=…, decimal_places=…) says the same
        precision = getattr(extra, "max_digits", None) or precision
        scale = getattr(extra, "decimal_places", scale)
    return None if precision is None or scale is None else Digits(precision, scale)


def _literal(values: tuple[Any, ...], where: str, outer: tuple[type, ...]) -> Symbols:
    if not all(type(value) is str for value in values):
        refuse(where, "has a Literal with other values than texts", "Use texts only, or an Enum.")
    # named after the class that declares it, not after the path to it, and so the same everywhere
    owner = next(cls for cls in reversed(outer) if cls not in _CONTAINERS)
    field = where.rpartition(".")[2].replace("[]", "_item").replace("[*]", "_value")
    name = f"{owner.__name__}_{field}"
    return Symbols(name, tuple((value, value) for value in values), None)


def _enum(cls: type[Enum], where: str) -> Symbols:
    members = list(cls)
    if not members or not all(isinstance(member.value, str) for member in members):
        refuse(where, f"has the Enum {cls.__name__} whose values are not texts", "Use a StrEnum.")
    wire_values = all(AVRO_NAME.match(member.value) for member in members)
    symbols = tuple((m.value if wire_values else m.name, m) for m in members)
    default = getattr(cls, "__avro_default__", None)
    if default is not None and default not in [symbol for symbol, _ in symbols]:
        refuse(where, f"has an __avro_default__ {default!r} that is no symbol", "Name a symbol.")
    return Symbols(cls.__dict__.get("__avro_name__", cls.__name__), symbols, cls, default)


def _choice(args: tuple[Any, ...], where: str, outer: tuple[type, ...]) -> Shape:
    branches = [_shape(arg, where, (*outer, object)) for arg in args]
    branches.sort(key=lambda branch: branch != Scalar("null"))  # null first, the rest as written
    kinds = [python_type(branch) for branch in branches]
    twice = {kind.__name__ for kind in kinds if kinds.count(kind) > 1 or kind is object}
    if twice:
        refuse(
            where,
            f"is a union that cannot be told apart: two branches are {', '.join(sorted(twice))}",
            "Give the branches classes of their own.",
        )
    return branches[0] if len(branches) == 1 else Choice(tuple(branches))
