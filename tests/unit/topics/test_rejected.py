from typing import cast

import msgspec
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from refold.schemas.errors import Code, InvariantViolation, RecordError
from refold.schemas.verdicts import Activate, Decision, Reason, Verdict
from refold.topics.headers import RawHeaders
from refold.topics.rejected import (
    RECORD_BYTES,
    Coordinates,
    Record,
    encode,
    encode_activate,
    original,
    read,
    record_hash,
    redrive_headers,
)

DECISION = Decision(41, Verdict.POISON, Reason(Code.UNDECODABLE, "is cut short"))


def event(
    key: bytes | None = b"order-1",
    value: bytes | None = b"\xc3\x01body",
    headers: RawHeaders = (),
    offset: int = 41,
) -> Message:
    return Message(
        topic="refold.order.events",
        partition=3,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers),
        timestamp=(2, 7),
    )


def kept(record: Record, offset: int = 0) -> Message:
    return Message(
        topic="refold.order.rejected",
        partition=3,
        offset=offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp=(2, 8),
    )


def size(record: Record) -> int:
    return (
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(held or b"") for name, held in record.headers)
    )


headers_of_anybody = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from(["ce_id", "refold-kind", "refold-attempt", "original-ce_id", ""]),
            st.text(max_size=5),
        ),
        st.one_of(st.none(), st.binary(max_size=8)),
    ),
    max_size=6,
)
maybe = st.one_of(st.none(), st.binary(max_size=20))


@given(maybe, maybe, headers_of_anybody)
def test_a_kept_record_gives_back_every_byte_b019_b024(
    key: bytes | None, value: bytes | None, headers: RawHeaders
) -> None:
    message = kept(encode(event(key, value, headers), DECISION))
    found = original(message)
    assert (found.key, found.value, list(found.headers)) == (key, value, headers)
    assert found.source == found.origin == Coordinates("refold.order.events", 3, 41)
    assert (found.attempt, found.stub) == (1, None)
    assert read(message) == DECISION


def test_null_stays_null_and_empty_stays_empty_b019() -> None:
    for value in (None, b""):
        found = original(kept(encode(event(value=value), DECISION)))
        assert found.value == value


def test_a_record_redriven_twenty_times_does_not_grow_b021() -> None:
    headers: RawHeaders = [("ce_id", b"e1"), ("trace", b"\xc3\x28"), ("x", None)]
    first = encode(event(headers=headers), DECISION)
    record = first
    for attempt in range(2, 22):
        found = original(kept(record))
        again = event(
            found.key,
            found.value,
            cast(RawHeaders, redrive_headers(found, found.headers)),
            41 + attempt,
        )
        record = encode(again, msgspec.structs.replace(DECISION, offset=41 + attempt))
        assert original(kept(record)).attempt == attempt
        assert original(kept(record)).origin == Coordinates("refold.order.events", 3, 41)
        assert list(original(kept(record)).headers) == headers
        assert size(record) <= size(first) + 4  # digits of attempt and offset


def test_a_reason_is_cut_to_its_bound_b021() -> None:
    decision = Decision(41, Verdict.PARKED, Reason(Code.REDUCER_RAISED, "ä" * 400_000))
    record = encode(event(), decision)
    found = read(kept(record))
    assert isinstance(found, Decision)
    assert len(found.reason.text.encode()) <= 1024
    assert found.reason.text.endswith("…")
    assert read(kept(encode(event(), found))) == found


def test_text_that_utf8_cannot_hold_is_escaped() -> None:
    decision = Decision(41, Verdict.PARKED, Reason(Code.REDUCER_RAISED, "bad \ud800"))
    found = read(kept(encode(event(), decision)))
    assert isinstance(found, Decision)
    assert found.reason.text == "bad \\ud800"


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"order-1", b"v" * (RECORD_BYTES + 1), []),
        (b"order-1", b"v", [("h", b"1" * RECORD_BYTES)]),
        (b"k" * RECORD_BYTES, b"v", []),
        (b"order-1", None, [("h", b"") for _ in range(200_000)]),
    ],
)
def test_what_does_not_fit_becomes_a_stub_with_hash_and_coordinates_b021(
    key: bytes, value: bytes | None, headers: RawHeaders
) -> None:
    record = encode(event(key, value, headers), DECISION)
    assert size(record) < 6_000
    found = original(kept(record))
    assert found.stub == record_hash(key, value, headers)
    assert (found.value, found.headers) == (None, [])
    assert found.key == (key if len(key) < 100 else None)
    assert found.source == Coordinates("refold.order.events", 3, 41)


def test_the_largest_event_that_a_broker_takes_is_kept_whole_b021() -> None:
    record = encode(event(value=b"v" * 1_048_000), DECISION)
    assert original(kept(record)).stub is None


def test_a_header_that_only_looks_like_a_redrive_is_kept() -> None:
    headers: RawHeaders = [("refold-redrive", b"nonsense"), ("refold-redrive", None)]
    found = original(kept(encode(event(headers=headers), DECISION)))
    assert list(found.headers) == headers
    assert found.attempt == 1


def test_an_activation_is_read_as_it_was_written() -> None:
    activate = Activate(7, 2, "f" * 32, 1, "main", 12)
    record = encode_activate(activate)
    assert record.key is None
    assert read(kept(record)) == activate


def test_a_decision_about_another_offset_is_our_own_mistake() -> None:
    with pytest.raises(InvariantViolation):
        encode(event(offset=42), DECISION)


@given(maybe, headers_of_anybody)
def test_a_record_of_somebody_else_is_named_with_its_coordinates(
    value: bytes | None, headers: RawHeaders
) -> None:
    message = Message(
        topic="refold.order.rejected",
        partition=3,
        offset=5,
        key=None,
        value=value,
        headers=list(headers),
    )
    for reading in (read, original):
        with pytest.raises(RecordError) as caught:
            reading(message)
        assert caught.value.code == Code.UNDECODABLE
        assert caught.value.where["offset"] == 5


@given(st.lists(st.tuples(st.text(max_size=3), maybe), max_size=3), maybe, maybe)
def test_a_hash_tells_null_from_empty_and_one_part_from_two(
    headers: RawHeaders, key: bytes | None, value: bytes | None
) -> None:
    whole = record_hash(key, value, headers)
    assert whole != record_hash(key, value, [*headers, ("", b"")])
    assert whole != record_hash(key, b"other" if value is None else None, headers)
