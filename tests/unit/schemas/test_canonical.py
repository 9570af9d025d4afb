"""Canonical bytes: golden vectors, what comes back, and what is not storable (B031–B033)."""

import dataclasses
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from refold.schemas.canonical import canonical_of, hash16, pack, unpack
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.shapes import Digits
from refold.schemas.types import Context


class Colour(StrEnum):
    RED = "deep red"


class Line(Context, frozen=True):
    sku: str
    count: int


class Note(Context, frozen=True):
    text: str


class Everything(Context, frozen=True):
    done: bool = True
    count: int = -1
    ratio: float = -0.0
    note: str = "a\x00ü\U0001f600"
    raw: bytes = b"\x00\xff"
    at: datetime = datetime(2026, 11, 29, 12, 0, 0, 5, tzinfo=UTC)
    day: date = date(2026, 11, 29)
    id: UUID = UUID(int=7)
    free: Decimal = Decimal("-1.50E+7")
    total: Annotated[Decimal, Digits(4, 2)] = Decimal("1.50")
    colour: Colour = Colour.RED
    word: Literal["a-b", "c"] = "a-b"
    lines: tuple[Line, ...] = (Line("s", 1),)
    notes: list[str] = []  # noqa: RUF012  # msgspec copies it
    counts: dict[str, int] = msgspec.field(default_factory=lambda: {"z": 1, "a": 2, "aa": 3})
    maybe: Line | None = None
    either: Line | Note | None = Note("n")
    number: int | float = 1.0


def test_the_bytes_of_every_kind_of_value_never_change() -> None:
    data = canonical_of(Everything).encode(Everything())

    assert data.hex() == (
        "01de0012a26174d7ff00004e206b0c13c0a6636f6c6f7572a86465657020726564a5636f756e74ff"
        "a6636f756e747383a16102a2616103a17a01a3646179aa323032362d31312d3239a4646f6e65c3a6"
        "65697468657281a44e6f746581a474657874a16ea466726565a82d312e3530452b37a26964d92430"
        "303030303030302d303030302d303030302d303030302d303030303030303030303037a56c696e65"
        "739182a5636f756e7401a3736b75a173a56d61796265c0a46e6f7465a86100c3bcf09f9880a56e6f"
        "74657390a66e756d62657281a5666c6f6174cb3ff0000000000000a5726174696fcb800000000000"
        "0000a3726177c40200ffa5746f74616ca4312e3530a4776f7264a3612d62"
    )
    assert hash16(data).hex() == "a98db4a189a4edacee6d62ae442b1342"


def test_everything_comes_back_equal_and_of_the_same_types() -> None:
    """B033: no tuple becomes a list, no decimal a float, no -0.0 a 0; U+0000 stays (B031)."""
    canonical = canonical_of(Everything)
    settled = canonical.settle(Everything())
    again = canonical.decode(canonical.encode(Everything()))

    assert again == Everything()
    for field in Everything.__struct_fields__:
        one, other = getattr(again, field), getattr(settled, field)
        assert type(one) is type(other)
        assert repr(one) == repr(other)
    assert again.at.tzinfo is UTC


def test_keys_are_sorted_by_their_bytes_whatever_the_order_they_came_in() -> None:
    first = pack({"b": 1, "a": {"d": 1, "c": 2}, "ä": 0, "aa": 3})

    assert first == pack({"aa": 3, "ä": 0, "a": {"c": 2, "d": 1}, "b": 1})
    assert first.hex() == "0184a16182a16302a16401a2616103a16201a2c3a400"


class Basket(Context, frozen=True):
    counts: dict[str, dict[str, int]]
    inner: Everything | None = None
    many: tuple[Everything, ...] = ()


def test_a_settled_object_walks_its_dicts_as_a_reloaded_one_does() -> None:
    """B033: order is not lost in a reload, because it is given up before."""
    canonical = canonical_of(Basket)
    basket = Basket({"z": {"d": 1, "c": 2}, "a": {}}, Everything(), (Everything(),))

    settled = canonical.settle(basket)

    assert settled == basket
    assert repr(settled) == repr(canonical.decode(canonical.encode(basket)))
    assert repr(settled) != repr(basket)
    assert canonical.settle(settled) is settled
    assert canonical.encode(settled) == canonical.encode(basket)


def test_settling_costs_nothing_where_there_is_no_dict() -> None:
    line = Line("s", 1)

    assert canonical_of(Line).settle(line) is line


def test_all_kinds_of_class_can_be_settled() -> None:
    counts = {"b": 1, "a": 2}
    hint = dict[str, int]
    for cls in (
        msgspec.defstruct("Same", [("counts", hint)], frozen=True),
        dataclasses.make_dataclass("Same", [("counts", hint)], frozen=True, slots=True),
        pydantic.create_model(
            "Same", __config__=pydantic.ConfigDict(frozen=True), counts=(hint, ...)
        ),
    ):
        settled: Any = canonical_of(cls).settle(cls(counts=counts))
        assert (type(settled), list(settled.counts)) == (cls, ["a", "b"])


def kinds() -> list[Any]:
    fields: list[tuple[str, Any]] = [
        ("note", str), ("count", int), ("lines", tuple[Line, ...]), ("either", Line | Note | None),
    ]  # fmt: skip
    models: dict[str, Any] = {name: (hint, ...) for name, hint in fields}
    config = pydantic.ConfigDict(frozen=True, arbitrary_types_allowed=True)
    return [
        msgspec.defstruct("Same", fields, frozen=True),
        msgspec.defstruct("Same", fields[::-1], frozen=True, tag=True, rename="camel"),
        msgspec.defstruct("Same", fields, frozen=True, omit_defaults=True, array_like=True),
        dataclasses.make_dataclass("Same", fields, frozen=True, slots=True),
        pydantic.create_model("Same", __config__=config, **models),
    ]


