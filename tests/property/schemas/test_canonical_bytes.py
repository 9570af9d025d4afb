"""Canonical bytes on drawn types: one value, one text of bytes, and back (B033)."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.schemas.made_types import MadeRecord, record, record_and_value

from refold.schemas.canonical import canonical_of, pack, unpack
from refold.schemas.errors import RecordError

patient = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@patient
@given(record_and_value())
def test_a_reload_gives_the_settled_value(drawn: tuple[MadeRecord, Any]) -> None:
    made, value = drawn
    canonical = canonical_of(made.python)
    assert canonical.fault(value) is None
    data = canonical.encode(value)
    read = canonical.decode(data)

    assert read == value
    assert repr(read) == repr(canonical.settle(value))
    assert canonical.encode(read) == data == pack(unpack(data))


@patient
@given(record_and_value())
def test_three_kinds_of_class_have_the_same_bytes(drawn: tuple[MadeRecord, Any]) -> None:
    made, value = drawn
    values = {name: getattr(value, name) for name, _ in made.fields}
    twins = [
        record(made.branch, maker, list(made.fields)).python
        for maker in ("struct", "dataclass", "model")
    ]

    assert len({canonical_of(twin).encode(twin(**values)) for twin in twins}) == 1


WRONG = [None, True, 1, 1.5, "text", b"bytes", (), [], {}, object(), float("nan"), 2**63, "\ud800"]


@patient
@given(record_and_value(), st.sampled_from(WRONG), st.data())
def test_the_quick_check_says_no_exactly_when_a_reload_would_differ(
    drawn: tuple[MadeRecord, Any], wrong: Any, data: st.DataObject
) -> None:
    """B032, B033: storable means that it comes back equal and of the same type."""
    made, value = drawn
    if not made.fields:
        return
    name, _ = data.draw(st.sampled_from(made.fields))
    values = {n: getattr(value, n) for n, _ in made.fields} | {name: wrong}
    twin = record("Twin", "struct", list(made.fields)).python
    canonical = canonical_of(twin)
    changed = twin(**values)
    if canonical.fault(changed) is None:
        read = getattr(canonical.decode(canonical.encode(changed)), name)
        assert (type(read), read) == (type(wrong), wrong)
    else:
        assert f"Twin.{name}" in str(canonical.fault(changed))


@patient
@given(record_and_value(), st.data())
def test_damaged_bytes_are_an_error_of_one_class_or_a_value(
    drawn: tuple[MadeRecord, Any], data: st.DataObject
) -> None:
    made, value = drawn
    canonical = canonical_of(made.python)
    damaged = bytearray(canonical.encode(value))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = canonical.decode(bytes(damaged))
    except RecordError:
        return
    assert type(read) is made.python
