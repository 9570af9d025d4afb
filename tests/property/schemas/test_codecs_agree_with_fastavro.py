"""Generated codecs against the reference: fastavro's bytes, both ways, on drawn types."""

import io
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.schemas.made_types import (
    LEAVES,
    Made,
    MadeRecord,
    Names,
    fields_of,
    record,
    record_and_value,
)

from refold.schemas.codec import Codec, codec_of
from refold.schemas.derive import parse
from refold.schemas.errors import RecordError

patient = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def reference_bytes(codec: Codec[Any], datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parse(codec.schema)[0], datum)
    return out.getvalue()


@patient
@given(record_and_value())
def test_a_value_has_the_bytes_that_fastavro_gives_it(drawn: tuple[MadeRecord, Any]) -> None:
    made, value = drawn
    codec = codec_of(made.python)

    assert codec.encode(value)[10:] == reference_bytes(codec, made.datum(value, True))


@patient
@given(record_and_value())
def test_what_fastavro_wrote_is_read_as_the_value_and_the_other_way_round(
    drawn: tuple[MadeRecord, Any],
) -> None:
    made, value = drawn
    codec = codec_of(made.python)
    body = reference_bytes(codec, made.datum(value, True))
    read: Any = fastavro.schemaless_reader(io.BytesIO(body), parse(codec.schema)[0], None)

    assert codec.decode(codec.encode(value)[:10] + body) == value
    assert read == made.datum(value, False)


@patient
@given(record_and_value())
def test_decoding_keeps_every_branch_and_type(drawn: tuple[MadeRecord, Any]) -> None:
    """B025: decode, encode, decode gives the same bytes, so no branch of a union is lost."""
    made, value = drawn
    codec = codec_of(made.python)
    data = codec.encode(value)
    once = codec.decode(data)

    assert type(once) is made.python
    assert codec.encode(once) == data


@st.composite
def changed_records(draw: st.DrawFn) -> tuple[MadeRecord, MadeRecord, Any]:
    """An older and a newer class under one name: fields left out and in another order."""
    names = Names()
    fields: list[tuple[str, Made]] = draw(fields_of(names, 2))
    kept = draw(st.lists(st.sampled_from(fields), unique_by=lambda f: f[0])) if fields else []
    makers = st.sampled_from(["struct", "dataclass", "model"])
    old = record("Changed", draw(makers), fields)
    return old, record("Changed", draw(makers), kept), draw(old.values)


@patient
@given(changed_records())
def test_an_older_record_is_resolved_as_fastavro_resolves_it(
    drawn: tuple[MadeRecord, MadeRecord, Any],
) -> None:
    """B028: bytes are read with the schema that wrote them, whatever the order of fields now."""
    old, new, value = drawn
    writer, codec = codec_of(old.python), Codec(new.python)
    codec.add_writer(writer.text)
    data = writer.encode(value)
    schemas = parse(writer.schema)[0], parse(codec.schema)[0]
    read: Any = fastavro.schemaless_reader(io.BytesIO(data[10:]), *schemas)

    assert new.datum(codec.decode(data), False) == read


@patient
@given(record_and_value(), st.data())
def test_no_damage_escapes_as_another_exception(
    drawn: tuple[MadeRecord, Any], data: st.DataObject
) -> None:
    """B018: cut, overwritten or prolonged bytes are UNDECODABLE, or a value of the very type."""
    made, value = drawn
    codec = codec_of(made.python)
    sound = codec.encode(value)
    damaged = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 3))):
        if len(damaged) > 10:
            at = data.draw(st.integers(10, len(damaged) - 1))
            damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    tail = data.draw(st.binary(max_size=3))
    try:
        read = codec.decode(bytes(damaged[:cut]) + tail)
    except RecordError:
        return
    assert type(read) is made.python
    codec.encode(read)  # what was accepted is a value that could have been sent


@patient
@given(record_and_value())
def test_a_record_cut_short_or_prolonged_is_never_read(drawn: tuple[MadeRecord, Any]) -> None:
    """B018: every prefix and every longer text of bytes is refused."""
    made, value = drawn
    codec = codec_of(made.python)
    sound = codec.encode(value)
    for damaged in [*(sound[:size] for size in range(len(sound))), sound + b"\x00"]:
        try:
            codec.decode(damaged)
        except RecordError:
            continue
        raise AssertionError(f"{len(damaged)} of {len(sound)} bytes were read")


WRONG = [None, True, 1, 1.5, "text", b"bytes", (), [], {}, object(), float("nan"), 2**63, "\ud800"]


@patient
@given(record_and_value(), st.sampled_from(WRONG), st.data())
def test_a_value_of_another_type_is_refused_never_coerced(
    drawn: tuple[MadeRecord, Any], wrong: Any, data: st.DataObject
) -> None:
    """B026: what is encoded reads back as the very value, or the encoder refuses it."""
    made, value = drawn
    if not made.fields:
        return
    name, _ = data.draw(st.sampled_from(made.fields))
    values = {n: getattr(value, n) for n, _ in made.fields} | {name: wrong}
    twin = record(f"{made.branch}Twin", "struct", list(made.fields))
    codec = codec_of(twin.python)
    changed = twin.python(**values)
    try:
        encoded = codec.encode(changed)
    except RecordError:
        return
    read = getattr(codec.decode(encoded), name)
    assert type(read) is type(wrong)
    assert read == wrong


@given(st.sampled_from(LEAVES), st.data())
def test_every_leaf_survives_in_an_optional_field(leaf: Made, data: st.DataObject) -> None:
    cls = record("Leaf", "struct", [("value", leaf)]).python
    codec = Codec(cls)
    value = cls(data.draw(leaf.values))

    assert codec.decode(codec.encode(value)) == value
