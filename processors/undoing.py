"""Undoing what was done: the last thing first, one at a time, each after the one before (SAGA).

Law of this module: pure. A forward action has one compensation, whatever asks for it, for its key
is the forward one's with the direction changed (P24); what is on its way when the undoing begins
is asked to be undone as well, and the executor settles it first (P33).

Source: Garcia-Molina, Salem: Sagas, SIGMOD 1987.
"""

from typing import Any, Final

from msgspec.structs import replace

from refold.processors.advance import advance
from refold.processors.children import cancelled
from refold.processors.definition import Definition
from refold.processors.effects import Effect, Publish, Send, Step
from refold.processors.instance import Instance, OpenAction
from refold.processors.keys import compensate_key
from refold.processors.records import (
    Park,
    between_attempts,
    fold_time,
    forgotten,
    grown,
    more_with,
    park,
    raised,
    small_enough,
)
from refold.processors.triggers import UNDONE, Undone
from refold.schemas.envelope import EventRecord, derived_id
from refold.schemas.errors import Code
from refold.schemas.verdicts import Reason, Verdict

_ENTERING: Final = frozenset({Verdict.APPLIED, Verdict.LATE})
"""Verdicts of steps that may enter a state; late: an instance that is opened again."""


def unwind(definition: Definition, before: Instance | None, event: EventRecord, step: Step) -> Step:
    """In a state that undoes, ask for the next undoing, or go on where nothing is left.

    Args:
        definition: The instance's, with such states.
        before: The record before `event`: what stands again if this cannot be done.
        event: The record.
        step: What it decided.
    """
    now = step.instance
    if now is None or now is before or now.state not in definition.undoing:
        return step
    if step.verdict not in _ENTERING or now.more.ended or _under_way(now):
        return step
    before = definition.blank(event) if before is None else before
    now = without_retries(now)
    last = _last(definition, now)
    if last is None:
        nested = advance(definition, now, event, Undone(), UNDONE)
        if nested.verdict is not Verdict.APPLIED or nested.instance is None:
            return _unmoved(definition, before, event, nested.reason)
        return grown(step, nested.instance, before, event, (*step.effects, *nested.effects))
    try:
        now, send = undoing(definition, now, last, fold_time(now, event))
    except Park as problem:
        return park(definition, before, event, problem.reason)
    return grown(step, now, before, event, (*step.effects, send))


def undoing(
    definition: Definition, instance: Instance, forward: OpenAction, at_ms: int
) -> tuple[Instance, Effect]:
    """What undoes a forward action, and the record that waits for its end.

    Raises:
        Park: The user's function raised, or gave no command of this definition.
    """
    kind = definition.by_name[forward.type]
    wanted = _wanted(definition, instance, forward)
    if kind.child:
        opened, publish = cancelled(definition, instance, forward, wanted, at_ms)
        more = more_with(instance.more, actions=(*instance.more.actions, opened))
        return replace(instance, more=more), publish
    undo = definition.commands.get(type(wanted))
    if undo is None or undo.target != kind.target:
        what = f"the compensation of {forward.type} gave {type(wanted).__name__}"
        raise Park(Code.COMMAND_INVALID, f"{what}, which is no command for {kind.target!r}")
    if undo.compensate is not None:  # it would do the thing once more under the undoing's key
        what = f"the compensation of {forward.type} gave {undo.name}, which is undone itself"
        raise Park(Code.COMMAND_INVALID, what)
    try:
        value = undo.encode(wanted)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a value that its schema does not hold
        text = f"command {undo.name} cannot be encoded: {raised(error)}"
        raise Park(Code.COMMAND_INVALID, text) from None
    key, state = compensate_key(forward.key), instance.state
    small_enough(definition, value, f"command {undo.name} of state {state!r}")
    to = forward.target  # the ledger that has the one has the other (P33), whatever came later
    send = Send(to, undo.name, forward.action, key, state, value)
    opened = OpenAction(key, undo.name, forward.action, to, state, value, at_ms, undoes=forward.key)
    more = more_with(instance.more, actions=(*instance.more.actions, opened))
    return replace(instance, more=more), send


def undoing_again(
    definition: Definition, instance: Instance, event: EventRecord, found: OpenAction
) -> tuple[Instance, Effect]:
    """Ask a child for its undoing once more, as `undoing` does.

    Args:
        definition: The parent's.
        instance: Its record.
        event: The refusal: what is asked has another id than the one before.
        found: The undoing that was refused.

    Raises:
        Park: As `undoing`; COMPENSATION_FAILED, what it undoes has ended without it.
    """
    more = instance.more
    both = (*more.actions, *more.done)
    forward = next((one for one in both if one.key == found.undoes), None)
    if forward is None:
        text = f"{found.type} has nothing left to undo: {found.undoes} has ended"
        raise Park(Code.COMPENSATION_FAILED, text)
    working = replace(instance, more=forgotten(more, {found.key}))
    now, send = undoing(definition, working, forward, fold_time(instance, event))
    if isinstance(send, Publish):
        send = replace(send, id=derived_id("cancel", found.key, event.source, event.id))
    return now, send


def _wanted(definition: Definition, instance: Instance, forward: OpenAction) -> Any:
    kind = definition.by_name[forward.type]
    context = instance.context
    if definition.copied is not None:
        context = definition.copied(context)
    try:
        if kind.compensate is None:
            raise TypeError(f"{forward.type} has no compensation")
        return kind.compensate(context, kind.codec.decode(forward.value))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever it is, the user's function raised it
        text = f"the compensation of {forward.type} raised {raised(error)}"
        raise Park(Code.REDUCER_RAISED, text) from None


def _under_way(instance: Instance) -> bool:
    return any(one.undoes for one in instance.more.actions)


def without_retries(instance: Instance) -> Instance:
    """The record without actions that wait for another attempt: they certainly did nothing."""
    more = instance.more
    waiting = between_attempts(more)
    return replace(instance, more=forgotten(more, waiting)) if waiting else instance


def _last(definition: Definition, instance: Instance) -> OpenAction | None:
    """What is undone next: what is still on its way, then what was done last."""
    on_its_way = [
        one
        for one in instance.more.actions
        if not one.undoes and definition.by_name[one.type].compensate is not None
    ]
    several = (*instance.more.done, *on_its_way)
    return several[-1] if several else None


def _unmoved(
    definition: Definition, before: Instance, event: EventRecord, reason: Reason | None
) -> Step:
    why = reason or Reason(Code.NO_TRANSITION, "everything is undone, and no way leads on")
    return park(definition, before, event, why)
