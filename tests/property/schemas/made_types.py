"""Types that nobody thought of: classes with drawn fields, their values, and fastavro's view."""

import dataclasses
import keyword
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
from hypothesis import strategies as st

from refold.schemas.shapes import Bits, Digits

Datum = Callable[[Any, bool], Any]
"""(value, with the branch of a union named) → what fastavro reads or writes for it."""


@dataclasses.dataclass(frozen=True)
class Made:
    """A drawn type."""

    hint: Any
    values: st.SearchStrategy[Any] = dataclasses.field(repr=False)
    datum: Datum = dataclasses.field(repr=False)
    python: type[Any] = dataclasses.field(repr=False)
    branch: str
    """What a union calls it."""


def _same(value: Any, _: bool) -> Any:
    return value


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
LONGS = st.one_of(st.integers(-70, 70), st.integers(-9000, 9000), st.integers(-(2**63), 2**63 - 1))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0))


def _decimals(digits: Digits) -> st.SearchStrategy[Decimal]:
    top = 10**digits.precision - 1
    return st.integers(-top, top).map(lambda n: Decimal(n).scaleb(-digits.scale))


LEAVES = [
    Made(bool, st.booleans(), _same, bool, "boolean"),
    Made(int, LONGS, _same, int, "long"),
    Made(Annotated[int, Bits(32)], st.integers(-(2**31), 2**31 - 1), _same, int, "int"),
    Made(float, FLOATS, _same, float, "double"),
    Made(str, TEXTS, _same, str, "string"),
    Made(bytes, st.binary(max_size=80), _same, bytes, "bytes"),
    Made(datetime, MOMENTS, _same, datetime, "long"),
    Made(date, st.dates(), _same, date, "int"),
    Made(UUID, st.uuids(), _same, UUID, "string"),
    Made(Annotated[Decimal, Digits(12, 3)], _decimals(Digits(12, 3)), _same, Decimal, "bytes"),
]


class Names:
    """Names that no other type of the example has."""

    def __init__(self) -> None:
        self.count = 0

    def next(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


IDENTIFIERS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in dir(pydantic.BaseModel)
)


@st.composite
def types(draw: st.DrawFn, names: Names, depth: int) -> Made:
    """One type; `depth` levels may stand inside it."""
    makers = [_leaf, _enum, _literal]
    if depth:
        makers += [_tuple, _list, _dict, _optional, _union, _inner]
    found: Made = draw(draw(st.sampled_from(makers))(names, depth - 1))
    return found


@st.composite
def _leaf(draw: st.DrawFn, names: Names, depth: int) -> Made:
    return draw(st.sampled_from(LEAVES))


@st.composite
def _enum(draw: st.DrawFn, names: Names, depth: int) -> Made:
    size = draw(st.sampled_from([1, 2, 5, 64, 70]))
    cls: Any = Enum(names.next("Enum"), [(f"M{n}", f"m{n}") for n in range(size)])  # type: ignore[misc]
    branch = cls.__name__
    return Made(cls, st.sampled_from(list(cls)), lambda v, _: v.value, cls, branch)


@st.composite
def _literal(draw: st.DrawFn, names: Names, depth: int) -> Made:
    words = draw(st.lists(IDENTIFIERS, min_size=1, max_size=4, unique=True))
    hint = Literal[tuple(words)]  # type: ignore[valid-type]
    return Made(hint, st.sampled_from(words), _same, str, "enum")


@st.composite
def _tuple(draw: st.DrawFn, names: Names, depth: int) -> Made:
    item = draw(types(names, depth))
    return Made(
        tuple[item.hint, ...],  # type: ignore[name-defined]
        st.lists(item.values, max_size=4).map(tuple),
        lambda value, named: [item.datum(each, named) for each in value],
        tuple,
        "array",
    )


