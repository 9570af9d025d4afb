from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from refold.topics.failures import words
from refold.topics.times import Rfc3339, rfc3339


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_is_written_to_the_millisecond_and_read_back(ms: int) -> None:
    text = rfc3339(ms)
    assert len(text) == len("2026-01-31T08:15:00.250Z")
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo == UTC
    assert round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) == ms


@given(st.lists(st.integers(-5, 2_005) | st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_the_kept_time_is_the_one_that_was_asked_for(asked: list[int]) -> None:
    times = Rfc3339()
    assert [times.of(ms) for ms in asked] == [rfc3339(ms).encode() for ms in asked]


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_time_stops_the_fold(ms: int) -> None:
    """A log that was not always on LogAppendTime may hold ns, or less than nothing."""
    assert len(rfc3339(ms)) == len("2026-01-31T08:15:00.250Z")


def test_a_time_out_has_words_and_a_failures_own_full_stop_goes() -> None:
    assert words(TimeoutError()) == "no answer in time"
    assert words(ValueError("broken.")) == "broken"
