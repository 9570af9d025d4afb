"""What an HTTP status says about an effect."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from refold.executors.outcome import (
    AnswerLostError,
    Incurable,
    NotDone,
    Unauthorized,
    Unavailable,
    connecting,
    refused,
    retry_after_s,
)


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (400, Incurable), (401, Unauthorized), (402, Incurable), (403, Unauthorized),
        (404, Incurable), (408, AnswerLostError), (409, Incurable), (422, Incurable),
        (425, NotDone), (429, NotDone), (500, AnswerLostError), (502, AnswerLostError),
        (503, Unavailable), (504, AnswerLostError), (302, AnswerLostError),
    ],
)  # fmt: skip
def test_a_status_says_what_is_known_of_the_effect(
    status: int, wanted: type[BaseException]
) -> None:
    with pytest.raises(wanted) as caught:
        refused(status)
    assert type(caught.value) is wanted


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert retry_after_s("7") == 7.0
    assert 90 < retry_after_s(soon) <= 100
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    assert [retry_after_s(each) for each in (None, "", "soon", "-3", "nan", "inf", past)] == [0] * 7
    assert retry_after_s("999999999") == 86_400.0


def test_a_line_that_cannot_be_opened_means_that_nothing_was_sent() -> None:
    with pytest.raises(Unavailable, match="refused"), connecting():
        raise ConnectionRefusedError("refused")
    with pytest.raises(ConnectionResetError):
        raise ConnectionResetError("this one was open: unknown")
