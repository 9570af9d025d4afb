"""Values on their way into columns: what a column holds is untouched, the rest is marked."""

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from refold.schemas.errors import Code
from refold.snapshots.faults import Fault, fault, server_error
from refold.snapshots.model import InstanceRow
from refold.snapshots.rows import micros, plain, storable, tidied

TEXT = st.text(st.characters(codec=None, exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(TEXT)
def test_plain_text_can_always_be_stored_and_good_text_is_untouched(text: str) -> None:
    kept = plain(text)
    assert "\0" not in kept
    kept.encode()
    assert plain(kept) == kept
    if "\0" not in text and text.encode(errors="ignore").decode() == text:
        assert kept == text


@given(JSON)
def test_any_document_becomes_strict_json_without_nul(document: Any) -> None:
    context, _ = storable(json.dumps(document).encode())

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert "\0" not in str(json.loads(context.decode(), parse_constant=refuse))


@given(JSON)
def test_a_document_that_jsonb_holds_is_passed_on_as_it_is(document: Any) -> None:
    context = json.dumps(document, ensure_ascii=False).encode(errors="ignore")
    held = b"\\u" not in context and b"NaN" not in context and b"Infinity" not in context
    if held:
        assert storable(context) == (context, False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_becomes_null_and_is_marked(value: float) -> None:
    assert storable(json.dumps({"x": value}).encode()) == (b'{"x":null}', True)


def test_words_that_only_look_like_bad_numbers_are_kept_and_not_marked() -> None:
    context = b'{"surname":"NaN","mood":"Infinity","path":"C:\\\\u0000"}'
    kept, lossy = storable(context)
    assert json.loads(kept) == json.loads(context)
    assert not lossy


def test_a_tidied_row_keeps_every_field_that_is_no_text() -> None:
    row = InstanceRow(
        "ten\0ant",
        "id",
        1,
        "s",
        2,
        "running",
        b"{}",
        False,
        3,
        4,
        "/s",
        "e",
        None,
        None,
        None,
        5,
        6,
    )
    kept = tidied(row)
    assert kept.tenant == "ten\ufffdant"
    assert (kept.context, kept.version, kept.due_ms, kept.lossy) == (b"{}", 3, None, False)


@pytest.mark.parametrize(
    ("error", "what", "code"),
    [
        (errors.SerializationFailure(), Fault.CONFLICT, Code.POSTGRES_AWAY),
        (errors.DeadlockDetected(), Fault.CONFLICT, Code.POSTGRES_AWAY),
        (errors.QueryCanceled(), Fault.SLOW, Code.POSTGRES_AWAY),
        (errors.ReadOnlySqlTransaction(), Fault.READ_ONLY, Code.POSTGRES_AWAY),
        (errors.AdminShutdown(), Fault.LOST, Code.POSTGRES_AWAY),
        (errors.CannotConnectNow(), Fault.AWAY, Code.POSTGRES_AWAY),
        (errors.DiskFull(), Fault.AWAY, Code.POSTGRES_AWAY),
        (errors.TooManyConnections(), Fault.AWAY, Code.POSTGRES_AWAY),
        (errors.ConnectionFailure(), Fault.LOST, Code.POSTGRES_AWAY),
        (errors.OperationalError("the connection is lost"), Fault.LOST, Code.POSTGRES_AWAY),
        (errors.UntranslatableCharacter(), Fault.DATA, Code.POSTGRES_REFUSED),
        (errors.UniqueViolation(), Fault.UNIQUE, Code.POSTGRES_REFUSED),
        (errors.InvalidPassword(), Fault.REFUSED, Code.POSTGRES_REFUSED),
        (errors.InsufficientPrivilege(), Fault.REFUSED, Code.POSTGRES_REFUSED),
        (errors.UndefinedTable(), Fault.REFUSED, Code.SCHEMA_VERSION),
    ],
)
def test_each_error_of_the_server_has_one_meaning(error: Any, what: Fault, code: Code) -> None:
    assert fault(error) is what
    assert server_error(error, "a test").code is code


@pytest.mark.parametrize("time_ms", [-(2**63), -1, 0, 1_796_000_000_123, 2**63 - 1])
def test_every_time_fits_a_timestamp_that_can_be_read_back(time_ms: int) -> None:
    """Nanoseconds that a sender took for milliseconds would end the saver, and every worker."""
    assert abs(micros(time_ms)) < 2**63
    read = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros(time_ms))
    if 0 <= time_ms < 2**53:
        assert round(read.timestamp() * 1000) == time_ms
