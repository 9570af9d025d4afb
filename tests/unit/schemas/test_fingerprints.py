"""Golden vectors of what is dear to change: fingerprints, framing, hashes of schema texts."""

import json
from decimal import Decimal
from typing import Annotated, Any

import fastavro.schema
import pytest

from refold.schemas.codec import codec_of
from refold.schemas.derive import fingerprint_of, meaning_of, sha256_of, text_of
from refold.schemas.errors import Code, RecordError
from refold.schemas.framing import (
    confluent_id,
    fingerprint_in,
    from_confluent,
    to_confluent,
)
from refold.schemas.shapes import Digits
from refold.schemas.types import Event


class Placed(Event, frozen=True):
    __avro_name__ = "shop.Placed"

    order: str
    amount: int
    total: Annotated[Decimal, Digits(10, 2)]


PLACED_TEXT = (
    '{"fields":[{"name":"order","type":"string"},{"name":"amount","type":"long"},{"name":"total",'
    '"type":{"logicalType":"decimal","precision":10,"scale":2,"type":"bytes"}}],'
    '"name":"shop.Placed","type":"record"}'
)


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        # CRC-64-AVRO of the primitives, as signed numbers, from Avro's shared test data
        ("null", 7195948357588979594),
        ("boolean", -6970731678124411036),
        ("int", 8247732601305521295),
        ("long", -3434872931120570953),
        ("float", 5583340709985441680),
        ("double", -8181574048448539266),
        ("bytes", 5746618253357095269),
        ("string", -8142146995180207161),
    ],
)
def test_fingerprints_are_those_of_avros_own_test_data(schema: str, number: int) -> None:
    assert fingerprint_of(schema) == number.to_bytes(8, "little", signed=True)


def test_the_fingerprint_of_a_type_never_changes() -> None:
    codec = codec_of(Placed)
    form = fastavro.schema.to_parsing_canonical_form(codec.schema)

    assert codec.name == "shop.Placed"
    assert codec.text == PLACED_TEXT
    assert codec.fingerprint.hex() == "765f9354270016a0"
    assert codec.fingerprint.hex() == fastavro.schema.fingerprint(form, "CRC-64-AVRO")
    assert (
        sha256_of(codec.text).hex()
        == "2a2682807b2f244db300643560e901def90e0f32edd74a4c69ebf7d81e6905b7"
    )


def test_the_bytes_of_a_value_never_change() -> None:
    value = Placed("o-17", -129, Decimal("12.34"))

    assert codec_of(Placed).encode(value).hex() == "c301765f9354270016a0086f2d313781020404d2"


def test_the_full_text_does_not_depend_on_spaces_and_order_of_keys() -> None:
    shuffled: Any = json.loads(
        PLACED_TEXT.replace(",", ", "), object_pairs_hook=lambda p: dict(p[::-1])
    )

    assert text_of(shuffled) == PLACED_TEXT


def test_logical_types_and_scale_are_in_the_meaning_and_not_in_the_fingerprint() -> None:
    """B027: decimal(10,2) and decimal(10,3) share a fingerprint and nothing else."""
    other = json.loads(PLACED_TEXT.replace('"scale":2', '"scale":3'))

    assert fingerprint_of(other) == codec_of(Placed).fingerprint
    assert meaning_of(other) != meaning_of(codec_of(Placed).schema)


def test_docs_and_defaults_are_not_in_the_meaning() -> None:
    other = json.loads(PLACED_TEXT)
    other["doc"] = "an order was placed"
    other["fields"][1]["default"] = 7

    assert meaning_of(other) == meaning_of(codec_of(Placed).schema)


def test_confluent_framing_is_a_zero_byte_and_the_id_in_big_endian() -> None:
    value = codec_of(Placed).encode(Placed("o", 1, Decimal("0.01")))
    framed = to_confluent(value, 258)

    assert framed[:5] == b"\x00\x00\x00\x01\x02"
    assert confluent_id(framed) == 258
    assert from_confluent(framed, fingerprint_in(value)) == value


@pytest.mark.parametrize("value", [b"", b"\xc3", b"\xc3\x01", b"\xc3\x01" + b"7" * 7, b'{"a": 1}'])
def test_what_is_not_framed_is_undecodable(value: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        fingerprint_in(value)
    assert caught.value.code is Code.UNDECODABLE
    with pytest.raises(RecordError):
        to_confluent(value, 1)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00abc", b"\xc3\x01abcdefgh"])
def test_what_a_registry_did_not_frame_is_undecodable(value: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        confluent_id(value)
    assert caught.value.code is Code.UNDECODABLE
