"""The generated check: can this object be stored, and would it come back equal?

Law of this module: total, and quick for a yes. It answers None or a sentence, whatever it is
given; the sentence comes from `refold.schemas.faults`, which is asked after a no only.
"""

from collections.abc import Callable
from math import isfinite

from refold.schemas.decimals import unscaled_bytes
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
)
from refold.schemas.source import Source
from refold.schemas.varint import MAX_INT, MAX_LONG, MIN_INT, MIN_LONG


def check_of(shape: Record) -> Callable[[object], str | None]:
    """Generate the check of a shape: `fault(object) -> str | None`."""

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
