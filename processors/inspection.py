"""One instance looked at: where it stands, now or in the past, and how it came there.

Law of this module: reads only. Now is the group's committed offset: the newest good snapshot,
and the log from there on, folded silently; the past is folded from the log alone. Without the
definition's code, PostgreSQL's rows tell what they hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from refold.processors import history
from refold.processors.clients import Clients
from refold.processors.cluster import ANSWER_S, log_facts
from refold.processors.definition import Definition, Workflow
from refold.processors.digest import beginning
from refold.processors.instance import Instance
from refold.processors.instance_codec import decode
from refold.processors.partition import Key, Overlay
from refold.processors.projection import (
    ShownAction,
    ShownFork,
    ShownTimer,
    shown_actions,
    shown_forks,
    shown_timers,
)
from refold.processors.replay import Base, Extent, Replay, extent
from refold.processors.status import run_status
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, UsageError
from refold.snapshots.model import EventRow, content_hash
from refold.snapshots.queries import ActionView, EventView, InstanceView, TimerView
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.facts import topic_facts
from refold.topics.partition import partition_of
from refold.topics.specs import events_topic


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why an instance waits for a person, and what is queued behind."""

    code: str
    text: str
    since_ms: int | None = None
    queue: tuple[int, ...] = ()
    """Offsets, the record that parked it first; not known from rows alone."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One instance as it stands at an offset."""

    workflow: str
    tenant: str
    instance: str
    partition: int
    at: int | None
    """Everything below this offset is folded; None: as the rows in PostgreSQL have it."""
    seen_in: str
    """`snapshot and log`, `log`, or `rows`."""
    definition: int
    state: str
    run_status: str
    version: int
    context: Any
    accepts: tuple[str, ...]
    """Event types that do something in this state."""
    parked: Waiting | None
    deferred: tuple[int, ...] = ()
    timers: tuple[ShownTimer, ...] = ()
    """Armed, in the order in which they ring; likewise the open actions as they were asked for."""
    actions: tuple[ShownAction, ...] = ()
    forks: tuple[ShownFork, ...] = ()
    works_for: str = ""
    """`<workflow>/<instance>` of its parent; empty for an instance of its own."""
    renewed: int = 0
    """How often it went on as new; the present run began with record `renewed_offset`."""
    renewed_offset: int = 0
    ended: str = ""
    last_offset: int = -1
    last_source: str = ""
    last_id: str = ""


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one record of the instance."""

    offset: int
    log_time_ms: int
    type: str
    source: str
    id: str
    verdict: str
    transition: str
    state_before: str
    state_after: str
    commands: Sequence[str]
    code: str
    text: str
    resolution: str = ""
    resolved_by: int | None = None


class Inspection:
    """Looks at one instance.

    Args:
        clients: Makes readers.
        namespace: Prefix of the topics.
        group: Consumer group of the workers.
        workflow: With every version that the instance used.
        key: (tenant, instance id).
    """

    def __init__(
        self, clients: Clients, namespace: str, group: str, workflow: Workflow, key: Key
    ) -> None:
        self._clients = clients
        self._namespace = namespace
        self._group = group
        self._workflow = workflow
        self._key = key
        self._admin = clients.admin()
        self.where = place(self._clients, namespace, workflow.name, key[1])

    def now(self, store: PostgresStore | None) -> Look:
        """As of the group's committed offset.

        Args:
            store: Gives the newest snapshot; None folds the whole log.

        Raises:
            UsageError: NOT_FOUND.
            FenceError: As `Replay.fold`.
            ServerError: Kafka or PostgreSQL is away.
        """
        facts = topic_facts(self._admin, self.where.topic, ANSWER_S)
        log = log_facts(self._admin, self._group, facts, self.where.partition)
        end = self.where.end if log.committed is None else min(log.committed, self.where.end)
        base = None if store is None else self._base(store)
        if base is not None and base.position > end:
            end = base.position
        return self._look(end, base, "log" if base is None else "snapshot and log")

    def at(self, offset: int) -> Look:
        """As it stood when the record at this offset was folded, from the log alone.

        Raises:
            UsageError: NOT_FOUND, there was no such instance yet.
            FenceError: As `Replay.fold`.
            ServerError: Kafka is away.
        """
        return self._look(min(offset + 1, self.where.end), None, "log")

    def history(self, end: int | None = None) -> list[Happened]:
        """Every record of the instance and what became of it, folded from the log.

        Args:
            end: Only records below this offset.
        """
        found: dict[int, Happened] = {}

        def taken(overlay: Overlay) -> None:
            for row in overlay.events:
                found[row.offset] = happened(row)
            for each in overlay.resolved:
                if each.offset in found:
                    found[each.offset] = msgspec.structs.replace(
                        found[each.offset],
                        resolution=each.resolution,
                        resolved_by=each.by_offset,
                    )

        self._replay(self.where.end if end is None else end, rows=True).fold(taken=taken)
        return list(found.values())

    def _replay(self, end: int, *, rows: bool = False) -> Replay:
        return Replay(
            self._clients,
            self._namespace,
            self._workflow,
            self.where,
            end=end,
            only=self._key,
            rows=rows,
        )

    def _look(self, end: int, base: Base | None, seen_in: str) -> Look:
        record = self._replay(end).fold(base).held.get(self._key)
        if record is None:
            raise not_found(self._workflow.name, self._key, f"below offset {end}")
        return look_of(
            self._workflow.version(record.definition), record, self.where.partition, end, seen_in
        )

    def _base(self, store: PostgresStore) -> Base | None:
        row = store.read(self.where.topic, self.where.partition)
        if row is None or row.topic_id != self.where.topic_id:
            return None
        kept = Upkeep(store).snapshot_versions(self._workflow.name, *self._key)
        # A version past the marker that was read is of a cut that came meanwhile.
        below = [each for each in kept if each.last_offset < row.marker]
        good = next((each for each in below if content_hash(each.data) == each.hash), None)
        if good is None:
            return None
        position = row.marker if good is below[0] else good.last_offset + 1
        record = decode(good.data, self._workflow.version(good.definition))
        return Base(
            position=position,
            instances={self._key: record},
            digests=beginning(row.topic_id),  # of one instance no digest is compared
        )


def place(clients: Clients, namespace: str, workflow: str, instance: str) -> Extent:
    """The partition that an instance lives on.

    Raises:
        ServerError: TOPIC_MISSING or KAFKA_AWAY.
    """
    admin, topic = clients.admin(), events_topic(namespace, workflow)
    partitions = topic_facts(admin, topic, ANSWER_S).partitions
    return extent(admin, topic, partition_of(instance.encode(), partitions))


def look_of(
    definition: Definition, record: Instance, partition: int, at: int, seen_in: str
) -> Look:
    """An instance record for people."""
    parked, parent = record.more.parked, record.more.parent
    return Look(
        workflow=definition.name,
        tenant=record.tenant,
        instance=record.id,
        partition=partition,
        at=at,
        seen_in=seen_in,
        definition=record.definition,
        state=record.state,
        run_status=str(run_status(definition, record)),
        version=record.version,
        context=definition.plain(record.context),
        accepts=() if record.more.ended else definition.accepts(record.state),
        parked=None
        if parked is None
        else Waiting(
            code=parked.code, text=parked.text, since_ms=parked.since_ms, queue=parked.queue
        ),
        deferred=tuple(each.offset for each in record.more.deferred),
        timers=tuple(shown_timers(record.more)),
        actions=tuple(shown_actions(record.more)),
        forks=tuple(shown_forks(record.more)),
        works_for="" if parent is None else f"{parent.workflow}/{parent.instance}",
        renewed=record.more.renewed,
        renewed_offset=record.more.renewed_offset,
        ended=record.more.ended,
        last_offset=record.last_offset,
        last_source=record.last_source,
        last_id=record.last_id,
    )


def look_of_row(
    row: InstanceView,
    canonical: str | None,
    timers: Sequence[TimerView] = (),
    actions: Sequence[ActionView] = (),
) -> Look:
    """An instance row for people, without the definition's code.

    Args:
        row: Of `refold_v1.instances`.
        canonical: Canonical JSON of its definition, where it is known: gives `accepts`.
        timers: Of `refold_v1.timers`; likewise the actions.
        actions: Those that are open.
    """
    parked = None
    if row.failure_code:
        parked = Waiting(code=row.failure_code, text=row.failure_text or "")
    ended = row.run_status == "terminated"
    return Look(
        workflow=row.workflow,
        tenant=row.tenant,
        instance=row.instance_id,
        partition=row.partition,
        at=None,
        seen_in="rows",
        definition=row.definition,
        state=row.state,
        run_status=row.run_status,
        version=row.version,
        context=row.context,
        accepts=() if canonical is None or ended else _accepted(canonical, row.state),
        parked=parked,
        timers=tuple(map(_timer, timers)),
        actions=tuple(map(_action, actions)),
        last_offset=row.last_offset,
        last_source=row.last_source,
        last_id=row.last_id,
    )


def _timer(row: TimerView) -> ShownTimer:
    return ShownTimer(
        id=row.id, name=row.name, due_ms=_ms(row.due), attempt=row.attempt, key=row.key
    )


def _action(row: ActionView) -> ShownAction:
    return ShownAction(
        key=row.key,
        action=row.action,
        target=row.target,
        state=row.state,
        direction=row.direction,
        attempt=row.attempt,
        status=row.status,
        since_ms=_ms(row.since),
    )


def happened(row: EventRow) -> Happened:
    """A row of the index as the fold makes it."""
    return Happened(
        offset=row.offset,
        log_time_ms=row.log_time_ms,
        type=row.type,
        source=row.source,
        id=row.id,
        verdict=str(row.verdict),
        transition=row.transition,
        state_before=row.state_before,
        state_after=row.state_after,
        commands=row.commands,
        code=str(row.code),
        text=row.text,
    )


def happened_of_view(row: EventView) -> Happened:
    """A row of the index as it stands."""
    return Happened(
        offset=row.log_offset,
        log_time_ms=_ms(row.log_time),
        type=row.type,
        source=row.source,
        id=row.id,
        verdict=row.verdict,
        transition=row.transition,
        state_before=row.state_before,
        state_after=row.state_after,
        commands=row.commands,
        code=row.code,
        text=row.text,
        resolution=row.resolution or "",
        resolved_by=row.resolved_by,
    )


def exported(clients: Clients, namespace: str, workflow: Workflow, key: Key) -> Iterator[str]:
    """One instance's history as JSON lines, as `refold.testing`'s driver reads it back.

    Args:
        clients: Makes readers.
        namespace: Prefix of the topics.
        workflow: Its name and types; nothing of it is run.
        key: (tenant, instance id).

    Raises:
        UsageError: NOT_FOUND, no record of the log is its.
        ServerError: Kafka is away.
    """
    where = place(clients, namespace, workflow.name, key[1])
    replay = Replay(clients, namespace, workflow, where, only=key)
    lines: list[history.Line] = []
    activations = {each.offset: each.version for each in replay.known.activations}
    decisions = replay.known.decisions
    for _, event in replay.records():
        if isinstance(event, EventRecord):
            active = _active(activations, event.offset)
            lines.append(history.line_of(event, active, decisions.get(event.offset)))
    if not lines:
        raise not_found(workflow.name, key, "on the log")
    return history.written(lines)


def not_found(workflow: str, key: Key, where: str, others: Sequence[str] = ()) -> UsageError:
    """There is no such instance.

    Args:
        workflow: Where it was looked for.
        key: (tenant, instance id).
        where: Where it was looked for: "on the log", "in PostgreSQL".
        others: Tenants that have an instance of that id.
    """
    but = ", ".join(f"{tenant}/{key[1]}" for tenant in others)
    return UsageError(
        Code.NOT_FOUND,
        f"There is no instance {key[0]}/{key[1]} of {workflow} {where}{but and f', but {but}'}.",
        f"Name its tenant: --tenant {others[0]}."
        if others
        else "Check the tenant (--tenant), the workflow (--workflow) and the id.",
    )


def _active(activations: Mapping[int, int], offset: int) -> int | None:
    below = [each for each in activations if each <= offset]
    return activations[max(below)] if below else None


def _accepted(canonical: str, state: str) -> tuple[str, ...]:
    graph = msgspec.json.decode(canonical)
    names = [each["event"] for each in graph["transitions"] if each["from"] == state]
    names += [
        each["event"] for kind in ("deferred", "already") for each in graph[kind]
        if each["state"] == state
    ]  # fmt: skip
    return tuple(dict.fromkeys(names))


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
