"""Schemas that another service owns: the class says the same, the schema stands on the wire."""

import io
import json
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

import fastavro
import pytest

from refold.schemas.codec import codec_of
from refold.schemas.derive import parse
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.types import Event

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "count", "type": "int"}, {"name": "sku", "type": "string"}],
}
PAID: dict[str, Any] = {
    "type": "record",
    "name": "Paid",
    "namespace": "shop.v1",
    "doc": "written by another team",
    "fields": [
        {"name": "mark", "type": {"type": "enum", "name": "Mark", "symbols": ["B", "A"]}},
        {"name": "note", "type": ["string", "null", LINE]},
        {"name": "lines", "type": {"type": "array", "items": "Line"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "amount", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "fee", "type": ["null", "long"], "default": None},
    ],
}  # fmt: skip


class Mark(StrEnum):
    A = "A"
    B = "B"


class Line(Event, frozen=True):
    sku: str
    count: int


class Paid(Event, frozen=True):
    __avro_schema__: ClassVar[str] = json.dumps(PAID)

    amount: Decimal
    mark: Mark
    note: Line | str | None
    lines: tuple[Line, ...]
    counts: dict[str, int]
    fee: int | None = None


def test_the_given_schema_stands_on_the_wire() -> None:
    codec = codec_of(Paid)
    value = Paid(Decimal("1.5"), Mark.A, Line("s", 2), (Line("t", -3),), {"k": 4}, 5)
    out = io.BytesIO()
    datum: dict[str, Any] = {
        "mark": "A",
        "note": ("shop.v1.Line", {"count": 2, "sku": "s"}),
        "lines": [{"count": -3, "sku": "t"}],
        "counts": {"k": 4},
        "amount": Decimal("1.5"),
        "fee": 5,
    }
    fastavro.schemaless_writer(out, parse(PAID)[0], datum)

    assert codec.name == "shop.v1.Paid"
    assert json.loads(codec.text) == PAID
    assert codec.encode(value)[10:] == out.getvalue()
    assert codec.decode(codec.encode(value)) == value


def test_the_width_of_the_given_schema_is_kept() -> None:
    """B026: the class says int, the schema says 32 bits."""
    with pytest.raises(RecordError) as caught:
        codec_of(Paid).encode(Paid(Decimal(1), Mark.A, None, (Line("s", 2**31),), {}))
    assert "needs more than 32 bits" in caught.value.what


def changed(**kinds: Any) -> str:
    fields = [
        {**field, "type": kinds.get(str(field["name"]), field["type"])}
        for field in PAID["fields"]
        if kinds.get(str(field["name"])) != "left out"
    ]
    return json.dumps({**PAID, "fields": fields})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (changed(fee="left out"), "Other.fee"),
        (changed(fee=["null", "string"]), "Other.fee"),
        (changed(fee="long"), "Default value"),
        (changed(note=["null", LINE]), "Other.note"),
        (changed(note=["null", LINE, "string", "bytes"]), "Other.note"),
        (changed(mark={"type": "enum", "name": "Mark", "symbols": ["A"]}), "Other.mark"),
        (changed(counts={"type": "map", "values": "string"}), "Other"),
        (changed(amount="bytes"), "Paid.amount"),
        ('"string"', "not a record"),
        ("{", "no JSON"),
    ],
)
def test_a_class_that_says_otherwise_than_its_given_schema_is_refused(
    text: str, named: str
) -> None:
    class Other(Event, frozen=True):
        __avro_schema__: ClassVar[str] = text

        amount: Decimal
        mark: Mark
        note: Line | str | None
        lines: tuple[Line, ...]
        counts: dict[str, int]
        fee: int | None = None

    with pytest.raises(DefinitionError) as caught:
        codec_of(Other)
    assert caught.value.code is Code.SCHEMA_INVALID
    assert named in caught.value.what
