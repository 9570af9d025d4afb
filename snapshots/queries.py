"""Reading for people: instances, histories, events, partitions, through the stable views.

Law of this module: every answer is bounded and ordered by a key, so that the next page begins
behind the last row (keyset paging) and a row that is written meanwhile neither hides nor doubles
another one. The role of a reader suffices; a standby may serve.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from psycopg import sql

from refold.schemas.errors import Code, UsageError, unknown
from refold.snapshots.migrate import SCHEMA, schema_name
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import Connection, Sessions

PAGE: Final = 100
PAGE_MOST: Final = 1_000

Shape = TypeVar("Shape", bound=msgspec.Struct)


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `refold_v1.instances`."""

    workflow: str
    tenant: str
    instance_id: str
    partition: int
    definition: int
    state: str
    state_since: datetime
    run_status: str
    context: Any
    lossy: bool
    version: int
    last_offset: int
    last_source: str
    last_id: str
    due: datetime | None
    failure_code: str | None
    failure_text: str | None
    created: datetime
    updated: datetime


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `refold_v1.events`."""

    workflow: str
    tenant: str
    instance_id: str
    topic_id: str
    partition: int
    log_offset: int
    source: str
    id: str
    type: str
    log_time: datetime
    folded_at: datetime
    verdict: str
    transition: str
    state_before: str
    state_after: str
    commands: list[str]
    code: str
    text: str
    doubled: bool
    resolution: str | None
    resolved_by: int | None
    resolution_code: str | None
    resolution_text: str | None


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `refold_v1.partitions`."""

    topic: str
    partition: int
    workflow: str
    topic_id: str
    partitions: int
    consumer_group: str
    epoch: int
    owner: str
    released: bool
    marker: int
    rows_to: int
    decisions: int
    digest: str
    counts: dict[str, int]
    base: int
    takeovers: int
    fence: str
    choice: str
    claimed: datetime
    saved: datetime | None
    alarm: str


class TimerView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `refold_v1.timers`: one that is armed."""

    workflow: str
    tenant: str
    instance_id: str
    id: str
    name: str
    state: str
    attempt: int
    """Of the action that it tries again; 1 for a timer of the state."""
    due: datetime
    key: str
    """Of that action; empty for a timer of the state."""


class ActionView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `refold_v1.actions`: one that is open."""

    workflow: str
    tenant: str
    instance_id: str
    key: str
    action: str
    state: str
    direction: str
    attempt: int
    status: str
    since: datetime
    target: str


