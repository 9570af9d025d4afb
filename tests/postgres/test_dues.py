"""The due index: pages in due order, with the epoch; the views of what an instance waits for."""

from datetime import UTC, datetime

import msgspec
import pytest
from tests.postgres.making import TIME_MS, TOPIC, claimed, flush, instance, query

from refold.processors.dues import BEFORE_ALL, Place
from refold.processors.instance import More, OpenAction, Timer
from refold.processors.projection import ShownAction, shown_actions, shown_timers, timers_of
from refold.snapshots.model import InstanceRow
from refold.snapshots.store import PostgresStore

pytestmark = pytest.mark.postgres

FORWARD = "r1:acme:order:o-1:paying:Charge:%2Fshop%1Fe1:forward"


def waiting(name: str, due_ms: int | None, *, tenant: str = "acme") -> InstanceRow:
    text = b'[{"id":"timer-%b","name":"t","due_ms":%d,"attempt":1}]' % (name.encode(), due_ms or 0)
    return instance(name, due_ms=due_ms, timers=text, tenant=tenant)


def page(
    store: PostgresStore, after: Place = BEFORE_ALL, until_ms: int = TIME_MS + 1_000, limit: int = 9
) -> list[tuple[int, str, str]]:
    found = store.due(TOPIC, 0, "order", after, until_ms, limit)
    return [(each.due_ms - TIME_MS, each.tenant, each.instance) for each in found.rows]


def test_pages_come_in_due_order_and_go_on_behind_the_last_row(store: PostgresStore) -> None:
    row = claimed(store)
    rows = [
        waiting("c", TIME_MS + 5),
        waiting("a", TIME_MS + 7),
        waiting("b", TIME_MS + 5, tenant="zoo"),
        waiting("é", TIME_MS + 5),
        waiting("later", TIME_MS + 1_001),
        waiting("parked", None),
        instance("idle"),
    ]
    assert store.flush(flush(row, 10, instances=rows))
    whole = [(5, "acme", "c"), (5, "acme", "é"), (5, "zoo", "b"), (7, "acme", "a")]
    assert page(store) == whole
    assert page(store, limit=2) == whole[:2]
    assert page(store, after=(TIME_MS + 5, "acme", "é")) == whole[2:]
    assert page(store, after=(TIME_MS + 1_000, chr(0x10FFFF), ""), until_ms=TIME_MS + 2_000) == [
        (1_001, "acme", "later")
    ]


def test_the_epoch_and_the_watermark_come_with_a_page_also_with_an_empty_one(
    store: PostgresStore,
) -> None:
    assert store.due(TOPIC, 0, "order", BEFORE_ALL, TIME_MS, 9).epoch == -1
    row = claimed(store)
    assert store.flush(flush(row, 10))
    found = store.due(TOPIC, 0, "order", BEFORE_ALL, TIME_MS, 9)
    assert (found.epoch, found.rows_to, list(found.rows)) == (row.epoch, 10, [])


def test_another_partitions_instances_are_not_among_them(store: PostgresStore) -> None:
    claimed(store)
    other = claimed(store, number=1)
    assert store.flush(flush(other, 10, instances=[waiting("a", TIME_MS)]))
    assert page(store) == []


def test_a_row_that_waits_no_more_is_gone_from_the_index(store: PostgresStore) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10, instances=[waiting("a", TIME_MS)]))
    assert store.flush(flush(row, 11, previous=10, instances=[instance("a", last_offset=10)]))
    assert page(store) == []


def test_timers_come_back_from_a_row_as_the_fold_has_them(store: PostgresStore) -> None:
    row = claimed(store)
    action = OpenAction(FORWARD, "Charge", "Charge", "payments", "paying", b"", 5, 2, "retrying")
    timers = (Timer("timer-2", "retry 3", TIME_MS, FORWARD), Timer("timer-1", "end", TIME_MS - 1))
    shown = shown_timers(More(timers=timers, actions=(action,)))
    assert [(each.name, each.attempt) for each in shown] == [("end", 1), ("retry 3", 3)]
    text = packed(shown)
    assert store.flush(flush(row, 10, instances=[instance("a", due_ms=TIME_MS - 1, timers=text)]))
    (found,) = store.due(TOPIC, 0, "order", BEFORE_ALL, TIME_MS, 9).rows
    assert timers_of(found.timers) == timers[::-1]


def test_the_view_of_actions_tells_what_is_open_and_which_way_it_goes(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    back = FORWARD.replace("forward", "compensate")
    more = More(
        actions=(
            OpenAction(FORWARD, "Charge", "Charge", "payments", "paying", b"x", TIME_MS),
            OpenAction(
                back, "Refund", "Refund", "payments", "undoing", b"y", TIME_MS + 1, 3, "unknown",
                FORWARD,
            ),
        )
    )  # fmt: skip
    shown: list[ShownAction] = list(shown_actions(more))
    assert store.flush(flush(row, 10, instances=[instance("a", actions=packed(shown))]))
    found = query(
        migrated,
        "SELECT workflow, tenant, instance_id, key, action, state, direction, attempt, status,"
        " since FROM refold_v1.actions ORDER BY since",
    )
    first, second = (datetime.fromtimestamp((TIME_MS + each) / 1000, UTC) for each in (0, 1))
    who = ("order", "acme", "a")
    assert found == [
        (*who, FORWARD, "Charge", "paying", "forward", 1, "waiting", first),
        (*who, back, "Refund", "undoing", "compensate", 3, "unknown", second),
    ]


def packed(shown: object) -> bytes:
    return msgspec.json.encode(shown)