@st.composite
def _list(draw: st.DrawFn, names: Names, depth: int) -> Made:
    item = draw(types(names, depth))
    return Made(
        list[item.hint],  # type: ignore[name-defined]
        st.lists(item.values, max_size=4),
        lambda value, named: [item.datum(each, named) for each in value],
        list,
        "array",
    )


@st.composite
def _dict(draw: st.DrawFn, names: Names, depth: int) -> Made:
    item = draw(types(names, depth))
    return Made(
        dict[str, item.hint],  # type: ignore[name-defined]
        st.dictionaries(TEXTS, item.values, max_size=4),
        lambda value, named: {key: item.datum(each, named) for key, each in value.items()},
        dict,
        "map",
    )


def _either(branches: list[Made]) -> Made:
    hint: Any = None
    for branch in branches:
        hint = branch.hint | hint
    by_class = {branch.python: branch for branch in branches}

    def datum(value: Any, named: bool) -> Any:
        if value is None:
            return None
        branch = by_class[type(value)]
        inner = branch.datum(value, named)
        return (branch.branch, inner) if named else inner

    values = st.one_of(st.none(), *[branch.values for branch in branches])
    return Made(hint, values, datum, object, "union")


@st.composite
def _optional(draw: st.DrawFn, names: Names, depth: int) -> Made:
    usable = types(names, depth).filter(lambda made: made.branch not in ("union", "enum"))
    return _either([draw(usable)])


@st.composite
def _union(draw: st.DrawFn, names: Names, depth: int) -> Made:
    usable = types(names, depth).filter(lambda made: made.branch not in ("union", "enum"))
    drawn = draw(st.lists(usable, min_size=2, max_size=4))
    found: list[Made] = []
    for made in drawn:
        if all(made.python is not o.python and made.branch != o.branch for o in found):
            found.append(made)
    return _either(found)


@st.composite
def _inner(draw: st.DrawFn, names: Names, depth: int) -> Made:
    return draw(records(names, depth, min_size=1))


@dataclasses.dataclass(frozen=True)
class MadeRecord(Made):
    """A drawn record type with the types of its fields."""

    fields: tuple[tuple[str, Made], ...] = ()


def record(name: str, maker: str, fields: list[tuple[str, Made]]) -> MadeRecord:
    """A record class of one of the three kinds."""
    cls: Any
    if maker == "struct":
        cls = msgspec.defstruct(name, [(n, made.hint) for n, made in fields], frozen=True)
    elif maker == "dataclass":
        pairs = [(n, made.hint) for n, made in fields]
        cls = dataclasses.make_dataclass(name, pairs, frozen=True, slots=True)
    else:
        arguments: dict[str, Any] = {n: (made.hint, ...) for n, made in fields}
        config = pydantic.ConfigDict(frozen=True, arbitrary_types_allowed=True)
        cls = pydantic.create_model(name, __config__=config, **arguments)
    values = st.fixed_dictionaries({n: made.values for n, made in fields})

    def datum(value: Any, named: bool) -> Any:
        return {n: made.datum(getattr(value, n), named) for n, made in fields}

    return MadeRecord(cls, values.map(lambda v: cls(**v)), datum, cls, name, tuple(fields))


@st.composite
def fields_of(
    draw: st.DrawFn, names: Names, depth: int, min_size: int = 0
) -> list[tuple[str, Made]]:
    """Named types for the fields of a record."""
    found = draw(st.lists(IDENTIFIERS, min_size=min_size, max_size=5, unique=True))
    return [(name, draw(types(names, depth))) for name in found]


@st.composite
def records(draw: st.DrawFn, names: Names, depth: int, min_size: int = 0) -> MadeRecord:
    """A record type with drawn fields."""
    maker = draw(st.sampled_from(["struct", "dataclass", "model"]))
    name = names.next("Record")
    return record(name, maker, draw(fields_of(names, depth, min_size)))


@st.composite
def record_and_value(draw: st.DrawFn) -> tuple[MadeRecord, Any]:
    """A record type and one of its values."""
    made = draw(records(Names(), 2))
    return made, draw(made.values)
