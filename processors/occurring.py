"""An occurrence of a schedule in the fold: what its owner wrote down is done, once.

Law of this module: pure. Neither clock nor calendar is asked: when an occurrence is due, what it
starts and which one is next stand in the event, so that a replay needs no rules of zones and no
code of the user's. An occurrence that is not armed any more is a duplicate, as any timer (P26).
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from refold.processors.actions import rang
from refold.processors.definition import Definition
from refold.processors.effects import Publish, Step
from refold.processors.engine_events import Occurrence
from refold.processors.instance import Instance
from refold.schemas.envelope import EventRecord, derived_id
from refold.schemas.verdicts import Verdict

START: Final = "start"
"""What an occurrence may say that becomes of it; likewise the next three."""
SKIP: Final = "skip"
UNDECLARED: Final = "undeclared"
FAILED: Final = "failed"
_EPOCH: Final = datetime(1970, 1, 1)
"""In UTC."""


def occurred(
    definition: Definition, instance: Instance, event: EventRecord, order: Occurrence
) -> Step:
    """Judge an occurrence; one that is applied and starts something starts it in this step.

    Args:
        definition: Of the schedules.
        instance: The schedule's record.
        event: The record.
        order: Its decoded value.
    """
    step = rang(definition, instance, event, order)
    if step.verdict is not Verdict.APPLIED or order.outcome != START:
        return step
    return replace(step, effects=(*step.effects, begun(definition.name, instance, order)))


def begun(workflow: str, instance: Instance, order: Occurrence) -> Publish:
    """The event that starts an instance; its id and time are those of the occurrence.

    Args:
        workflow: Of the schedule.
        instance: The schedule's record.
        order: What its owner wrote.
    """
    found = derived_id("occurrence", workflow, instance.tenant, instance.id, str(order.due_ms))
    moment = _EPOCH + timedelta(milliseconds=order.due_ms)
    time = f"{moment.isoformat(timespec='milliseconds')}Z"
    return Publish(order.workflow, order.instance, order.type, found, order.value, time)
