"""What the owner of a partition writes when time passes, for a driver: timers and schedules.

Law of this module: it asks the product's own functions, with the driver's clock as the owner's.
"""

from refold.processors.definition import Workflow
from refold.processors.engine_events import Occurrence, Rung
from refold.processors.instance import Instance, Timer
from refold.processors.schedules import declared, due, scheduled, source_of
from refold.processors.triggers import NEXT

Written = tuple[str, str, object]
"""Instance, source, event."""


def announced(workflow: Workflow, now_ms: int) -> list[Written]:
    """What says which schedules are declared."""
    source = source_of(workflow.name)
    every = (workflow.schedules or {}).values()
    return [(one.id, source, scheduled(one, now_ms)) for one in every]


def rung(
    workflow: Workflow, tenant: str, instance: str, record: Instance | None, timer: Timer,
    now_ms: int,
) -> Written:  # fmt: skip
    """What says that a timer is due.

    Args:
        workflow: Whose.
        tenant: The instance's.
        instance: Its id.
        record: Its record.
        timer: As it is armed.
        now_ms: The owner's wall clock.
    """
    if workflow.schedules is None or timer.name != NEXT:
        fact: Rung | Occurrence = Rung(timer.id, timer.name, timer.due_ms)
        return instance, f"/refold/timer/{workflow.name}", fact
    fact = due(declared(workflow, tenant, instance), record, timer, now_ms)
    return instance, source_of(workflow.name), fact
