"""One fingerprint, one meaning (B027); the gate for new schemas; records of the schema topic."""

import json
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from refold.schemas.codec import Codec, codec_of
from refold.schemas.derive import sha256_of
from refold.schemas.errors import Code, DefinitionError, RecordError
from refold.schemas.registry import Known, Registry, from_record, known_of, to_record
from refold.schemas.shapes import Digits


def paid(*fields: Any) -> Any:
    return msgspec.defstruct("Paid", fields, frozen=True)


TWO = paid(("amount", Annotated[Decimal, Digits(4, 2)]))
THREE = paid(("amount", Annotated[Decimal, Digits(4, 3)]))


def known(cls: Any, sequence: int) -> Known:
    return known_of(codec_of(cls).text, "order", sequence)


def test_a_schema_with_a_taken_fingerprint_and_another_scale_is_refused() -> None:
    """B027: decimal(4,2) stands, decimal(4,3) is refused, and 12.34 stays 12.34."""
    registry = Registry([known(TWO, 1)])
    assert codec_of(TWO).fingerprint == codec_of(THREE).fingerprint

    with pytest.raises(RecordError) as caught:
        registry.add(known(THREE, 2))
    assert caught.value.code is Code.SCHEMA_COLLISION
    with pytest.raises(DefinitionError) as proposed:
        registry.propose(codec_of(THREE).text, "order")
    assert proposed.value.code is Code.SCHEMA_COLLISION
    with pytest.raises(RecordError) as taught:
        Codec(THREE).add_writer(codec_of(TWO).text)
    assert taught.value.code is Code.SCHEMA_COLLISION
    assert registry.find(codec_of(TWO).fingerprint) == known(TWO, 1)
    read: Any = Codec(TWO).decode(codec_of(TWO).encode(TWO(Decimal("12.34"))))
    assert read.amount == Decimal("12.34")


def test_the_lower_sequence_counts_whichever_is_read_first() -> None:
    registry = Registry([known(THREE, 2)])

    with pytest.raises(RecordError):
        registry.add(known(TWO, 1))
    assert registry.find(codec_of(TWO).fingerprint) == known(TWO, 1)


def test_a_schema_that_differs_in_docs_and_defaults_only_is_the_same() -> None:
    registry = Registry([known(TWO, 1)])
    text = codec_of(paid(("amount", Annotated[Decimal, Digits(4, 2)], Decimal("1.00")))).text

    assert registry.add(known_of(text, "order", 2)) == known(TWO, 1)
    assert registry.propose(text, "order") == known(TWO, 1)
    assert len(registry) == 1


def test_a_proposed_schema_gets_the_next_sequence_and_is_not_added() -> None:
    registry = Registry([known(paid(("a", int)), 1)])
    proposed = registry.propose(codec_of(paid(("a", int), ("b", int, 0))).text, "order")

    assert (proposed.type, proposed.sequence, len(registry)) == ("Paid", 2, 1)
    registry.add(proposed)
    assert [each.sequence for each in registry.of_type("Paid")] == [1, 2]


def test_a_schema_must_read_every_older_one_not_the_last_alone() -> None:
    """B028: the gate names the older schema and the field."""
    registry = Registry([known(paid(("a", int)), 1), known(paid(("a", int), ("b", str, "")), 2)])

    with pytest.raises(DefinitionError) as caught:
        registry.propose(codec_of(paid(("b", str))).text, "order")
    assert caught.value.code is Code.SCHEMA_INCOMPATIBLE
    assert "number 1" in caught.value.what
    assert "b is new and has no default" in caught.value.what


def test_a_codec_is_taught_every_schema_of_its_type() -> None:
    first, second = paid(("amount", int)), paid(("amount", int), ("note", str, ""))
    other = paid(("word", str))
    newest = paid(("amount", int), ("note", str, "none"))
    registry = Registry([known(first, 1), known(second, 2), known(other, 3)])
    codec = Codec(newest)

    refused = registry.teach(codec)

    assert [error.code for error in refused] == [Code.SCHEMA_INCOMPATIBLE]
    read: Any = codec.decode(codec_of(first).encode(first(3)))
    assert (read.amount, read.note) == (3, "none")
    lifting = Codec(newest, {3: lambda fields: {"amount": len(fields["word"])}})
    assert registry.teach(lifting) == []
    read = lifting.decode(codec_of(other).encode(other("four")))
    assert (read.amount, read.note) == (4, "none")


def test_what_its_own_schema_wrote_is_never_lifted() -> None:
    """A namespace that begins with the newest class: there it has the first sequence."""
    newest = paid(("amount", int))
    codec = Codec(newest, {1: lambda fields: {"amount": fields["word"]}})

    assert Registry([known(newest, 1)]).teach(codec) == []
    read: Any = codec.decode(codec.encode(newest(3)))
    assert read.amount == 3


def test_a_schema_that_an_upcaster_reads_may_differ_at_will() -> None:
    first = paid(("name", str))
    registry = Registry([known(first, 1)])
    text = codec_of(paid(("amount", int))).text

    with pytest.raises(DefinitionError):
        registry.propose(text, "order")
    assert registry.propose(text, "order", lifted={1}).sequence == 2


def test_a_schema_record_comes_back_as_it_was() -> None:
    schema = known(TWO, 7)
    key, headers, value = to_record(schema)

    assert key == sha256_of(schema.text)
    assert dict(headers) == {
        "fingerprint": schema.fingerprint.hex().encode(),
        "workflow": b"order",
        "type": b"Paid",
        "sequence": b"7",
    }
    assert from_record(key, dict(headers), value) == schema


def test_a_changed_schema_record_is_refused() -> None:
    key, headers, value = to_record(known(TWO, 1))
    sound = dict(headers)
    other = value.replace(b'"scale":2', b'"scale":3')
    damaged: list[tuple[Any, dict[str, bytes], Any]] = [
        (None, sound, value),
        (b"another key", sound, value),
        (key, sound, None),
        (key, sound, b"not json"),
        (key, sound, json.dumps("string").encode()),
        (key, sound, other),
        (key, sound, b"\xff"),
        (key, sound | {"type": b"Charged"}, value),
        (key, sound | {"fingerprint": b"00" * 8}, value),
        (key, sound | {"sequence": b"one"}, value),
        (key, {}, value),
    ]
    for record in damaged:
        with pytest.raises(RecordError) as caught:
            from_record(*record)
        assert caught.value.code is Code.UNDECODABLE
