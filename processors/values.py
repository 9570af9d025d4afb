"""Which values of the user's modules can change while the program runs.

Law of this module: a judgement by type, no code of the user's is run.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import operator
import pathlib
import re
import types
import typing
import uuid
import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Any, Final

_ATOMS: Final = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type(Ellipsis),
    type(NotImplemented),
    decimal.Decimal,
    fractions.Fraction,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    uuid.UUID,
    re.Pattern,
    pathlib.PurePath,
    zoneinfo.ZoneInfo,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    enum.Enum,
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.GenericAlias,
    types.UnionType,
    typing.TypeVar,
    typing.NewType,
    functools.partial,
    functools._lru_cache_wrapper,
)
_CODECS: Final = ("msgspec", "pydantic", "pydantic_core", "typing", "refold")
"""Packages whose objects are tools without memory: encoders, adapters, type forms, graphs."""
_DEPTH: Final = 32  # a constant that nests deeper is not a constant that a person wrote


def is_immutable(value: object, depth: int = 0) -> bool:
    """Whether a value stays as it is: plain values, frozen records, and tuples of them.

    A frozen record with a list inside is not immutable. Unknown classes count as mutable.
    """
    if isinstance(value, _ATOMS):
        return True
    if depth > _DEPTH:
        return False
    if isinstance(value, tuple | frozenset):
        return all(is_immutable(item, depth + 1) for item in value)
    if isinstance(value, types.MappingProxyType):
        return all(is_immutable(item, depth + 1) for item in value.values())
    if is_frozen(type(value)):
        return all(is_immutable(item, depth + 1) for _, item in fields_of(value))
    return (type(value).__module__ or "").split(".")[0] in _CODECS


def parts_of(value: object, depth: int = 0) -> Iterator[object]:
    """What a value of a module holds, itself included: through tuples, mappings and records."""
    yield value
    inner: list[object] = []
    if isinstance(value, tuple | frozenset | list | set):
        inner = [*value]
    elif isinstance(value, Mapping):
        inner = [*value.values()]
    elif not isinstance(value, type):
        inner = [item for _, item in fields_of(value)]
    for item in inner if depth < _DEPTH else ():
        yield from parts_of(item, depth + 1)


def is_frozen(cls: type) -> bool:
    """Whether a class is a frozen dataclass, msgspec struct or pydantic model."""
    params = getattr(cls, "__dataclass_params__", None)
    struct = getattr(cls, "__struct_config__", None)
    model = getattr(cls, "model_config", None)
    if params is not None:
        return bool(params.frozen)
    if struct is not None:
        return bool(struct.frozen)
    return isinstance(model, Mapping) and bool(model.get("frozen"))


def fields_of(value: object) -> list[tuple[str, Any]]:
    """Names and values of a record's fields, in declared order; empty for other objects."""
    cls = type(value)
    names: tuple[str, ...] = getattr(cls, "__struct_fields__", ())
    if dataclasses.is_dataclass(value):
        names = tuple(field.name for field in dataclasses.fields(value))
    elif hasattr(cls, "model_fields"):
        names = tuple(cls.model_fields)
    return [(name, getattr(value, name)) for name in names]
