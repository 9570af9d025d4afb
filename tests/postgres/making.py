"""Rows for tests of the store: short to write, honest in every field."""

from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from refold.snapshots.model import (
    Cut,
    EventRow,
    Flush,
    InstanceRow,
    PartitionRow,
    ResolvedRow,
    Snapshot,
    content_hash,
)
from refold.snapshots.store import PostgresStore

TOPIC = "refold.order.events"
TOPIC_ID = "Zm9sZCB0aGUgbG9nIGFnYWlu"
TIME_MS = 1_796_000_000_123


def partition(owner: str = "w1", number: int = 0, **changes: Any) -> PartitionRow:
    row = PartitionRow(
        topic=TOPIC,
        partition=number,
        workflow="order",
        topic_id=TOPIC_ID,
        partitions=4,
        group="refold.workers",
        epoch=0,
        owner=owner,
        released=False,
        marker=0,
        rows_to=0,
        decisions=0,
        digest=b"",
        counts={},
        base=0,
        takeovers=0,
    )
    return msgspec.structs.replace(row, **changes)


def claimed(store: PostgresStore, owner: str = "w1", number: int = 0) -> PartitionRow:
    row = store.claim(partition(owner, number), None)
    assert row is not None
    return row


def snapshot(
    instance: str = "order-1",
    version: int = 1,
    last_offset: int = 0,
    data: bytes = b"state",
    tenant: str = "acme",
) -> Snapshot:
    return Snapshot(
        tenant, instance, version, 1, "fingerprint", "charging", last_offset, "/shop",
        f"event-{last_offset}", data, content_hash(data),
    )  # fmt: skip


def cut(row: PartitionRow, marker: int, snapshots: Sequence[Snapshot], **changes: Any) -> Cut:
    made = Cut(
        topic=row.topic,
        partition=row.partition,
        workflow=row.workflow,
        epoch=row.epoch,
        previous=row.marker,
        marker=marker,
        decisions=3,
        digest=b"digest",
        counts={"applied": marker},
        snapshots=snapshots,
        activations=b"activations",
    )
    return msgspec.structs.replace(made, **changes)


def instance(name: str = "order-1", last_offset: int = 0, **changes: Any) -> InstanceRow:
    row = InstanceRow(
        tenant="acme",
        instance=name,
        definition=1,
        state="charging",
        state_since_ms=TIME_MS,
        run_status="waiting_callback",
        context=b'{"total": 5}',
        lossy=False,
        version=1,
        last_offset=last_offset,
        last_source="/shop",
        last_id=f"event-{last_offset}",
        due_ms=None,
        failure_code=None,
        failure_text=None,
        created_ms=TIME_MS,
        updated_ms=TIME_MS,
    )
    return msgspec.structs.replace(row, **changes)


def event(offset: int = 0, name: str = "order-1", **changes: Any) -> EventRow:
    row = EventRow(
        offset=offset,
        tenant="acme",
        instance=name,
        source="/shop",
        id=f"event-{offset}",
        type="OrderPlaced",
        log_time_ms=TIME_MS + offset,
        verdict="applied",
        transition="new/OrderPlaced/0",
        state_before="new",
        state_after="charging",
        commands=(f"r1:acme:order:{name}:charging:Charge:event-{offset}:forward",),
        code="",
        text="",
    )
    return msgspec.structs.replace(row, **changes)


def flush(
    row: PartitionRow,
    rows_to: int,
    *,
    previous: int = 0,
    instances: Sequence[InstanceRow] = (),
    events: Sequence[EventRow] = (),
    resolved: Sequence[ResolvedRow] = (),
) -> Flush:
    return Flush(
        topic=row.topic,
        topic_id=row.topic_id,
        partition=row.partition,
        workflow=row.workflow,
        epoch=row.epoch,
        previous=previous,
        rows_to=rows_to,
        instances=instances,
        events=events,
        resolved=resolved,
    )


def query(dsn: str, text: str, *values: object) -> list[tuple[Any, ...]]:
    """Ask the database by itself, past the store."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(text.encode(), values).fetchall()


def execute(dsn: str, text: str, *values: object) -> None:
    """Change the database by itself, past the store."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(text.encode(), values)


def count(dsn: str, table: str) -> int:
    return int(query(dsn, f"SELECT count(*) FROM refold.{table}")[0][0])


def end_sessions(dsn: str, name: str) -> None:
    """End the sessions of this name in this database, as an administrator would."""
    execute(
        dsn,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name = %s AND datname = current_database()",
        name,
    )