class ParkedView(msgspec.Struct, frozen=True, kw_only=True):
    """A parked instance, and the record that parked it."""

    workflow: str
    tenant: str
    instance_id: str
    partition: int
    definition: int
    state: str
    code: str
    text: str
    since: datetime
    """Log time of that record; of the row's last change where its row was thinned."""
    log_offset: int | None
    type: str | None
    waiting: int
    """Records that wait in it, that one included."""


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a record after its first verdict, as far as the index tells."""

    resolution: str | None
    """Of a record that was deferred or parked."""
    again: str | None
    """Verdict of the last record that came later with the same identity."""
    again_resolution: str | None


class Queries:
    """Read-only questions to the stable views.

    Args:
        dsn: Connection string of a role with the reader's rights; a standby will do.
        schema: The schema of the tables; its views stand in `<schema>_v1`.
        statement_timeout_s: Longest run of one question.
    """

    def __init__(
        self, dsn: str, schema: str = SCHEMA, *, statement_timeout_s: float = 10.0
    ) -> None:
        self._views = f"{schema_name(schema)}_v1"
        self._runner = Runner(
            Sessions(dsn, "refold:read", statement_timeout_s=statement_timeout_s, writable=False)
        )

    def close(self) -> None:
        """Close the idle connections."""
        self._runner.sessions.close()

    def instances(
        self,
        workflow: str,
        *,
        tenant: str | None = None,
        state: str | None = None,
        run_status: str | None = None,
        instance_id: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = PAGE,
    ) -> Sequence[InstanceView]:
        """Instances in order of (tenant, instance id).

        Args:
            workflow: Whose.
            tenant: Only this tenant's.
            state: Only those in this state.
            run_status: Only those with this run status.
            instance_id: Only those with this id (one a tenant).
            after: (tenant, instance id) of the last row of the page before.
            limit: Rows of a page, 1 to `PAGE_MOST`.
        """
        wanted = {
            "workflow": workflow,
            "tenant": tenant,
            "state": state,
            "run_status": run_status,
            "instance_id": instance_id,
        }
        keys = ("tenant", "instance_id")
        return self._page("instances", InstanceView, wanted, keys, after, limit)

    def timers(self, workflow: str, tenant: str, instance_id: str) -> Sequence[TimerView]:
        """Armed timers of an instance in the order in which they ring, at most `PAGE_MOST`."""
        wanted = {"workflow": workflow, "tenant": tenant, "instance_id": instance_id}
        return self._page("timers", TimerView, wanted, ("due", "id"), None, PAGE_MOST)

    def actions(self, workflow: str, tenant: str, instance_id: str) -> Sequence[ActionView]:
        """Open actions of an instance, the oldest first, at most `PAGE_MOST`."""
        wanted = {"workflow": workflow, "tenant": tenant, "instance_id": instance_id}
        return self._page("actions", ActionView, wanted, ("since", "key"), None, PAGE_MOST)

    def history(
        self,
        workflow: str,
        tenant: str,
        instance_id: str,
        *,
        after: int = -1,
        limit: int = PAGE,
    ) -> Sequence[EventView]:
        """What became of every record of one instance, in log order.

        Args:
            workflow: Whose.
            tenant: Tenant of the instance.
            instance_id: Its id.
            after: Offset of the last row of the page before.
            limit: Rows of a page, 1 to `PAGE_MOST`.
        """
        wanted = {"workflow": workflow, "tenant": tenant, "instance_id": instance_id}
        return self._page("events", EventView, wanted, ("log_offset",), (after,), limit)

    def event(self, source: str, event_id: str, *, limit: int = PAGE) -> Sequence[EventView]:
        """Every record with this identity: the first one and its repeats, in log order.

        Args:
            source: `ce_source`.
            event_id: `ce_id`.
            limit: Rows, 1 to `PAGE_MOST`.
        """
        # Two branches, each with an index of its own: applied ones, and the others.
        question = sql.SQL("""
            SELECT * FROM (
                SELECT {columns} FROM {events}
                WHERE id = %(id)s AND source = %(source)s AND verdict = 'applied' AND NOT doubled
                UNION ALL
                SELECT {columns} FROM {events}
                WHERE id = %(id)s AND source = %(source)s AND (verdict <> 'applied' OR doubled)
            ) found ORDER BY topic_id, partition, log_offset LIMIT %(limit)s""").format(
            columns=_columns(EventView), events=sql.Identifier(self._views, "events")
        )
        values = {"id": event_id, "source": source, "limit": _bounded(limit)}
        return self._ask(question, values, EventView)

    def since(self, workflow: str, records: Sequence[tuple[int, int, str, str]]) -> Sequence[Since]:
        """What became of records since they were decided, one answer for each, in their order.

        Args:
            workflow: Whose.
            records: Partition and offset on the event topic, `ce_source` and `ce_id` (empty where
                they could not be read); at most `PAGE_MOST`.
        """
        _bounded(max(1, len(records)))
        question = sql.SQL("""
            SELECT own.resolution, later.verdict, later.resolution
            FROM unnest(%(partitions)s::int[], %(offsets)s::bigint[], %(sources)s::text[],
                        %(ids)s::text[])
                WITH ORDINALITY AS asked (partition, log_offset, source, id, place)
            LEFT JOIN {partitions} p ON p.workflow = %(workflow)s AND p.partition = asked.partition
            LEFT JOIN {events} own ON own.topic_id = p.topic_id
                AND own.partition = asked.partition AND own.log_offset = asked.log_offset
            LEFT JOIN LATERAL (
                SELECT * FROM (
                    SELECT verdict, resolution, log_time, partition, log_offset, workflow
                    FROM {events}
                    WHERE id = asked.id AND source = asked.source
                        AND verdict = 'applied' AND NOT doubled
                    UNION ALL
                    SELECT verdict, resolution, log_time, partition, log_offset, workflow
                    FROM {events}
                    WHERE id = asked.id AND source = asked.source
                        AND (verdict <> 'applied' OR doubled)
                ) each
                WHERE asked.id <> '' AND each.workflow = %(workflow)s
                    AND CASE WHEN each.partition = asked.partition
                             THEN each.log_offset > asked.log_offset
                             ELSE each.log_time >= own.log_time END
                ORDER BY log_time DESC, log_offset DESC LIMIT 1
            ) later ON true
            ORDER BY asked.place""").format(
            partitions=sql.Identifier(self._views, "partitions"),
            events=sql.Identifier(self._views, "events"),
        )
        values = {
            "workflow": workflow,
            "partitions": [each[0] for each in records],
            "offsets": [each[1] for each in records],
            "sources": [each[2] for each in records],
            "ids": [each[3] for each in records],
        }
        return self._ask(question, values, Since)

    def records(self, workflow: str, places: Sequence[tuple[int, int]]) -> Sequence[EventView]:
        """What became of the records at these places, in log order; others are not folded yet.

        Args:
            workflow: Whose.
            places: Partition and offset on its event topic; at most `PAGE_MOST`.
        """
        _bounded(max(1, len(places)))
        question = sql.SQL("""
            SELECT {columns} FROM {events}
            WHERE (topic_id, partition, log_offset) IN (
                SELECT p.topic_id, asked.partition, asked.log_offset
                FROM unnest(%(partitions)s::int[], %(offsets)s::bigint[])
                    AS asked (partition, log_offset)
                JOIN {partitions} p
                    ON p.workflow = %(workflow)s AND p.partition = asked.partition)
            ORDER BY partition, log_offset""").format(
            columns=_columns(EventView),
            events=sql.Identifier(self._views, "events"),
            partitions=sql.Identifier(self._views, "partitions"),
        )
        values = {
            "workflow": workflow,
            "partitions": [each[0] for each in places],
            "offsets": [each[1] for each in places],
        }
        return self._ask(question, values, EventView)

    def rejected(
        self,
        workflow: str,
        *,
        partition: int | None = None,
        verdict: str | None = None,
        after: tuple[int, int] | None = None,
        limit: int = PAGE,
    ) -> Sequence[EventView]:
        """Refused, conflicting, poison and parked records, in order of (partition, offset)."""
        wanted = {"workflow": workflow, "partition": partition, "verdict": verdict}
        keys = ("partition", "log_offset")
        one_of = ("refused", "conflict", "poison", "parked")
        return self._page("events", EventView, wanted, keys, after, limit, one_of)

    def partitions(self, workflow: str | None = None) -> Sequence[PartitionView]:
        """Every partition that was ever claimed, in order of (topic, partition)."""
        wanted = {"workflow": workflow}
        keys = ("topic", "partition")
        return self._page("partitions", PartitionView, wanted, keys, None, PAGE_MOST)

    def parked(
        self,
        workflow: str | None = None,
        *,
        after: tuple[str, str, str] | None = None,
        limit: int = PAGE,
    ) -> Sequence[ParkedView]:
        """Parked instances in order of (workflow, tenant, instance id), with cause and time.

        Args:
            workflow: Only this one's.
            after: (workflow, tenant, instance id) of the last row of the page before.
            limit: Rows of a page, 1 to `PAGE_MOST`.
        """
        question = sql.SQL("""
            SELECT i.workflow, i.tenant, i.instance_id, i.partition, i.definition, i.state,
                   coalesce(i.failure_code, ''), coalesce(i.failure_text, ''),
                   coalesce(w.since, i.updated), w.log_offset, w.type, w.waiting
            FROM {instances} i CROSS JOIN LATERAL (
                SELECT (array_agg(log_time ORDER BY log_offset))[1] AS since,
                       (array_agg(type ORDER BY log_offset))[1] AS type,
                       min(log_offset) AS log_offset, count(*) AS waiting
                FROM {events} e
                WHERE e.instance_id = i.instance_id AND e.tenant = i.tenant
                  AND e.workflow = i.workflow AND e.verdict = 'parked' AND e.resolution IS NULL
            ) w
            WHERE i.run_status = 'parked'
              AND (%(workflow)s::text IS NULL OR i.workflow = %(workflow)s)
              AND (%(after)s::text[] IS NULL
                   OR (i.workflow, i.tenant, i.instance_id)
                      > ((%(after)s::text[])[1], (%(after)s::text[])[2], (%(after)s::text[])[3]))
            ORDER BY i.workflow, i.tenant, i.instance_id LIMIT %(limit)s""").format(
            instances=sql.Identifier(self._views, "instances"),
            events=sql.Identifier(self._views, "events"),
        )
        values = {
            "workflow": workflow,
            "after": None if after is None else list(after),
            "limit": _bounded(limit),
        }
        return self._ask(question, values, ParkedView)

    def parked_counts(self) -> dict[tuple[str, int], int]:
        """(workflow, partition) → parked instances, where there are any."""
        question = sql.SQL("""
            SELECT workflow, partition, count(*) FROM {} WHERE run_status = 'parked'
            GROUP BY workflow, partition""").format(sql.Identifier(self._views, "instances"))

        def work(connection: Connection) -> dict[tuple[str, int], int]:
            found = connection.execute(question).fetchall()
            return {(workflow, partition): count for workflow, partition, count in found}

        return self._runner.run("the count of parked instances", work)

    def workflows(self) -> Sequence[str]:
        """Names of all workflows of which a partition was ever claimed, in order."""
        return sorted({each.workflow for each in self.partitions()})

    def check_workflow(self, workflow: str) -> None:
        """See that a workflow is known.

        Raises:
            UsageError: NOT_FOUND, with those that are.
        """
        known = self.workflows()
        if workflow not in known:
            raise unknown("workflow", workflow, "in PostgreSQL", known)

    def _page(
        self,
        view: str,
        shape: type[Shape],
        wanted: dict[str, Any],
        keys: Sequence[str],
        after: Sequence[Any] | None,
        limit: int,
        verdicts: Sequence[str] = (),
    ) -> Sequence[Shape]:
        given = {name: value for name, value in wanted.items() if value is not None}
        terms: list[sql.Composable] = [
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in given
        ]
        values = {**given, "limit": _bounded(limit)}
        order = sql.SQL(", ").join(map(sql.Identifier, keys))
        if after is not None:
            marks = {f"after_{number}": value for number, value in enumerate(after)}
            values |= marks
            terms.append(
                sql.SQL("({}) > ({})").format(
                    order, sql.SQL(", ").join(map(sql.Placeholder, marks))
                )
            )
        if verdicts:
            terms.append(sql.SQL("verdict = ANY (%(verdicts)s)"))
            values["verdicts"] = list(verdicts)
        question = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %(limit)s").format(
            _columns(shape),
            sql.Identifier(self._views, view),
            sql.SQL(" AND ").join(terms) if terms else sql.SQL("true"),
            order,
        )
        return self._ask(question, values, shape)

    def _ask(
        self, question: sql.Composed, values: dict[str, Any], shape: type[Shape]
    ) -> Sequence[Shape]:
        names = shape.__struct_fields__

        def work(connection: Connection) -> Sequence[Shape]:
            found = connection.execute(question, values)
            return [shape(**dict(zip(names, row, strict=True))) for row in found]

        return self._runner.run("a question to the views", work)


def _columns(shape: type[msgspec.Struct]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, shape.__struct_fields__))


def _bounded(limit: int) -> int:
    if 1 <= limit <= PAGE_MOST:
        return limit
    what = f"Expected a page of 1 to {PAGE_MOST} rows, but {limit} were asked for."
    raise UsageError(Code.BAD_COMMAND_LINE, what, "Ask for the next page with the last key.")
