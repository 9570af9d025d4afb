"""What the owner of a partition writes of its schedules: what is declared, and what is due.

Law of this module: it makes records and sends none. Of several owners that each believe to be the
one, all write the same occurrence of the same timer, and the fold takes the first.
"""

import structlog

from refold.processors.definition import Workflow
from refold.processors.engine_events import OCCURRENCE, SCHEDULE, Occurrence
from refold.processors.instance import Instance, Timer
from refold.processors.occurring import FAILED, SKIP, UNDECLARED
from refold.processors.schedules import declared, due, scheduled, source_of
from refold.processors.spec import Schedule
from refold.schemas.envelope import body_digest, derived_id
from refold.topics.headers import Headers
from refold.topics.partition import partition_of
from refold.topics.records import event_headers
from refold.topics.times import rfc3339

_LOG = structlog.get_logger("refold.schedules")


def of_partition(workflow: Workflow, number: int, partitions: int) -> tuple[Schedule, ...]:
    """The schedules whose instances are on a partition.

    Args:
        workflow: Of the schedules, or any other: then there are none.
        number: Of the partition.
        partitions: How many the event topic has.
    """
    every = (workflow.schedules or {}).values()
    return tuple(one for one in every if partition_of(one.id.encode(), partitions) == number)


def announcement(
    workflow: str, tenant: str, schedule: Schedule, epoch: int, now_ms: int
) -> tuple[bytes, Headers]:
    """Value and headers of the event that says what is declared.

    Args:
        workflow: Of the schedules.
        tenant: Theirs.
        schedule: As declared.
        epoch: The owner's.
        now_ms: Its wall clock.
    """
    event = scheduled(schedule, now_ms)
    found = derived_id("schedule", workflow, tenant, schedule.id, str(epoch), str(now_ms))
    return SCHEDULE.encode(event), event_headers(
        found, source_of(workflow), SCHEDULE.name, tenant, time=rfc3339(now_ms)
    )


def occurrence(
    workflow: Workflow, record: Instance | None, instance: str, tenant: str, timer: Timer,
    now_ms: int,
) -> tuple[bytes, Headers]:  # fmt: skip
    """Value and headers of the event that an occurrence is due.

    Args:
        workflow: Of the schedules.
        record: The schedule's; None where nobody has announced it, for it is not declared.
        instance: Its id.
        tenant: Its tenant.
        timer: As it is armed.
        now_ms: The owner's wall clock.
    """
    event = due(declared(workflow, tenant, instance), record, timer, now_ms)
    _tell(instance, event)
    value = OCCURRENCE.encode(event)
    found = derived_id("occurrence", timer.id, body_digest(OCCURRENCE.name, value).hex())
    time = rfc3339(event.due_ms)
    headers = event_headers(found, source_of(workflow.name), OCCURRENCE.name, tenant, time=time)
    return value, headers


def _tell(schedule: str, event: Occurrence) -> None:
    """Say what does not start as it was declared."""
    if event.outcome == FAILED:
        _LOG.error("an occurrence is not started", schedule=schedule, why=event.text)
    elif event.outcome == SKIP:
        _LOG.warning("occurrences are not started", schedule=schedule, missed=event.skipped)
    elif event.outcome == UNDECLARED:
        _LOG.warning("a schedule is due that nobody declares", schedule=schedule)
