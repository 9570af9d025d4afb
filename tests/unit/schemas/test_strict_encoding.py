"""What is not of the declared type is refused and named, never coerced (B025, B026, B032)."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pydantic
import pytest

from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.shapes import Bits, Digits
from refold.schemas.types import Event


class Colour(StrEnum):
    RED = "red"


class Text(str):
    __slots__ = ()


class Approved(Event, frozen=True):
    by: str | None = None


class Rejected(Event, frozen=True):
    by: str | None = None
    reason: str | None = None


class All(Event, frozen=True):
    attempt: Annotated[int, Bits(32)] = 0
    maybe: Annotated[int, Bits(32)] | None = None
    amount: int = 0
    ratio: float = 0.0
    note: str = ""
    raw: bytes = b""
    done: bool = False
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    total: Annotated[Decimal, Digits(4, 2)] = Decimal(0)
    colour: Colour = Colour.RED
    word: Literal["a", "b"] = "a"
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = {}  # noqa: RUF012  # msgspec copies it
    inner: Approved | None = None
    outcome: Approved | Rejected = Approved()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempt", 2**31),
        ("attempt", -(2**31) - 1),
        ("attempt", True),
        ("attempt", 1.9),
        ("attempt", 2**63),
        ("maybe", 2**31),
        ("maybe", True),
        ("maybe", 1.9),
        ("amount", 2**63),
        ("amount", -(2**63) - 1),
        ("amount", True),
        ("amount", None),
        ("amount", "1"),
        ("ratio", 1),
        ("ratio", float("nan")),
        ("ratio", float("inf")),
        ("ratio", float("-inf")),
        ("note", b"bytes"),
        ("note", "\ud800"),
        ("note", Text("a subclass")),
        ("note", Colour.RED),
        ("raw", "text"),
        ("raw", bytearray(b"x")),
        ("done", 1),
        ("at", datetime(2026, 1, 1)),
        ("at", "2026-01-01"),
        ("total", 1),
        ("total", 1.5),
        ("total", Decimal("NaN")),
        ("total", Decimal("sNaN")),
        ("total", Decimal("Infinity")),
        ("total", Decimal("1.234")),
        ("total", Decimal("100")),
        ("total", Decimal("1E+999999")),
        ("total", Decimal("1E-999999")),
        ("colour", "red"),
        ("word", "c"),
        ("notes", ["a"]),
        ("notes", ("a", 1)),
        ("notes", ("a", "\udfff")),
        ("counts", {"a": True}),
        ("counts", {1: 1}),
        ("counts", {"\ud800": 1}),
        ("inner", Rejected("x")),
        ("inner", {"by": "x"}),
        ("outcome", {"by": "x"}),
        ("outcome", {}),
        ("outcome", None),
    ],
)
def test_a_wrong_value_is_refused_and_its_field_named(field: str, value: Any) -> None:
    codec = codec_of(All)
    codec.encode(All())

    with pytest.raises(RecordError) as caught:
        codec.encode(All(**{field: value}))
    assert caught.value.code is Code.NOT_STORABLE
    assert f"All.{field}" in caught.value.what


@pytest.mark.parametrize("value", [None, {}, {"by": "x"}, Approved("x"), All])
def test_an_object_of_another_class_is_refused(value: Any) -> None:
    with pytest.raises(RecordError) as caught:
        codec_of(All).encode(value)
    assert caught.value.code is Code.NOT_STORABLE


def test_a_union_keeps_the_branch_that_was_meant() -> None:
    """B025: two records with the same fields stay apart."""
    codec = codec_of(All)
    meant = All(outcome=Rejected("x"))

    again = codec.decode(codec.encode(codec.decode(codec.encode(meant))))

    assert type(again.outcome) is Rejected
    assert again == meant


def test_a_decimal_that_fits_is_padded_to_its_scale() -> None:
    codec = codec_of(All)

    for given, sent in (("12.3", "12.30"), ("-99.99", "-99.99"), ("1E+1", "10.00"), ("0", "0.00")):
        read = codec.decode(codec.encode(All(total=Decimal(given))))
        assert str(read.total) == sent


def test_a_moment_of_another_zone_is_the_same_moment() -> None:
    codec = codec_of(All)
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert codec.decode(codec.encode(All(at=east))).at == datetime(2026, 1, 1, tzinfo=UTC)


class Model(pydantic.BaseModel, frozen=True):
    amount: int
    note: str = "n"

    @pydantic.computed_field  # type: ignore[prop-decorator]  # pydantic's own way to write it
    @property
    def doubled(self) -> int:
        return self.amount * 2


def test_a_missing_field_is_named() -> None:
    """B026: pydantic can build a model without its fields."""
    with pytest.raises(RecordError) as caught:
        codec_of(Model).encode(Model.model_construct(note="x"))
    assert "Model.amount is missing" in caught.value.what


def test_computed_fields_are_not_stored() -> None:
    assert [field["name"] for field in codec_of(Model).schema["fields"]] == ["amount", "note"]
    assert codec_of(Model).decode(codec_of(Model).encode(Model(amount=3))).doubled == 6


def test_an_unknown_field_cannot_be_allowed() -> None:
    class Open(pydantic.BaseModel, frozen=True, extra="allow"):
        amount: int

    with pytest.raises(DefinitionError) as caught:
        codec_of(Open)
    assert caught.value.code is Code.SCHEMA_INVALID
