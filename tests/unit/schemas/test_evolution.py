"""Old records under new code (B028), upcasters, and the gate for new schemas."""

import json
from enum import Enum, StrEnum
from typing import Annotated, Any

import msgspec
import pytest

from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.evolve import incompatibilities
from refold.schemas.shapes import WasNamed
from refold.schemas.types import Event


def struct(name: str, *fields: Any) -> Any:
    return msgspec.defstruct(name, fields, frozen=True)


def reads(writer: Any, reader: Any) -> Any:
    """A function that reads what the writer's class encodes into the reader's."""
    codec = Codec(reader)
    codec.add_writer(codec_of(writer).text)
    return lambda *values: codec.decode(codec_of(writer).encode(writer(*values)))


def test_reordered_fields_keep_their_values() -> None:
    """B028: amount 100 and fee 2 stay so, whatever the order is now."""
    read = reads(
        struct("Paid", ("amount", int), ("fee", int)), struct("Paid", ("fee", int), ("amount", int))
    )(100, 2)

    assert (read.amount, read.fee) == (100, 2)


def test_a_new_field_takes_its_default_and_a_removed_one_is_passed_over() -> None:
    old = struct("Paid", ("gone", dict[str, tuple[float, ...]]), ("amount", int))
    read = reads(old, struct("Paid", ("amount", int), ("note", str, "none")))

    assert read({"a": (1.0, 2.0), "b": ()}, 5) == read({}, 5)
    assert (read({}, 5).amount, read({}, 5).note) == (5, "none")


def test_a_renamed_field_is_found_by_its_former_name() -> None:
    new = struct("Paid", ("amount", Annotated[int, WasNamed("sum")]))

    assert reads(struct("Paid", ("sum", int)), new)(7).amount == 7


class Two(StrEnum):
    __avro_name__ = "Mark"

    A = "A"
    B = "B"


class TwoAndUnknown(StrEnum):
    __avro_name__ = "Mark"
    __avro_default__ = "UNKNOWN"

    A = "A"
    B = "B"
    UNKNOWN = "UNKNOWN"


class Three(StrEnum):
    __avro_name__ = "Mark"

    C = "C"
    B = "B"
    A = "A"


def test_symbols_are_matched_by_name_never_by_place() -> None:
    read = reads(struct("Marked", ("mark", Two)), struct("Marked", ("mark", Three)))

    assert [read(mark).mark for mark in Two] == [Three.A, Three.B]


def test_a_symbol_that_the_code_does_not_know_is_undecodable_and_named() -> None:
    read = reads(struct("Marked", ("mark", Three)), struct("Marked", ("mark", Two)))

    assert read(Three.A).mark is Two.A
    with pytest.raises(RecordError) as caught:
        read(Three.C)
    assert caught.value.code is Code.UNDECODABLE
    assert "'C'" in caught.value.what


def test_a_symbol_that_the_code_does_not_know_becomes_its_declared_default() -> None:
    read = reads(struct("Marked", ("mark", Three)), struct("Marked", ("mark", TwoAndUnknown)))

    assert read(Three.C).mark is TwoAndUnknown.UNKNOWN


def test_an_integer_becomes_a_double_only_without_loss() -> None:
    """B028: 9007199254740993 does not silently become ...992."""
    read = reads(struct("Paid", ("amount", int)), struct("Paid", ("amount", float)))

    assert read(2**53).amount == 2.0**53
    with pytest.raises(RecordError) as caught:
        read(2**53 + 1)
    assert caught.value.code is Code.UNDECODABLE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (struct("Paid", ("amount", int)), struct("Charged", ("amount", int))),
        (struct("Paid", ("amount", int)), struct("Paid", ("amount", str))),
        (struct("Paid", ("amount", int)), struct("Paid", ("amount", int), ("fee", int))),
    ],
)
def test_a_writer_that_cannot_be_resolved_is_incompatible(old: Any, new: Any) -> None:
    with pytest.raises(RecordError) as caught:
        Codec(new).add_writer(codec_of(old).text)
    assert caught.value.code is Code.SCHEMA_INCOMPATIBLE


def test_a_union_that_lost_a_branch_fails_only_for_records_that_hold_it() -> None:
    read = reads(struct("Paid", ("fee", int | str | None)), struct("Paid", ("fee", int | None)))

    assert (read(3).fee, read(None).fee) == (3, None)
    with pytest.raises(RecordError) as caught:
        read("three")
    assert caught.value.code is Code.UNDECODABLE


def test_a_field_that_became_optional_is_read() -> None:
    read = reads(struct("Paid", ("fee", int)), struct("Paid", ("fee", str | int | None)))

    assert read(3).fee == 3


