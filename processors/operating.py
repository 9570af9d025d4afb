"""An operator's acts as events on the log: redrive and terminate, with who and why (P14).

Law of this module: the act is an event under the instance's key with source
`/refold/operator/<who>`; write access to the topic is the authority. Its id derives from the act
and the instance's version, so that a double click is one event, and the same act after something
has happened is another one. What became of it is what the fold decided, never what was sent.
"""

import re
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException, Producer

from refold.processors.engine_events import REDRIVE, TERMINATE, Redrive, Terminate
from refold.processors.inspection import Happened, happened_of_view
from refold.schemas.codec import Codec
from refold.schemas.envelope import derived_id
from refold.schemas.errors import Code, ServerError, UsageError
from refold.schemas.limits import id_fault
from refold.snapshots.queries import PAGE_MOST, EventView, Queries
from refold.topics.failures import kafka_error
from refold.topics.publisher import Delivered, Outcome, outcome_of
from refold.topics.records import event_headers
from refold.topics.specs import events_topic

GOOD: Final = frozenset({"applied", "already", "duplicate"})
"""Verdicts of an act, or of a record that was sent again, that did what was wanted."""
DELIVERY_S: Final = 30.0
POLL_S: Final = 0.1
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._@-]+")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The instance that is acted upon."""

    namespace: str
    workflow: str
    tenant: str
    instance: str
    version: int
    """Its version as last seen: part of the act's id. 0 where it is not known."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's event, ready to be sent."""

    target: Target
    source: str
    id: str
    type: str
    value: bytes


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an act."""

    event_id: str
    source: str
    topic: str
    partition: int
    offset: int
    happened: Happened | None
    """None: not folded in the time that was waited, or the index cannot be read."""
    text: str = ""
    parked: str = ""
    """Why the instance is parked again behind an applied redrive; empty where it is not."""


def redrive(
    target: Target, who: str, why: str, *, version: int = 0, offsets: Sequence[int] = ()
) -> Act:
    """Release a parked instance's queue.

    Args:
        target: The instance.
        who: Name of the operator.
        why: Reason, for the record.
        version: Definition version to go on with; 0 keeps the one it has.
        offsets: The first offsets of its queue, in order; none: all.

    Raises:
        UsageError: BAD_COMMAND_LINE, who or why is empty.
    """
    _given(who=who, why=why)
    order = Redrive(offsets=tuple(offsets), version=version, who=who, why=why)
    parts = (str(version), ",".join(map(str, offsets)), why)
    return _act(target, REDRIVE, order, "redrive", who, parts)


def terminate(target: Target, who: str, reason: str) -> Act:
    """End an instance.

    Args:
        target: The instance.
        who: Name of the operator.
        reason: For the record.

    Raises:
        UsageError: BAD_COMMAND_LINE, who or reason is empty.
    """
    _given(who=who, reason=reason)
    order = Terminate(reason=reason, who=who)
    return _act(target, TERMINATE, order, "terminate", who, (reason,))


def _act(
    target: Target, codec: Codec[Any], order: object, kind: str, who: str, parts: Sequence[str]
) -> Act:
    instance = (target.tenant, target.workflow, target.instance)
    return Act(
        target=target,
        source=f"/refold/operator/{_NOT_PLAIN.sub('-', who)}",
        id=derived_id(kind, *instance, str(target.version), who, *parts),
        type=codec.name,
        value=codec.encode(order),
    )


def send(producer: Producer, act: Act) -> Delivered:
    """Put an act on the log and wait until it stands there.

    Args:
        producer: Idempotent, murmur2, not transactional.
        act: As `redrive` or `terminate` made it.

    Raises:
        UsageError: BAD_KEY, the instance id cannot be a key.
        ServerError: DELIVERY_REFUSED, or DELIVERY_UNKNOWN: do it again, it counts once.
    """
    target = act.target
    fault = id_fault(target.instance)
    if fault:
        raise UsageError(Code.BAD_KEY, f"The instance id {target.instance!r} {fault}.")
    topic = events_topic(target.namespace, target.workflow)
    outcomes: list[Outcome] = []
    try:
        producer.produce(
            topic,
            act.value,
            target.instance.encode(),
            headers=event_headers(act.id, act.source, act.type, target.tenant),
            on_delivery=lambda error, message: outcomes.append(outcome_of(act.id, error, message)),
        )
        producer.flush(DELIVERY_S)
    except KafkaException as failure:
        raise kafka_error(failure, f"sending {act.type} to {topic}") from failure
    outcome = outcomes[0] if outcomes else outcome_of(act.id, None, None)
    if isinstance(outcome, Delivered):
        return outcome
    raise ServerError(
        outcome.reason.code,
        f"{act.type} for {target.tenant}/{target.instance}: {outcome.reason.text}.",
        "Do it again: the same act on the same version of the instance counts once.",
    )


def fate(queries: Queries, act: Act, sent: Delivered, wait_s: float) -> Fate:
    """Wait for what the fold decided about an act.

    Args:
        queries: The event-log index.
        act: That was sent.
        sent: Where it stands.
        wait_s: Longest wait in seconds.
    """

    def told(happened: Happened | None, text: str = "", parked: str = "") -> Fate:
        return Fate(
            parked=parked,
            event_id=act.id,
            source=act.source,
            topic=sent.topic,
            partition=sent.partition,
            offset=sent.offset,
            happened=happened,
            text=text,
        )

    deadline_s = monotonic() + wait_s
    try:
        while True:
            for row in queries.event(act.source, act.id):
                if (row.partition, row.log_offset) == (sent.partition, sent.offset):
                    return told(happened_of_view(row), parked=_parked(queries, act))
            if monotonic() >= deadline_s:
                late = f"not folded within {wait_s:.0f} s: is a worker running, writing rows?"
                return told(None, late)
            sleep(POLL_S)
    except ServerError as away:
        return told(None, f"it stands on the log; what became of it is not known: {away.what}")


def verdicts(
    queries: Queries,
    workflow: str,
    places: Sequence[tuple[int, int]],
    wait_s: float,
    progress: Callable[[int, int], None] = lambda folded, wanted: None,
) -> dict[tuple[int, int], EventView]:
    """Wait until records are folded; what became of each that is, by partition and offset.

    Args:
        queries: The event-log index.
        workflow: Whose records.
        places: Partition and offset of each on the event topic.
        wait_s: Longest wait in seconds.
        progress: Told how many are folded, of how many.

    Raises:
        ServerError: PostgreSQL is away.
    """
    deadline_s = monotonic() + wait_s
    found: dict[tuple[int, int], EventView] = {}
    while True:
        left = [place for place in places if place not in found]
        for row in queries.records(workflow, left[:PAGE_MOST]):
            found[row.partition, row.log_offset] = row
        progress(len(found), len(places))
        if len(found) == len(places) or monotonic() >= deadline_s:
            return found
        sleep(POLL_S)


def _parked(queries: Queries, act: Act) -> str:
    """Why the instance of a redrive stands parked, by its row, which is saved with the index."""
    if act.type != REDRIVE.name:
        return ""
    target = act.target
    rows = queries.instances(target.workflow, tenant=target.tenant, instance_id=target.instance)
    return next((f"{row.failure_code}: {row.failure_text}" for row in rows if row.failure_code), "")


def _given(**fields: str) -> None:
    for name, value in fields.items():
        if not value.strip():
            raise UsageError(
                Code.BAD_COMMAND_LINE,
                f"--{name} is empty.",
                "An act on the log names who did it and why, for ever.",
            )
