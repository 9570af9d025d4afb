"""Questions of people: through the stable views, bounded, page by page, with an index."""

import pytest
from psycopg.conninfo import make_conninfo
from tests.postgres.making import claimed, event, flush, instance, query

from refold.schemas.errors import Code, UsageError
from refold.snapshots.queries import EventView, InstanceView, PartitionView, Queries
from refold.snapshots.store import PostgresStore

pytestmark = pytest.mark.postgres

PROMISED = {
    "instances": set(InstanceView.__struct_fields__),
    "events": set(EventView.__struct_fields__),
    "partitions": set(PartitionView.__struct_fields__),
    "rejected": {
        "workflow", "tenant", "instance_id", "topic_id", "partition", "log_offset", "source", "id",
        "type", "log_time", "folded_at", "verdict", "code", "text", "resolution", "resolved_by",
        "resolution_code", "resolution_text",
    },
    "actions": {
        "workflow", "tenant", "instance_id", "key", "action", "state", "direction", "attempt",
        "status", "since", "failure_code", "failure_text", "target",
    },
    "timers": {
        "workflow", "tenant", "instance_id", "id", "name", "state", "attempt", "due", "key",
    },
}  # fmt: skip


@pytest.fixture
def filled(store: PostgresStore, migrated: str) -> str:
    row = claimed(store)
    instances = [instance(f"order-{n}", n, state="done" if n % 2 else "charging") for n in range(7)]
    instances.append(instance("order-1", 8, tenant="zoo"))
    events = [event(n, "order-1", id=f"event-{n}") for n in range(5)]
    events += [
        event(5, "order-1", id="event-1", verdict="duplicate"),
        event(6, "order-1", verdict="refused", code="NO_TRANSITION"),
        event(7, "", tenant="", source="", id="", type="", verdict="poison"),
        event(8, "order-1", tenant="zoo", id="event-1"),
    ]
    assert store.flush(flush(row, 10, instances=instances, events=events))
    return migrated


@pytest.fixture
def queries(filled: str) -> Queries:
    return Queries(filled)


@pytest.mark.parametrize("view", sorted(PROMISED))
def test_a_view_has_exactly_the_columns_that_are_promised(migrated: str, view: str) -> None:
    found = query(
        migrated,
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = 'refold_v1' AND table_name = %s",
        view,
    )
    assert {name for (name,) in found} == PROMISED[view]


def test_instances_come_page_by_page_in_order_of_their_key(queries: Queries) -> None:
    pages = []
    after = None
    while page := queries.instances("order", after=after, limit=3):
        pages.append([(row.tenant, row.instance_id) for row in page])
        after = pages[-1][-1]
    queries.close()
    assert list(map(len, pages)) == [3, 3, 2]
    flat = [key for page in pages for key in page]
    assert flat == sorted(set(flat))
    assert flat[-1] == ("zoo", "order-1")


def test_instances_are_found_by_tenant_state_status_and_id(queries: Queries) -> None:
    assert len(queries.instances("order", state="done")) == 3
    assert len(queries.instances("order", tenant="zoo")) == 1
    assert len(queries.instances("order", instance_id="order-1")) == 2
    assert len(queries.instances("order", run_status="parked")) == 0
    assert len(queries.instances("loan")) == 0
    queries.close()


def test_a_history_is_in_log_order_and_of_one_instance_only(queries: Queries) -> None:
    first = queries.history("order", "acme", "order-1", limit=4)
    rest = queries.history("order", "acme", "order-1", after=first[-1].log_offset)
    queries.close()
    assert [row.log_offset for row in [*first, *rest]] == [0, 1, 2, 3, 4, 5, 6]


def test_what_became_of_an_event_shows_its_repeats_too(queries: Queries) -> None:
    found = queries.event("/shop", "event-1")
    queries.close()
    assert [(row.log_offset, row.tenant, row.verdict) for row in found] == [
        (1, "acme", "applied"),
        (5, "acme", "duplicate"),
        (8, "zoo", "applied"),
    ]


def test_rejected_records_come_page_by_page(queries: Queries) -> None:
    first = queries.rejected("order", limit=1)
    rest = queries.rejected("order", after=(first[0].partition, first[0].log_offset))
    queries.close()
    assert [(row.log_offset, row.verdict) for row in [*first, *rest]] == [
        (6, "refused"),
        (7, "poison"),
    ]


def test_partitions_show_owner_and_watermarks(queries: Queries) -> None:
    (row,) = queries.partitions()
    assert (row.owner, row.epoch, row.rows_to, row.counts) == ("w1", 1, 10, {})
    assert queries.partitions("loan") == []
    queries.close()


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_without_bounds_is_refused(queries: Queries, limit: int) -> None:
    with pytest.raises(UsageError) as refused:
        queries.instances("order", limit=limit)
    queries.close()
    assert refused.value.code is Code.BAD_COMMAND_LINE


@pytest.mark.parametrize(
    ("question", "index"),
    [
        ("SELECT * FROM refold_v1.events WHERE id = 'e' AND source = 's' AND verdict = 'applied' "
         "AND NOT doubled", "workflow_event_log_applied"),
        ("SELECT * FROM refold_v1.events WHERE id = 'e' AND source = 's' "
         "AND (verdict <> 'applied' OR doubled)", "workflow_event_log_other"),
        ("SELECT * FROM refold_v1.events WHERE workflow = 'order' AND tenant = 't' "
         "AND instance_id = 'i' AND log_offset > 3 ORDER BY log_offset LIMIT 10",
         "workflow_event_log_history"),
        ("SELECT * FROM refold_v1.instances WHERE run_status = 'parked' ORDER BY due, updated",
         "workflow_instance_status"),
        ("SELECT * FROM refold_v1.instances WHERE state = 'charging' ORDER BY state_since",
         "workflow_instance_state"),
        ("SELECT * FROM refold_v1.instances WHERE workflow = 'order' AND (tenant, instance_id) > "
         "('a', 'b') ORDER BY tenant, instance_id LIMIT 10", "workflow_instance_pkey"),
    ],
)  # fmt: skip
def test_a_question_is_answered_by_its_index(filled: str, question: str, index: str) -> None:
    # So few rows fit one page: without these the planner would rightly read the page.
    dsn = make_conninfo(filled, options="-c enable_seqscan=off -c enable_bitmapscan=off")
    plan = query(dsn, f"EXPLAIN {question}")
    assert any(index in line for (line,) in plan), plan
