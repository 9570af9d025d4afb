"""Flushes: instance rows and index under their own watermark; content never stops them (P20)."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.postgres.conftest import NewStore
from tests.postgres.making import (
    TIME_MS,
    TOPIC,
    claimed,
    count,
    event,
    flush,
    instance,
    query,
)

from refold.schemas.errors import InvariantViolation
from refold.snapshots.model import Alarm, EventRow, InstanceRow, ResolvedRow
from refold.snapshots.store import PostgresStore

pytestmark = pytest.mark.postgres


def _rows_to(store: PostgresStore) -> int:
    row = store.read(TOPIC, 0)
    assert row is not None
    return row.rows_to


def _context(dsn: str, name: str = "order-1") -> tuple[Any, bool]:
    found = query(
        dsn, "SELECT context, lossy FROM refold_v1.instances WHERE instance_id = %s", name
    )
    return found[0][0], found[0][1]


def test_rows_arrive_as_they_were_and_the_watermark_moves(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    late = instance(due_ms=TIME_MS + 1, failure_code="LIMIT_REACHED", failure_text="ünmöglich")
    assert store.flush(flush(row, 10, instances=[late], events=[event(3)]))
    assert _rows_to(store) == 10
    moment = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    seen = query(
        migrated,
        "SELECT state_since, due - created, context, lossy, failure_code, failure_text, version "
        "FROM refold_v1.instances",
    )[0]
    assert seen[0] == moment
    assert seen[1].total_seconds() == 0.001
    assert seen[2:] == ({"total": 5}, False, "LIMIT_REACHED", "ünmöglich", 1)
    log = query(
        migrated,
        "SELECT topic_id, log_offset, id, log_time, verdict, commands, doubled, resolution "
        "FROM refold_v1.events",
    )[0]
    assert log[:3] == (row.topic_id, 3, "event-3")
    assert log[3] == datetime.fromtimestamp((TIME_MS + 3) / 1000, UTC)
    assert log[4:] == ("applied", list(event(3).commands), False, None)


def test_an_older_epoch_or_another_watermark_writes_no_rows(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    assert not store.flush(flush(row, 10, previous=5, events=[event()]))
    assert store.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
    assert not store.flush(flush(row, 10, events=[event()], instances=[instance()]))
    assert (count(migrated, "workflow_event_log"), count(migrated, "workflow_instance")) == (0, 0)
    assert _rows_to(store) == 0


def test_rows_that_move_the_watermark_back_are_a_bug(store: PostgresStore) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10))
    with pytest.raises(InvariantViolation, match="back"):
        store.flush(flush(row, 5, previous=10))


def test_a_newer_instance_row_replaces_an_older_one_and_never_the_other_way(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10, instances=[instance(last_offset=5, state="done")]))
    old = instance(last_offset=4, state="charging")
    assert store.flush(flush(row, 11, previous=10, instances=[old]))
    assert query(migrated, "SELECT state FROM refold_v1.instances") == [("done",)]
    new = instance(last_offset=11, state="refunded")
    assert store.flush(flush(row, 12, previous=11, instances=[new]))
    assert query(migrated, "SELECT state FROM refold_v1.instances") == [("refunded",)]


def test_a_resolution_joins_the_row_of_its_record(store: PostgresStore, migrated: str) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10, events=[event(3, verdict="parked", code="SUSPECT")]))
    resolved = ResolvedRow(3, "applied", 17, "", "after a fix\0")
    assert store.flush(flush(row, 20, previous=10, resolved=[resolved]))
    seen = query(
        migrated,
        "SELECT verdict, resolution, resolved_by, resolution_text FROM refold_v1.rejected",
    )
    assert seen == [("parked", "applied", 17, "after a fix\ufffd")]


def test_an_event_that_was_applied_before_is_marked_and_alarmed_and_stops_nothing(
    store: PostgresStore, migrated: str, alarms: list[Alarm]
) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10, events=[event(3)]))
    again = [event(12, id="event-3"), event(13, id="new"), event(14, id="new"), event(15)]
    assert store.flush(flush(row, 20, previous=10, events=again))
    seen = query(migrated, "SELECT log_offset, doubled FROM refold_v1.events ORDER BY 1")
    assert seen == [(3, False), (12, True), (13, False), (14, True), (15, False)]
    assert [alarm.code for alarm in alarms] == ["EVENT_DOUBLED", "EVENT_DOUBLED"]


def test_an_applied_event_may_have_duplicates_and_namesakes(
    store: PostgresStore, migrated: str, alarms: list[Alarm]
) -> None:
    row = claimed(store)
    rows = [
        event(1, id="same"),
        event(2, id="same", verdict="duplicate"),
        event(3, id="same", source="/elsewhere"),
        event(4, id="same", name="order-2"),
        event(5, id="same", tenant="other"),
    ]
    assert store.flush(flush(row, 10, events=rows))
    assert count(migrated, "workflow_event_log") == 5
    assert not alarms


def test_a_replay_that_writes_rows_which_stand_compares_them(
    store: PostgresStore, migrated: str, alarms: list[Alarm]
) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10, events=[event(3), event(4), event(5)]))
    again = [event(3), event(4, state_after="elsewhere"), event(6)]
    assert store.flush(flush(row, 20, previous=10, events=again))
    assert count(migrated, "workflow_event_log") == 4
    assert [(alarm.code, "offset 4" in alarm.text) for alarm in alarms] == [("ROW_DIFFERS", True)]


@pytest.mark.parametrize(
    ("context", "kept"),
    [
        (b'{"note": "a\\u0000b"}', {"note": "a\ufffdb"}),
        (b'{"\\u0000k": 1}', {"\ufffdk": 1}),
        (b'{"x": NaN, "y": [Infinity, -Infinity]}', {"x": None, "y": [None, None]}),
        (b'{"x": "\\ud800"}', {"x": "\ufffd"}),
        (b'{"x": 1e999}', None),
        (b'{"x": 1e200000, "y": "\\u00e4"}', {"x": None, "y": "ä"}),
        (b'{"x": ' + b"9" * 200_000 + b"}", {}),
        (b'{"x": ' + b"9" * 200_000 + b', "y": "\\u00e4"}', {"x": None, "y": "ä"}),
        (b"[" * 100_000 + b"]" * 100_000, {}),
        (b"not json", {}),
        (b"", {}),
        (b'{"x": "\xff"}', {}),
        (b'{"x": "\0"}', {}),
    ],
)
def test_a_context_that_jsonb_cannot_hold_is_marked_lossy_and_stops_nothing(
    store: PostgresStore, migrated: str, context: bytes, kept: Any
) -> None:
    row = claimed(store)
    rows = [instance("order-1", context=context), instance("order-2")]
    assert store.flush(flush(row, 10, instances=rows, events=[event()]))
    if kept is not None:  # a number that JSONB holds although a double does not
        assert _context(migrated) == (kept, True)
    assert _context(migrated, "order-2") == ({"total": 5}, False)
    assert count(migrated, "workflow_event_log") == 1


@pytest.mark.parametrize(
    "document",
    [{"b": 1, "a": [1, 2]}, {"f": 1e16, "z": -0.0}, {"ä": "\N{CROISSANT}"}, [], "x", 7],
)
def test_a_context_that_jsonb_rewrites_means_the_same_and_is_not_lossy(
    store: PostgresStore, migrated: str, document: Any
) -> None:
    row = claimed(store)
    rows = [instance(context=json.dumps(document).encode())]
    assert store.flush(flush(row, 10, instances=rows))
    assert _context(migrated) == (document, False)


def test_free_text_with_nul_or_lone_surrogates_is_kept_as_far_as_text_can(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    rows = [instance(failure_code="REDUCER_RAISED", failure_text="bad \0 and \ud800")]
    events = [event(1, verdict="parked", text="bad \0 and \ud800")]
    assert store.flush(flush(row, 10, instances=rows, events=events))
    texts = query(migrated, "SELECT failure_text, text FROM refold_v1.instances, refold_v1.events")
    assert texts == [("bad \ufffd and \ufffd", "bad \ufffd and \ufffd")]


def test_even_a_name_that_slipped_through_every_check_stops_nothing(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    events = [event(1, id="with\0nul"), event(2, type="lone\ud800"), event(3)]
    rows = [instance("order-1"), instance("bad\0name")]
    assert store.flush(flush(row, 10, instances=rows, events=events))
    assert count(migrated, "workflow_event_log") == 3
    assert count(migrated, "workflow_instance") == 2


def test_the_last_row_of_an_instance_in_one_flush_wins(store: PostgresStore, migrated: str) -> None:
    row = claimed(store)
    rows: list[InstanceRow] = [
        instance("order-1", last_offset=1, state="first"),
        instance("order-2", last_offset=2),
        instance("order-1", last_offset=3, state="second"),
    ]
    assert store.flush(flush(row, 10, instances=rows))
    seen = query(migrated, "SELECT state FROM refold_v1.instances WHERE instance_id = 'order-1'")
    assert seen == [("second",)]


class _Paused(list[EventRow]):
    """Rows that let `act` run before the last one is sent."""

    def __init__(self, rows: list[EventRow], act: Callable[[], object]) -> None:
        super().__init__(rows)
        self._act = act

    def __iter__(self) -> Iterator[EventRow]:
        for number, row in enumerate(list.__iter__(self), 1):
            if number == len(self):
                self._act()
            yield row


def test_rows_of_later_records_are_never_seen_before_those_of_earlier_ones(
    new_store: NewStore, migrated: str
) -> None:
    first, second = new_store("w1"), new_store("w2")
    row = claimed(first)
    later = flush(row, 20, previous=0, events=[event(15)])
    with ThreadPoolExecutor(1) as pool:
        answers: list[Future[bool]] = []
        between = _Paused(
            [event(1), event(2)], lambda: answers.append(pool.submit(second.flush, later))
        )
        assert first.flush(flush(row, 10, events=between))
        assert not answers[0].result(), "it waited for the first and found its watermark moved"
    assert query(migrated, "SELECT log_offset FROM refold_v1.events ORDER BY 1") == [(1,), (2,)]
    assert second.flush(flush(row, 20, previous=10, events=[event(15)]))
