"""Why a value does not fit its shape: the slow, explaining twin of the generated checks.

Law of this module: exact types only, nothing is coerced. The generated code says yes or no in
a fraction of a microsecond; this walk is taken after a no, and names the field.
"""

from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from refold.schemas.decimals import unscaled_bytes
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
from refold.schemas.varint import MAX_INT, MAX_LONG, MIN_INT, MIN_LONG


def fault_in(shape: Shape, value: object, where: str, *, utc: bool) -> str | None:
    """What is wrong with a value, with the place in it; None if nothing.

    Args:
        shape: What it should be.
        value: What it is.
        where: Name of the place, for the answer.
        utc: Moments must be in UTC (stored values); else any zone will do (values sent).
    """
    if isinstance(shape, Choice):
        return _choice(shape, value, where, utc)
    wanted = python_type(shape)
    if type(value) is not wanted:
        return f"{where} is {_shown(value)}, not {_name(wanted)}"
    match shape:
        case Scalar(kind):
            fault = _scalar(kind, value, utc)
            return f"{where} {fault}" if fault else None
        case Number():
            fault = _number(shape, value)
            return f"{where} {fault}" if fault else None
        case Symbols(members=members):
            if value not in [member for _, member in members]:
                return f"{where} is {value!r}, not one of {', '.join(s for s, _ in members)}"
            return None
        case _:
            return _parts(shape, value, where, utc)


def _parts(shape: Shape, value: Any, where: str, utc: bool) -> str | None:
    faults: list[str | None] = []
    match shape:
        case Items(item):
            faults = [fault_in(item, v, f"{where}[{n}]", utc=utc) for n, v in enumerate(value)]
        case Entries(inner):
            for key, each in value.items():
                faults.append(fault_in(Scalar("str"), key, f"{where}: a key", utc=utc))
                faults.append(fault_in(inner, each, f"{where}[{key!r}]", utc=utc))
        case Record(fields=fields):
            for field in fields:
                place = f"{where}.{field.name}"
                if hasattr(value, field.name):
                    part = getattr(value, field.name)
                    faults.append(fault_in(field.shape, part, place, utc=utc))
                else:
                    faults.append(f"{place} is missing")
    return next((fault for fault in faults if fault), None)


def _choice(shape: Choice, value: object, where: str, utc: bool) -> str | None:
    for branch in shape.branches:
        if type(value) is python_type(branch):
            return fault_in(branch, value, where, utc=utc)
    names = ", ".join(_name(python_type(branch)) for branch in shape.branches)
    return f"{where} is {_shown(value)}, not one of {names}"


def _scalar(kind: str, value: Any, utc: bool) -> str | None:
    match kind:
        case "int" if not MIN_LONG <= value <= MAX_LONG:
            return "needs more than 64 bits"
        case "int32" if not MIN_INT <= value <= MAX_INT:
            return "needs more than 32 bits"
        case "float" if not isfinite(value):
            return f"is {value}, not a finite number"
        case "str":
            return _text(value)
        case "datetime":
            return _moment(value, utc)
    return None


def _text(value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return "has half of a surrogate pair, which is no text"
    return None


def _moment(value: datetime, utc: bool) -> str | None:
    if value.utcoffset() is None:
        return "is a datetime without a time zone"
    if utc and value.tzname() != "UTC":
        return "is a datetime outside UTC: use .astimezone(UTC)"
    return None


def _number(shape: Number, value: Any) -> str | None:
    number: Decimal = value
    if not number.is_finite():
        return f"is {number}, not a finite number"
    if shape.digits is None:
        return None
    try:
        unscaled_bytes(number, shape.digits.precision, shape.digits.scale)
    except ValueError as error:
        return str(error)
    return None


def _shown(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _name(cls: type) -> str:
    return "None" if cls is type(None) else cls.__name__
