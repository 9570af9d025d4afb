"""Upcasters and Confluent wire format on drawn types: another way to the same object."""

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.property.schemas.made_types import MadeRecord, record_and_value

from refold.schemas.codec import Codec, codec_of
from refold.schemas.errors import Code, RecordError
from refold.schemas.framing import CONFLUENT_HEAD_BYTES, to_confluent
from refold.schemas.shapes import Choice, Entries, Items, Record, Shape, Symbols, python_type

patient = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(record_and_value())
def test_an_upcaster_that_changes_nothing_gives_the_same_object(
    drawn: tuple[MadeRecord, Any],
) -> None:
    """Unless a union has two branches that are the same in plain data, such as str and an enum:
    there an upcaster gives the object itself."""
    made, value = drawn
    codec = Codec(made.python)
    assume(not ambiguous(codec.shape))
    codec.add_writer(codec.text, lambda fields: fields)

    assert codec.decode(codec.encode(value)) == value


PLAIN: Final[dict[type, type]] = {Record: dict, Entries: dict, Items: list, Symbols: str}


def ambiguous(shape: Shape) -> bool:
    """True when a union inside has two branches of one plain kind."""
    match shape:
        case Record(fields=fields):
            return any(ambiguous(field.shape) for field in fields)
        case Items(item) | Entries(item):
            return ambiguous(item)
        case Choice(branches):
            kinds = [PLAIN.get(type(each)) or python_type(each) for each in branches]
            return len(kinds) > len(set(kinds)) or any(map(ambiguous, branches))
    return False


@patient
@given(record_and_value(), st.integers(0, 2**32 - 1), st.binary(max_size=3), st.data())
def test_both_framings_hold_the_same_object_and_the_same_damage(
    drawn: tuple[MadeRecord, Any], number: int, more: bytes, data: st.DataObject
) -> None:
    made, value = drawn
    codec = Codec(made.python)
    codec.add_number(number, codec.fingerprint)
    single = codec_of(made.python).encode(value)
    framed = to_confluent(single, number)
    assert codec.decode(framed) == value
    cut = framed[: data.draw(st.integers(0, len(framed)))] + more
    if len(cut) < CONFLUENT_HEAD_BYTES:
        with pytest.raises(RecordError) as caught:
            codec.decode(cut)
        assert caught.value.code is Code.UNDECODABLE
    elif cut[:CONFLUENT_HEAD_BYTES] == framed[:CONFLUENT_HEAD_BYTES]:
        body = cut[CONFLUENT_HEAD_BYTES:]
        assert outcome(codec, cut) == outcome(codec, single[:10] + body)


def outcome(codec: Codec[Any], value: bytes) -> tuple[Any, Any]:
    """The object, or the code of the error."""
    try:
        return repr(codec.decode(value)), None
    except RecordError as error:
        return None, error.code
