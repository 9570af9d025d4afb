"""From the user's types to schemas: what is understood, and how the rest is refused."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, Any, ClassVar, Literal, NewType
from uuid import UUID

import msgspec
import pydantic
import pytest

from refold.schemas.codec import codec_of
from refold.schemas.derive import schema_of
from refold.schemas.errors import Code, DefinitionError
from refold.schemas.shapes import Bits, Digits, WasNamed
from refold.schemas.types import Event

Money = Annotated[Decimal, Digits(10, 2)]
OrderId = NewType("OrderId", str)


class Colour(StrEnum):
    __avro_default__ = "red"

    RED = "red"
    BLUE = "blue"


class Spoken(Enum):
    AWAITING_INFO = "Awaiting user info"
    NEW = "New"


class Line(Event, frozen=True):
    sku: OrderId
    price: Money


class Everything(Event, frozen=True):
    __avro_name__: ClassVar[str] = "shop.Everything"

    done: bool
    count: int
    short: Annotated[int, Bits(32)]
    ratio: float
    note: str
    raw: bytes
    at: datetime
    day: date
    id: UUID
    colour: Colour
    spoken: Spoken
    word: Literal["a", "b"]
    lines: tuple[Line, ...]
    best: Line | None
    counts: dict[str, int]
    either: int | str
    renamed: Annotated[str, WasNamed("old")] = "x"
    maybe: str | None = None
    named: str | None = "n"
    price: Money = Decimal("1.5")
    since: datetime = datetime(1970, 1, 2, tzinfo=UTC)
    last: Line = Line(OrderId("s"), Decimal(0))


def test_every_supported_type_has_its_avro_type() -> None:
    fields = {field["name"]: field for field in schema_of(Everything)["fields"]}
    line = {
        "type": "record",
        "name": "shop.Line",
        "fields": [
            {"name": "sku", "type": "string"},
            {"name": "price", "type": decimal_schema},
        ],
    }

    assert {name: field["type"] for name, field in fields.items()} == {
        "done": "boolean",
        "count": "long",
        "short": "int",
        "ratio": "double",
        "note": "string",
        "raw": "bytes",
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "day": {"type": "int", "logicalType": "date"},
        "id": {"type": "string", "logicalType": "uuid"},
        "colour": {
            "type": "enum", "name": "shop.Colour", "symbols": ["red", "blue"], "default": "red",
        },
        "spoken": {"type": "enum", "name": "shop.Spoken", "symbols": ["AWAITING_INFO", "NEW"]},
        "word": {"type": "enum", "name": "shop.Everything_word", "symbols": ["a", "b"]},
        "lines": {"type": "array", "items": line},
        "best": ["null", "shop.Line"],
        "counts": {"type": "map", "values": "long"},
        "either": ["long", "string"],
        "renamed": "string",
        "maybe": ["null", "string"],
        "named": ["string", "null"],
        "price": decimal_schema,
        "since": {"type": "long", "logicalType": "timestamp-micros"},
        "last": "shop.Line",
    }  # fmt: skip
    assert {name: field["default"] for name, field in fields.items() if "default" in field} == {
        "renamed": "x",
        "maybe": None,
        "named": "n",
        "price": "\x00\x96",
        "since": 86_400_000_000,
        "last": {"sku": "s", "price": "\x00"},
    }
    assert fields["renamed"]["aliases"] == ["old"]


decimal_schema = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeywordOnly:
    note: str
    count: int = 7
    double: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", self.count * 2)


class Mixed(msgspec.Struct, frozen=True, kw_only=True):
    late: int = 1
    note: str


class Aliased(pydantic.BaseModel, frozen=True):
    total: Decimal = pydantic.Field(alias="Total", max_digits=6, decimal_places=2)
    count: pydantic.PositiveInt


@pytest.mark.parametrize(
    "value",
    [
        KeywordOnly(note="n", count=3),
        Mixed(note="n", late=2),
        Aliased(Total=Decimal("1.25"), count=2),
    ],
)
def test_keyword_only_computed_and_aliased_fields_survive(value: Any) -> None:
    codec = codec_of(type(value))

    assert codec.decode(codec.encode(value)) == value


def struct(hint: Any, default: Any = msgspec.NODEFAULT) -> type:
    field = ("it", hint) if default is msgspec.NODEFAULT else ("it", hint, default)
    return msgspec.defstruct("Bad", [field], frozen=True)


class Node(Event, frozen=True):
    next: "Node | None" = None


def thawed() -> type:
    return msgspec.defstruct("Bad", [("it", int)])


def thawed_dataclass() -> type:
    return dataclasses.make_dataclass("Bad", [("it", int)])


def thawed_model() -> type:
    return pydantic.create_model("Bad", it=(int, ...))


def smuggled(name: str) -> type:
    fields: dict[str, Any] = {name: (int, ...)}
    made: type = pydantic.create_model("Bad", __config__=pydantic.ConfigDict(frozen=True), **fields)
    return made


def deep() -> type:
    cls: Any = int
    for level in range(14):
        cls = msgspec.defstruct(f"Level{level}", [("it", cls)], frozen=True)
    return cls  # type: ignore[no-any-return]  # a class by now


def two_of_one_name() -> type:
    one = msgspec.defstruct("Same", [("a", int)], frozen=True)
    other = msgspec.defstruct("Same", [("b", int)], frozen=True)
    return msgspec.defstruct("Bad", [("it", one), ("that", other)], frozen=True)


class Numbers(Enum):
    ONE = 1


class Hidden(pydantic.RootModel[int], frozen=True):
    pass


@pytest.mark.parametrize(
    ("make", "named", "cure"),
    [
        (lambda: struct(set[str]), "Bad.it", "tuple"),
        (lambda: struct(frozenset[str]), "Bad.it", "tuple"),
        (lambda: struct(Any), "Bad.it", "Name the type"),
        (lambda: struct(object), "Bad.it", "Name the type"),
        (lambda: struct(time), "Bad.it", "seconds"),
        (lambda: struct(timedelta), "Bad.it", "unit"),
        (lambda: struct(complex), "Bad.it", "floats"),
        (lambda: struct(tuple[int, str]), "Bad.it", "frozen class"),
        (lambda: struct(tuple), "Bad.it", "tuple[T, ...]"),
        (lambda: struct(dict[int, str]), "Bad.it", "dict[str, T]"),
        (lambda: struct(Decimal), "Bad.it", "Digits"),
        (lambda: struct(tuple[None, ...]), "Bad.it", "number"),
        (lambda: struct(Literal[1, 2]), "Bad.it", "texts"),
        (lambda: struct(Literal["a-b"]), "Bad.it", "Enum"),
        (lambda: struct(Numbers), "Bad.it", "StrEnum"),
        (lambda: struct(int | datetime), "Bad.it", "frozen class"),
        (lambda: struct(str | UUID), "Bad.it", "frozen class"),
        (lambda: struct(tuple[int, ...] | tuple[str, ...]), "Bad.it", "classes of their own"),
        (lambda: struct(str | Literal["a"]), "Bad.it", "classes of their own"),
        (lambda: struct(Callable[[], None]), "Bad.it", "Use bool"),
        (lambda: struct(float, 1), "Bad.it", "default"),
        (lambda: struct(int, True), "Bad.it", "default"),
        (lambda: Node, "Node.next", "id"),
        (thawed, "Bad", "frozen=True"),
        (thawed_dataclass, "Bad", "frozen=True"),
        (thawed_model, "Bad", "frozen=True"),
        (deep, "Level", "fewer levels"),
        (two_of_one_name, "Bad.that", "__avro_name__"),
        (lambda: Hidden, "Hidden", "field"),
        (lambda: int, "int", "msgspec.Struct"),
        (lambda: msgspec.defstruct("Größe", [], frozen=True), "Größe", "ASCII"),
        (lambda: msgspec.defstruct("Bad", [("from", int)], frozen=True), "'from'", "Rename"),
        (lambda: smuggled("it; print('hello')"), "print", "Rename"),
        (lambda: msgspec.defstruct("Bad", [("größe", int)], frozen=True), "größe", "ASCII"),
        (lambda: msgspec.defstruct("Bad", [("it", "Nowhere")], frozen=True), "Bad", "module level"),
    ],
)
def test_a_type_that_cannot_be_derived_is_refused_with_its_place_and_cure(
    make: Callable[[], type], named: str, cure: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        codec_of(make())
    assert caught.value.code is Code.SCHEMA_INVALID
    assert named in caught.value.what
    assert cure in caught.value.what + caught.value.cure


def test_digits_out_of_their_range_are_refused() -> None:
    for precision, scale in ((0, 0), (2, 3), (1001, 0), (5, -1)):
        with pytest.raises(DefinitionError):
            Digits(precision, scale)


def test_a_schema_is_the_same_text_for_all_three_kinds_of_class() -> None:
    def fields() -> list[tuple[str, Any]]:
        return [("note", str), ("count", int | None)]

    kinds = [
        msgspec.defstruct("Same", fields(), frozen=True),
        dataclasses.make_dataclass("Same", fields(), frozen=True),
        pydantic.create_model(
            "Same", __config__=pydantic.ConfigDict(frozen=True),
            note=(str, ...), count=(int | None, ...),
        ),
    ]  # fmt: skip

    assert len({codec_of(kind).text for kind in kinds}) == 1
