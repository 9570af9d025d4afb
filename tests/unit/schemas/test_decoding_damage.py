"""Damaged bytes, one by one (B018); the drawn ones are in tests/property/schemas."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from struct import pack
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, RecordError
from refold.schemas.shapes import Bits, Digits
from refold.schemas.types import Event


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class LongText(Event, frozen=True):
    amount: int
    note: str


class OfEnum(Event, frozen=True):
    colour: Colour


class OfUnion(Event, frozen=True):
    note: str | None


class OfMoment(Event, frozen=True):
    at: datetime


class OfFloat(Event, frozen=True):
    ratio: float


class OfBool(Event, frozen=True):
    done: bool


class OfUuid(Event, frozen=True):
    id: UUID


class OfDecimal(Event, frozen=True):
    total: Annotated[Decimal, Digits(4, 2)]


class OfInt(Event, frozen=True):
    attempt: Annotated[int, Bits(32)]


class OfItems(Event, frozen=True):
    notes: tuple[str, ...]


class Guarded(msgspec.Struct, frozen=True):
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise RuntimeError("the author's own rule")


def framed(cls: type, body: bytes) -> bytes:
    return b"\xc3\x01" + codec_of(cls).fingerprint + body


def refused(cls: type, value: Any) -> RecordError:
    with pytest.raises(RecordError) as caught:
        codec_of(cls).decode(value)
    assert caught.value.what
    return caught.value


def test_a_record_cut_at_any_length_is_undecodable() -> None:
    sound = codec_of(LongText).encode(LongText(-300, "sieben"))
    assert codec_of(LongText).decode(sound) == LongText(-300, "sieben")

    assert {refused(LongText, sound[:size]).code for size in range(len(sound))} == {
        Code.UNDECODABLE
    }


def test_bytes_behind_the_end_are_undecodable() -> None:
    sound = codec_of(LongText).encode(LongText(1, "x"))

    assert refused(LongText, sound + b"stray").code is Code.UNDECODABLE


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        pytest.param(LongText, b"\x02\x04\xc3\x28", id="text that is not UTF-8"),
        pytest.param(LongText, b"\x02\x03", id="negative length"),
        pytest.param(LongText, b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7fx", id="endless length"),
        pytest.param(LongText, b"\xff" * 10 + b"\x01\x00", id="number of 11 bytes"),
        pytest.param(LongText, b"\xff" * 9 + b"\x02\x00", id="number of 65 bits"),
        pytest.param(OfEnum, b"\x01", id="enum index -1"),
        pytest.param(OfEnum, b"\x0e", id="enum index 7"),
        pytest.param(OfEnum, b"\x80\x01", id="enum index 64"),
        pytest.param(OfUnion, b"\x01", id="union index -1"),
        pytest.param(OfUnion, b"\x0e", id="union index 7"),
        pytest.param(OfBool, b"\x02", id="boolean 2"),
        pytest.param(OfMoment, b"\x80\x80\xa8\xb3\xf8\x85\x8b\xf6\xac\x02", id="year 31688738"),
        pytest.param(OfFloat, pack("<d", float("nan")), id="NaN (B032)"),
        pytest.param(OfFloat, pack("<d", float("inf")), id="Infinity (B032)"),
        pytest.param(OfFloat, pack("<d", float("-inf")), id="-Infinity (B032)"),
        pytest.param(OfUuid, b"\x48" + b"{" * 36, id="no UUID"),
        pytest.param(OfUuid, b"\x40" + b"0" * 32, id="UUID without dashes"),
        pytest.param(OfDecimal, b"\x00", id="decimal of no byte"),
        pytest.param(OfDecimal, b"\x06\x0f\x42\x40", id="decimal of 7 digits in 4"),
        pytest.param(OfInt, b"\x80\x80\x80\x80\x10", id="32-bit field with 33 bits (B026)"),
        pytest.param(OfItems, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", id="endless block"),
        pytest.param(OfItems, b"\x7e\x00", id="more items than bytes"),
        pytest.param(OfItems, b"\x80\x00", id="empty block that goes on"),
        pytest.param(Guarded, b"\x01", id="a value that the author's class refuses"),
    ],
)
def test_damage_of_every_kind_is_undecodable(cls: type, body: bytes) -> None:
    assert refused(cls, framed(cls, body)).code is Code.UNDECODABLE


@pytest.mark.parametrize(
    "value", [b"", b"not avro", b"\x00", b'{"amount": 1}', b"\xc3\x01", None, 7]
)
def test_what_is_no_single_object_is_undecodable(value: Any) -> None:
    """B017, B019: text, a zero byte, JSON, nothing at all."""
    assert refused(LongText, value).code is Code.UNDECODABLE


def test_an_unknown_fingerprint_is_told_apart_from_damage() -> None:
    error = refused(LongText, b"\xc3\x01" + b"\x07" * 8 + b"\x02\x02x")

    assert error.code is Code.SCHEMA_UNKNOWN
    assert error.where["fingerprint"] == "07" * 8


def test_blocks_with_their_size_in_bytes_are_read() -> None:
    """Other writers send a negative count and the block's size, and several blocks."""
    body = b"\x03\x08\x02a\x02b" + b"\x02\x02c" + b"\x00"

    assert codec_of(OfItems).decode(framed(OfItems, body)) == OfItems(("a", "b", "c"))


def test_moments_before_the_epoch_and_at_the_ends_of_time_survive() -> None:
    codec = codec_of(OfMoment)
    for at in (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ):
        assert codec.decode(codec.encode(OfMoment(at))) == OfMoment(at)