def test_all_kinds_of_class_with_the_same_fields_have_the_same_bytes() -> None:
    values = {"note": "n", "count": 7, "lines": (Line("s", 1),), "either": Note("x")}
    encoded = {canonical_of(cls).encode(cls(**values)) for cls in kinds()}

    assert len(encoded) == 1
    for cls in kinds():
        assert canonical_of(cls).decode(next(iter(encoded))) == cls(**values)


def test_a_context_can_be_embedded_in_a_bigger_value() -> None:
    for cls in kinds():
        canonical, value = canonical_of(cls), cls(note="n", count=7, lines=(), either=None)
        data = pack({"context": canonical.to_value(value), "version": 3})

        assert canonical.from_value(unpack(data)["context"]) == value


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("done", 1, "not bool"),
        ("count", True, "not int"),
        ("count", 2**63, "64 bits"),
        ("count", -(2**63) - 1, "64 bits"),
        ("ratio", 1, "not float"),
        ("ratio", float("nan"), "not a finite number"),
        ("ratio", float("inf"), "not a finite number"),
        ("note", b"text", "not str"),
        ("note", "\ud800", "surrogate"),
        ("note", Colour.RED, "not str"),
        ("raw", "text", "not bytes"),
        ("at", datetime(2026, 1, 1), "without a time zone"),
        ("at", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside UTC"),
        ("at", datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/London")), "outside UTC"),
        ("day", datetime(2026, 1, 1, tzinfo=UTC), "not date"),
        ("free", Decimal("NaN"), "not a finite number"),
        ("free", 1.0, "not Decimal"),
        ("total", Decimal("100"), "does not fit"),
        ("colour", "deep red", "not Colour"),
        ("word", "b", "not one of"),
        ("lines", [Line("s", 1)], "not tuple"),
        ("lines", (Line("s", 1), Line("s", True)), "lines[1].count"),
        ("lines", ({"sku": "s", "count": 1},), "lines[0]"),
        ("notes", {"a"}, "not list"),
        ("counts", {1: 1}, "a key"),
        ("counts", {"a": 1.0}, "counts['a']"),
        ("maybe", Note("n"), "maybe"),
        ("either", {"text": "n"}, "either"),
        ("number", True, "number"),
        ("number", float("nan"), "not a finite number"),
    ],
)
def test_what_cannot_be_stored_is_named(field: str, value: Any, found: str) -> None:
    """B032 and the storable check of the fold: a fault is a sentence, never an exception."""
    canonical = canonical_of(Everything)
    context = Everything(**{field: value})

    fault = canonical.fault(context)

    assert fault is not None
    assert fault.startswith(f"Everything.{field}")
    assert found in fault
    with pytest.raises(RecordError) as caught:
        canonical.encode(context)
    assert caught.value.code is Code.NOT_STORABLE


def test_an_object_of_another_class_is_not_storable() -> None:
    assert canonical_of(Everything).fault(Everything()) is None
    others: list[Any] = [None, {}, Line("s", 1), Everything]
    for other in others:
        assert canonical_of(Everything).fault(other) is not None


def test_a_zone_that_is_utc_under_another_name_is_storable() -> None:
    moment = datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))

    assert canonical_of(Everything).fault(Everything(at=moment)) is None


@pytest.mark.parametrize("hint", [set[str], Any, tuple[int, str], object, float | set[int]])
def test_a_context_of_unsupported_types_is_refused_when_it_is_declared(hint: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        canonical_of(msgspec.defstruct("Bad", [("it", hint)], frozen=True))
    assert caught.value.code is Code.NOT_STORABLE
    assert "Bad.it" in caught.value.what


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x02" + pack({"sku": "s", "count": 1})[1:],
        pack({"sku": "s", "count": 1})[:-1],
        pack({"sku": "s", "count": 1}) + b"\x00",
        pack({"sku": "s"}),
        pack({"sku": "s", "count": 1, "more": 1}),
        pack({"sku": 1, "count": 1}),
        pack({"sku": "s", "count": 1.0}),
        pack(["s", 1]),
        pack(None),
        b"\x01\x81\xa3sku\xa1\xff",
        b"\x01" + b"\x91" * 100_000,
    ],
)
def test_damaged_or_foreign_bytes_are_undecodable(data: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        canonical_of(Line).decode(data)
    assert caught.value.code is Code.UNDECODABLE


def test_a_field_with_a_default_may_be_missing_in_older_bytes() -> None:
    newer = msgspec.defstruct(
        "Line", [("sku", str), ("count", int), ("gift", bool, False)], frozen=True
    )

    read: Any = canonical_of(newer).decode(canonical_of(Line).encode(Line("s", 2)))

    assert (read.sku, read.count, read.gift) == ("s", 2, False)


def test_an_upcaster_lifts_an_older_snapshot() -> None:
    newer = msgspec.defstruct("Line", [("article", str), ("count", int)], frozen=True)
    old = canonical_of(Line).encode(Line("s", 2))

    read: Any = canonical_of(newer).decode(
        old, lambda fields: {"article": fields["sku"], "count": fields["count"]}
    )

    assert (read.article, read.count) == ("s", 2)