FOREIGN = {
    "type": "record",
    "name": "Paid",
    "fields": [
        {"name": "tree", "type": {"type": "record", "name": "Tree", "fields": [
            {"name": "children", "type": {"type": "array", "items": "Tree"}},
            {"name": "size", "type": ["null", {"type": "fixed", "name": "Four", "size": 4}]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["X", "Y"]}},
            {"name": "weights", "type": {"type": "map", "values": "float"}},
            {"name": "flag", "type": "boolean"},
        ]}},
        {"name": "amount", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip


def test_fields_of_any_foreign_schema_are_passed_over() -> None:
    new = struct("Paid", ("amount", int))
    codec = Codec(new)
    fingerprint = codec.add_writer(json.dumps(FOREIGN))
    leaf = b"\x00" + b"\x02abcd" + b"\x02" + b"\x02\x02k\x00\x00\x80\x3f\x00" + b"\x01"
    tree = b"\x04" + leaf + leaf + b"\x00" + b"\x00" + b"\x00" + b"\x00" + b"\x00"
    body = tree + b"\x0e" + b"\xd0\x0f"

    assert codec.decode(b"\xc3\x01" + fingerprint + body).amount == 7
    for size in range(len(body)):
        with pytest.raises(RecordError):
            codec.decode(b"\xc3\x01" + fingerprint + body[:size])


class Line(Event, frozen=True):
    sku: str


class Placed(Event, frozen=True):
    lines: tuple[Line, ...]
    mark: Two
    first: Line | None


def test_an_upcaster_lifts_an_old_record_to_the_newest_shape() -> None:
    old = struct("Placed", ("item", struct("Line", ("sku", str))), ("word", str))

    def lift(fields: dict[str, Any]) -> dict[str, Any]:
        return {"lines": [fields["item"]], "mark": fields["word"], "first": fields["item"]}

    codec = Codec(Placed)
    codec.add_writer(codec_of(old).text, lift)
    inner = old.__annotations__["item"]

    assert codec.decode(codec_of(old).encode(old(inner("s1"), "A"))) == Placed(
        (Line("s1"),), Two.A, Line("s1")
    )
    with pytest.raises(RecordError) as caught:
        codec.decode(codec_of(old).encode(old(inner("s1"), "no mark")))
    assert caught.value.code is Code.UPCASTER_RAISED
    assert "Placed.mark" in caught.value.what


def test_an_upcaster_that_raises_is_told_apart_from_damage() -> None:
    old = struct("Placed", ("word", str))
    codec = Codec(Placed)
    codec.add_writer(codec_of(old).text, lambda fields: fields["nothing"])

    value = codec_of(old).encode(old("x"))
    with pytest.raises(RecordError) as caught:
        codec.decode(value)
    assert caught.value.code is Code.UPCASTER_RAISED
    assert "KeyError: 'nothing'" in caught.value.what
    with pytest.raises(RecordError) as caught:
        codec.decode(value[:-1])
    assert caught.value.code is Code.UNDECODABLE


def record(*fields: dict[str, Any], name: str = "Paid", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(kind: Any, name: str = "it", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (record(field("long")), record(field("long"), field("long", "new", default=1))),
        (record(field("long"), field("long", "gone")), record(field("long"))),
        (record(field("long", "was")), record(field("long", aliases=["was"]))),
        (record(field("int")), record(field("long"))),
        (record(field("int")), record(field("double"))),
        (record(field("float")), record(field("double"))),
        (record(field("long")), record(field(["null", "long"]))),
        (record(field(["null", "long"])), record(field(["long", "null", "string"]))),
        (record(field(enum("A"))), record(field(enum("A", "B", default="A")))),
        (record(field(enum("A", "B"))), record(field(enum("A", default="A")))),
        (record(field(decimal(4, 2))), record(field(decimal(6, 2)))),
        (record(field("long")), record(field("long"), name="Charged", aliases=["Paid"])),
        (record(field("long"), name="shop.Paid"), record(field("long"), name="Paid")),
    ],
)
def test_a_change_that_keeps_every_value_is_compatible(old: Any, new: Any) -> None:
    assert incompatibilities(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (record(), record(field("long")), "it is new and has no default"),
        (record(field("long")), record(field("string")), "was long, now string"),
        (record(field("long")), record(field("double")), "digits could be lost"),
        (record(field("int")), record(field("float")), "digits could be lost"),
        (record(field("double")), record(field("float")), "digits could be lost"),
        (record(field("long")), record(field("int")), "digits could be lost"),
        (record(field("bytes")), record(field("string")), "was bytes"),
        (record(field("long")), record(field("long"), name="Charged"), "was named Paid"),
        (record(field(["null", "long"])), record(field("long")), "was null"),
        (record(field(["long", "string"])), record(field(["long", "null"])), "string"),
        (record(field(enum("A"))), record(field(enum("A", "B"))), "new symbol B"),
        (record(field(enum("A", "B"))), record(field(enum("A"))), "lacks the symbol B"),
        (record(field(enum("A"))), record(field(enum("A", name="F"))), "was the enum E"),
        (record(field(decimal(4, 2))), record(field(decimal(4, 3))), "after the point"),
        (record(field(decimal(6, 2))), record(field(decimal(4, 2))), "had 6 digits"),
        (record(field("long")), record(field(MICROS)), "timestamp-micros"),
        (record(field(MILLIS)), record(field(MICROS)), "timestamp-millis"),
        (
            record(field({"type": "array", "items": "long"})),
            record(field({"type": "array", "items": "string"})),
            "it[] was long",
        ),
        (
            record(field({"type": "map", "values": record(name="In")})),
            record(field({"type": "map", "values": record(field("long"), name="In")})),
            "it[*].it is new",
        ),
        (
            record(field(["null", record(name="In")])),
            record(field(["null", record(field("long"), name="In")])),
            "it.it is new",
        ),
    ],
)
def test_a_change_that_could_lose_a_value_is_refused_with_its_place(
    old: Any, new: Any, reason: str
) -> None:
    """B028: renames and lossy promotions do not pass the gate, though Avro would read some."""
    faults = incompatibilities(old, new)

    assert any(reason in fault for fault in faults), faults


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        incompatibilities({"type": "record"}, record())
    assert caught.value.code is Code.SCHEMA_INVALID


class Spoken(Enum):
    NEW = "Brand new"
    OLD = "Quite old"


def test_enum_classes_of_texts_are_read_by_their_names() -> None:
    cls = struct("Said", ("it", Spoken))
    codec = codec_of(cls)

    assert codec.decode(codec.encode(cls(Spoken.OLD))).it is Spoken.OLD
