"""What is listed can be read on a screen of a hundred columns: whole words, a line a thing."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from refold.cli import look, operate, rejected, telling
from refold.processors.inspection import Happened
from refold.processors.overview import Overview, PartitionState

COLUMNS = 100
WORKER = "ip-172-31-250-117-4194304-c0ffee"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    shown = io.StringIO()
    monkeypatch.setattr(telling, "out", Console(file=shown, width=COLUMNS, color_system=None))
    return shown


def lines_of(screen: io.StringIO) -> list[str]:
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= COLUMNS
    return lines


def test_partitions_stand_one_a_line_below_their_topic(screen: io.StringIO) -> None:
    topic = "refold-production.loan-application.events"
    states = [
        PartitionState(
            topic=topic, partition=number, workflow="loan-application", worker=WORKER,
            host="/172.31.250.117", low=0, end=123_456_789, committed=123_456_780, lag=9, epoch=41,
            released=False, marker=123_450_000, rows_to=123_450_000, fence="OFFSETS_MOVED",
            parked=17,
        )
        for number in (0, 1)
    ]  # fmt: skip
    found = Overview(namespace="n", group="g", kafka="", postgres="", members=(), partitions=states)
    operate._list(found)
    title, head, first, second = lines_of(screen)
    assert title == topic
    assert head.split() == ["partition", "worker", "marker", "end", "lag", "parked", "fence"]
    for number, line in enumerate((first, second)):
        cells = [str(number), WORKER, "123450000", "123456789", "9", "17", "OFFSETS_MOVED"]
        assert line.split() == cells


def test_a_rejected_record_stands_on_one_line_with_its_reason_below(screen: io.StringIO) -> None:
    row: dict[str, Any] = {
        "where": "11:123456", "time": "2026-11-30T02:03:04.567Z", "verdict": "refused",
        "code": "NO_TRANSITION", "now": "came again: applied", "key": "application-173688",
        "type": "com.bank.loans.ApplicationSubmitted", "attempt": 2,
        "why": "closed takes no ApplicationSubmitted, and its late policy refuses it " * 2,
    }  # fmt: skip
    telling.listed(("WHERE", "TIME", "VERDICT", "CODE", "NOW"), [rejected._line(row)])
    _, line, about, *why = lines_of(screen)
    assert line.split() == [
        "11:123456", "2026-11-30", "02:03:04.567", "refused", "NO_TRANSITION", "came", "again:",
        "applied",
    ]  # fmt: skip
    assert "key application-173688" in about
    assert " ".join(" ".join(why).split()) == row["why"].strip()


def test_a_record_of_a_history_stands_on_one_line_with_what_it_caused_below(
    screen: io.StringIO,
) -> None:
    when = datetime(2026, 11, 30, 2, 3, 4, tzinfo=UTC)
    record = Happened(
        offset=123_456, log_time_ms=int(when.timestamp() * 1000), source="/bank", id="e-1",
        type="com.bank.loans.ApplicationSubmitted", verdict="applied", resolution="", code="",
        text="", transition="t", state_before="new", state_after="waiting_documents",
        commands=("r1:loan:acme:application-173688:waiting_documents:1:ask:forward",),
    )  # fmt: skip
    telling.listed(("offset", "time", "event", "verdict", "state"), [look._line(record)])
    _, line, *sent = lines_of(screen)
    assert line.endswith("applied  new → waiting_documents")
    assert "2026-11-30 02:03:04" in line
    assert "forward" in "".join(sent)


def test_keys_and_reasons_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for console in (telling.out, telling.err):
        console.print("r1:bank:pay [bold]:smile: [/x]", soft_wrap=True)
    printed = capsys.readouterr()
    assert printed.out == printed.err == "r1:bank:pay [bold]:smile: [/x]\n"
