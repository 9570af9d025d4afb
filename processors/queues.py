"""Events that waited: deferred ones tried again, parked ones released, all of them ended.

Law of this module: pure. However many events one record sets free, it is one step: one version
more, one entry of memory, and either whole or, where a deferred event cannot be folded, not at
all. A resolution is given once, when what became of the event is final.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from refold.processors.actions import answered, rang, reported
from refold.processors.advance import advance
from refold.processors.children import claimed, unheard
from refold.processors.definition import Definition, Workflow
from refold.processors.effects import Effect, Resolution, Step
from refold.processors.engine_events import (
    ENGINE,
    OCCURRENCE,
    SCHEDULE,
    TIMER,
    Redrive,
    Terminate,
)
from refold.processors.following import follow
from refold.processors.instance import NOTHING_MORE, Deferred, Instance, More, OpenAction, Parked
from refold.processors.moving import moved_to
from refold.processors.occurring import occurred
from refold.processors.owing import owing
from refold.processors.reading import PARKING, Unreadable, read
from refold.processors.records import (
    as_one,
    event_of,
    fold_time,
    memory,
    more_with,
    park,
    refuse,
    remembered,
)
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Reason, Verdict


class _Tally:
    """Effects and resolutions of the nested events of one record, in order."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.resolutions: list[Resolution] = []

    def add(self, offset: int, step: Step) -> None:
        """Take what a nested event decided; one that is deferred has no final verdict yet."""
        self.effects.extend(step.effects)
        self.resolutions.extend(step.resolutions)
        if step.verdict is not Verdict.DEFERRED:
            found = Resolution(offset, step.verdict, step.reason, step.transition)
            self.resolutions.append(found)


def judge(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    data: Any,
    *,
    again: bool = False,
) -> Step:
    """Judge one event whole: what it answers, the graph, what is undone, what had waited.

    Args:
        definition: The instance's.
        instance: Its record, not parked.
        event: The record, not a duplicate.
        data: Its decoded value.
        again: True in a redrive: what failed for good is tried once more.
    """
    if event.parent is not None:
        early = claimed(instance, event, again=again)
        if early is not None:
            return early
        working = owing(instance, event)
        step = _judged(definition, working, event, data, again=again)
        if step.verdict is Verdict.PARKED and step.reason is not None:
            return park(definition, instance, event, step.reason)
        if step.instance is working:
            step = replace(step, instance=instance)
        return unheard(instance, event, step)
    return _judged(definition, instance, event, data, again=again)


def _judged(
    definition: Definition, instance: Instance, event: EventRecord, data: Any, *, again: bool
) -> Step:
    if event.type == TIMER.name:
        step = rang(definition, instance, event, data)
    elif event.type == OCCURRENCE.name:
        step = occurred(definition, instance, event, data)
    elif event.type == SCHEDULE.name:
        step = advance(definition, instance, event, data)
    elif event.type in ENGINE:
        step = reported(definition, instance, event, data, again=again)
    else:
        step = answered(definition, instance, event, data, again=again)
    if not definition.simple or instance.more.owed:
        step = follow(definition, instance, event, step)
    return settle(definition, instance, event, step) if instance.more.deferred else step


def settle(definition: Definition, before: Instance, event: EventRecord, step: Step) -> Step:
    """After a transition, try deferred events again, oldest first, until none is ready.

    Args:
        definition: The instance's.
        before: The record before `event`: what stands again if a deferred event parks.
        event: The record that was applied.
        step: What it decided.
    """
    now = step.instance
    if now is None or not now.more.deferred or step.verdict is not Verdict.APPLIED:
        return step
    dedup, tally = now.dedup, _Tally()
    tally.effects.extend(step.effects)
    while (kept := _ready(definition, now)) is not None:
        waiting = tuple(one for one in now.more.deferred if one is not kept)
        working = replace(now, more=more_with(now.more, deferred=waiting))
        nested = _again(definition, working, event_of(working, kept))
        if nested.verdict is Verdict.PARKED and nested.reason is not None:
            text = f"the deferred event at offset {kept.offset}: {nested.reason.text}"
            return park(definition, before, event, Reason(nested.reason.code, bounded_text(text)))
        now = working if nested.instance is None else nested.instance
        tally.add(kept.offset, nested)
    if now is step.instance:
        return step
    after = as_one(now, before, event, dedup)
    effects, resolutions = tuple(tally.effects), tuple(tally.resolutions)
    return Step(Verdict.APPLIED, after, effects, None, step.transition, resolutions)


def _ready(definition: Definition, instance: Instance) -> Deferred | None:
    """The oldest deferred event that the present state does not defer."""
    cells = definition.table[instance.state]
    for kept in instance.more.deferred:
        cell = cells.get(kept.type)
        if cell is None or not cell.deferred:
            return kept
    return None


def _again(
    definition: Definition, instance: Instance, event: EventRecord, *, released: bool = False
) -> Step:
    """Judge a record that was remembered before: past dedup and queue.

    One that was deferred has ended its action already; one that is released has not.
    """
    data = read(definition, event)
    if type(data) is Unreadable:
        if data.reason.code in PARKING:
            return park(definition, instance, event, data.reason)
        return unheard(instance, event, Step(Verdict.POISON, instance, reason=data.reason))
    if released:
        return judge(definition, instance, event, data, again=True)
    step = advance(definition, instance, event, data)
    plain = definition.simple and not instance.more.owed
    return step if plain else follow(definition, instance, event, step)


