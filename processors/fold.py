"""`fold`: one record of the log and one instance record become a `Step`. Nothing else decides.

Law of this module: pure, total, deterministic (O2). It never raises for anything that a record
or a user's function does; a deployment that lacks a version raises FenceError. Order inside:

    dedup ▸ engine's own events ▸ decode ▸ parked queue ▸ expectation ▸ already, deferred,
    transition, late ▸ reducer ▸ storable ▸ limits ▸ invariants ▸ commands ▸ deferred again

Partition, key and envelope are checked before, by whoever reads the log.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from refold.processors.actions import armed
from refold.processors.advance import advance
from refold.processors.children import claimed, unheard
from refold.processors.definition import Definition, Workflow
from refold.processors.effects import Step
from refold.processors.engine_events import (
    ENGINE,
    OCCURRENCE,
    ORDERS,
    PREFIX,
    REDRIVE,
    SCHEDULE,
    TERMINATE,
    TIMER,
)
from refold.processors.following import follow
from refold.processors.instance import NOTHING_MORE, Instance
from refold.processors.queues import judge, queue_behind, redrive, terminate
from refold.processors.reading import PARKING, Unreadable, decoded, unreadable
from refold.processors.records import ENTRY_BYTES, park, place_of, refuse
from refold.processors.spec import Late, Reopen
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.verdicts import Decision, Reason, Verdict

FOLD_VERSION: Final = 1
"""Version of these rules, recorded with each `activate`: another number may judge otherwise."""
NOTHING_RELEASED: Final[Mapping[int, EventRecord]] = MappingProxyType({})
_DUPLICATE: Final = Verdict.DUPLICATE


def fold(  # noqa: PLR0911, PLR0912  # one way out for each verdict that is given early
    workflow: Workflow,
    active: int,
    instance: Instance | None,
    event: EventRecord,
    released: Mapping[int, EventRecord] = NOTHING_RELEASED,
) -> Step:
    """Decide about one record.

    Args:
        workflow: The versions that this worker has.
        active: Version that a new instance begins with (P13).
        instance: The record of the event's instance; None when there is none.
        event: The record.
        released: For a redrive, the records that `needed` named, by offset.

    Returns:
        The verdict, the new record (the very object that went in if nothing changed, None if
        there is still none), and what is to be sent.

    Raises:
        FenceError: DEFINITION_MISSING, when the workflow lacks the version that is needed.
    """
    early: Step | None = None
    if instance is None:
        definition = workflow.version(active)
    else:
        definition = workflow.version(instance.definition)
        if instance.dedup.find(event.identity) >= 0:
            early = _seen(instance, event)
    if early is None and event.parent is not None:
        early = claimed(instance, event)
    if early is not None:
        return early
    codec = definition.events.get(event.type)
    if codec is None:
        if event.type.startswith(PREFIX):
            step = _ordered(workflow, definition, instance, event, released)
            return unheard(instance, event, step)
        data = None
    else:
        try:
            data = codec.decode(event.value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a user's type may raise anything while it is made
            step = _unread(definition, instance, event, unreadable(error))
            return unheard(instance, event, step)
    if instance is None:
        return _begun(definition, event, data)
    more = instance.more
    if more.parked is not None:
        step = queue_behind(definition, instance, more.parked, event)
        return unheard(instance, event, step)
    if more is NOTHING_MORE and definition.simple and event.parent is None:  # the plain case
        return advance(definition, instance, event, data)
    return judge(definition, instance, event, data)


def _begun(definition: Definition, event: EventRecord, data: Any) -> Step:
    """The first event of an instance, which is there only if it did something."""
    if event.parent is not None:
        return _born(definition, event, data)
    blank = definition.blank(event)
    step = advance(definition, blank, event, data)
    if step.instance is blank:
        return Step(step.verdict, None, reason=step.reason)
    return step if definition.simple else follow(definition, blank, event, step)


def _born(definition: Definition, event: EventRecord, data: Any) -> Step:
    """The first event of an instance that works for another one, who is told if there is none."""
    blank = definition.blank(event)
    step = advance(definition, blank, event, data)
    if step.instance is blank:
        return unheard(None, event, Step(step.verdict, None, reason=step.reason))
    return follow(definition, blank, event, step)


def obey(
    workflow: Workflow,
    active: int,
    instance: Instance | None,
    event: EventRecord,
    decision: Decision,
) -> Step:
    """Give the verdict that stands on the decision log, asking no code again (P13).

    Args:
        workflow: As for `fold`; likewise the next three.
        active: Version that a new instance begins with.
        instance: The record of the event's instance, or None.
        event: The record.
        decision: What was decided about it.
    """
    if decision.verdict is not Verdict.PARKED or event.type in ORDERS:
        step = Step(decision.verdict, instance, reason=decision.reason)
        return unheard(instance, event, step)
    if instance is None:
        definition = workflow.version(active)
        return park(definition, definition.blank(event), event, decision.reason)
    definition = workflow.version(instance.definition)
    parked = instance.more.parked
    if parked is None:
        return park(definition, instance, event, decision.reason)
    step = queue_behind(definition, instance, parked, event)
    return Step(Verdict.PARKED, step.instance, reason=decision.reason)


def needed(instance: Instance | None, event: EventRecord) -> tuple[int, ...]:
    """Offsets whose records `fold` wants in `released`; empty for all but a redrive (P28).

    Those of a queue that is there, whatever the order says: nothing else is ever read.
    """
    if event.type != REDRIVE.name or instance is None or instance.more.parked is None:
        return ()
    order = decoded(REDRIVE, event.value)
    if type(order) is Unreadable:
        return ()
    queue, offsets = instance.more.parked.queue, tuple(order.offsets)
    return (offsets or queue) if queue[: len(offsets)] == offsets else ()


def _seen(instance: Instance, event: EventRecord) -> Step | None:
    """Duplicate or conflict, when the identity stands in the dedup memory (P23)."""
    memory = instance.dedup
    at = place_of(memory, event.identity, ENTRY_BYTES)
    if at < 0:
        return None
    if memory[at + 16 : at + ENTRY_BYTES] == event.body:
        return Step(_DUPLICATE, instance)
    text = f"event {event.id!r} of {event.source!r} came before with another body"
    return Step(Verdict.CONFLICT, instance, reason=Reason(Code.CONFLICT, text))


def _unread(
    definition: Definition, instance: Instance | None, event: EventRecord, reason: Reason
) -> Step:
    """A value that cannot be read is poison; what can be cured parks an instance (P27)."""
    if reason.code not in PARKING or instance is None:
        return Step(Verdict.POISON, instance, reason=reason)
    if instance.more.parked is not None:
        return queue_behind(definition, instance, instance.more.parked, event)
    late = definition.late(instance.state, event.type)
    needs_value = type(late) is Reopen or late is Late.COMPENSATE
    if instance.more.ended or (late is not None and not needs_value):
        return advance(definition, instance, event, None)  # late whatever it holds
    return park(definition, instance, event, reason)


def _ordered(  # noqa: PLR0911  # as `fold`
    workflow: Workflow,
    definition: Definition,
    instance: Instance | None,
    event: EventRecord,
    released: Mapping[int, EventRecord],
) -> Step:
    """The engine's own: only an operator's act passes the queue."""
    codec = ENGINE.get(event.type)
    if codec is None:
        return refuse(instance, Code.RESERVED_TYPE, f"{event.type} is not known to this engine")
    order = decoded(codec, event.value)
    if type(order) is Unreadable:
        return Step(Verdict.POISON, instance, reason=order.reason)
    if codec is REDRIVE:
        return redrive(workflow, instance, event, order, released)
    if codec is TERMINATE:
        return terminate(definition, instance, event, order)
    if codec in (TIMER, OCCURRENCE) and (instance is None or armed(instance, order.id) is None):
        return Step(_DUPLICATE, instance)
    if instance is None and codec is SCHEDULE:
        return _begun(definition, event, order)
    if instance is None:
        return refuse(None, Code.NO_TRANSITION, f"there is no instance for {event.type}")
    if instance.more.parked is not None:
        return queue_behind(definition, instance, instance.more.parked, event)
    return judge(definition, instance, event, order)