def queue_behind(
    definition: Definition, instance: Instance, parked: Parked, event: EventRecord
) -> Step:
    """Queue an event, by its coordinates, behind what parked its instance."""
    queue = parked.queue
    if len(queue) >= definition.limits.parked:
        text = f"{len(queue)} events wait behind offset {queue[0]} already"
        return refuse(instance, Code.QUEUE_FULL, text)
    reason = Reason(Code.QUEUED_BEHIND, f"the instance is parked since offset {queue[0]}")
    longer = replace(parked, queue=(*queue, event.offset))
    instance = owing(instance, event)
    more = replace(instance.more, parked=longer)
    return Step(Verdict.PARKED, remembered(definition, instance, event, more=more), reason=reason)


def redrive(
    workflow: Workflow,
    instance: Instance | None,
    event: EventRecord,
    order: Redrive,
    released: Mapping[int, EventRecord],
) -> Step:
    """Release a parked instance's queue: fold it again in order, on the version named (P14).

    What parks again stays first in the queue with everything behind it.
    """
    found = _readied(workflow, instance, event, order, released)
    if isinstance(found, str) or instance is None:
        return refuse(instance, Code.REDRIVE_REFUSED, str(found))
    working, definition, queue, offsets = found
    working = replace(working, fold_ms=fold_time(instance, event))
    tally, done, why = _Tally(), 0, None
    for offset in offsets:
        nested = _again(definition, working, released[offset], released=True)
        if nested.verdict is Verdict.PARKED and nested.reason is not None:
            why = nested.reason
            break
        working = working if nested.instance is None else nested.instance
        tally.add(offset, nested)
        done += 1
    rest = queue[done:]
    if rest:
        why = why or Reason(Code.QUEUED_BEHIND, f"not released by the redrive at {event.offset}")
        parked = Parked(why.code.value, why.text, working.fold_ms, rest)
        working = replace(working, more=replace(working.more, parked=parked))
    after = as_one(working, instance, event, memory(definition, instance, event))
    effects, resolutions = tuple(tally.effects), tuple(tally.resolutions)
    return Step(Verdict.APPLIED, after, effects, transition=order_name(instance, event),
                resolutions=resolutions)  # fmt: skip


_Readied = tuple[Instance, Definition, tuple[int, ...], tuple[int, ...]]


def _readied(
    workflow: Workflow,
    instance: Instance | None,
    event: EventRecord,
    order: Redrive,
    released: Mapping[int, EventRecord],
) -> _Readied | str:
    """The instance unparked on its new version, or why it cannot be."""
    parked = None if instance is None else instance.more.parked
    if instance is None or parked is None:
        return "the instance is not parked"
    offsets = tuple(order.offsets) or parked.queue
    if parked.queue[: len(offsets)] != offsets:
        return f"the queue begins with {_listed(parked.queue)}, not with {_listed(offsets)}"
    missing = [offset for offset in offsets if offset not in released]
    if missing:
        return f"the log no longer holds offsets {_listed(missing)}"
    number = order.version or instance.definition
    if number not in workflow.versions:
        return f"version {number} is not registered"
    new = workflow.version(number)
    moved = moved_to(new, workflow.version(instance.definition), instance, event)
    if isinstance(moved, str):
        return moved
    unparked = replace(moved, more=more_with(moved.more, parked=None))
    return unparked, new, parked.queue, offsets


def terminate(
    definition: Definition, instance: Instance | None, event: EventRecord, order: Terminate
) -> Step:
    """End an instance, parked or not, whatever it waits for; its queues are resolved as late."""
    if instance is None:
        return refuse(None, Code.NO_TRANSITION, "there is no such instance to terminate")
    name = order_name(instance, event)
    parked = instance.more.parked
    if instance.more.ended and parked is None:
        return Step(Verdict.ALREADY, remembered(definition, instance, event), transition=name)
    if parked is None and instance.state in definition.finals:
        return Step(Verdict.LATE, remembered(definition, instance, event), transition=name)
    ended = bounded_text(order.reason) or "no reason given"
    why = Reason(Code.NO_TRANSITION, bounded_text(f"the instance was terminated: {ended}"))
    queued = () if parked is None else parked.queue
    waiting = sorted({*queued, *(kept.offset for kept in instance.more.deferred)})
    more = replace(NOTHING_MORE, ended=ended, reopened=instance.more.reopened,
                   **({} if instance.more.ended else _under_way(instance.more)),
                   parent=instance.more.parent, owed=instance.more.owed,
                   renewed=instance.more.renewed,
                   renewed_offset=instance.more.renewed_offset)  # fmt: skip
    after = remembered(definition, instance, event, more=more)
    late = tuple(Resolution(offset, Verdict.LATE, why) for offset in waiting)
    step = Step(Verdict.APPLIED, after, transition=name, resolutions=late)
    return follow(definition, instance, event, step)


def _under_way(more: More) -> dict[str, tuple[OpenAction, ...]]:
    """What is on its way still, and what is being undone; what waits for another attempt is
    neither, and is not tried again.
    """
    actions = tuple(one for one in more.actions if one.known != "retrying")
    undone = {one.undoes for one in actions}
    return {"actions": actions, "done": tuple(one for one in more.done if one.key in undone)}


def order_name(instance: Instance, event: EventRecord) -> str:
    """What stands as the transition of an engine's event."""
    return f"{instance.state}/{event.type}/0"


def _listed(offsets: object) -> str:
    several = list(offsets) if isinstance(offsets, list | tuple) else []
    shown = ", ".join(map(str, several[:50]))
    return shown + (f" and {len(several) - 50} more" if len(several) > 50 else "")
