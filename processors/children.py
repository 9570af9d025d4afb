"""Instances that work for instances of other workflows: started, asked to undo, answered once.

Law of this module: pure. A parent starts a child in the Kafka transaction of its own step, and the
child answers in that of its end; both are events with derived ids, so that a repetition is a
duplicate. A child belongs to one action of one parent; another one that starts it is refused.
"""

from typing import Any, Final
from urllib.parse import unquote

from msgspec.structs import replace

from refold.processors.definition import Definition
from refold.processors.effects import Effect, Publish, Step
from refold.processors.engine_events import FAILED, PREFIX, SUCCEEDED, Failed, Succeeded
from refold.processors.instance import Instance, OpenAction
from refold.processors.keys import action_part, compensate_key, key_of
from refold.processors.owing import is_mine, paid, undoes
from refold.processors.records import Park, raised, small_enough
from refold.processors.spec import Start
from refold.processors.triggers import command_name
from refold.schemas.codec import codec_of
from refold.schemas.envelope import Answer, EventRecord, Outcome, Parent, derived_id
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text, id_fault
from refold.schemas.types import Command
from refold.schemas.verdicts import Reason, Verdict

_NO: Final = frozenset({Verdict.REFUSED, Verdict.POISON})
"""Verdicts of an event that did nothing, and never will by itself."""


def started(
    definition: Definition, instance: Instance, event: EventRecord, state: str, wanted: Start
) -> Publish:
    """The event that starts a child.

    Args:
        definition: The parent's.
        instance: Its record before.
        event: What made it enter the state.
        state: The state that it enters.
        wanted: What its `send` returned.

    Raises:
        Park: COMMAND_INVALID or COMMAND_TOO_LARGE.
    """
    what = f"state {state!r} starts an instance of {wanted.workflow!r}"
    kind = definition.children.get(wanted.workflow)
    if kind is None:
        raise Park(Code.COMMAND_INVALID, f"{what}; declare it with child(…)")
    if type(wanted.event) is not kind.codec.cls:
        found = type(wanted.event).__name__
        raise Park(
            Code.COMMAND_INVALID, f"{what} with {found}, its child(…) says {kind.codec.name}"
        )
    fault = id_fault(wanted.instance) if type(wanted.instance) is str else "is no text"
    if fault is not None:
        raise Park(Code.COMMAND_INVALID, f"{what}; its id {wanted.instance!r} {fault}")
    value = _encoded(kind.encode, wanted.event, what)
    small_enough(definition, value, f"{what}: its event")
    action = action_part(kind.action, wanted.instance)
    key = key_of(
        instance.tenant, definition.name, instance.id, state, action, event.source, event.id
    )
    return Publish(
        kind.target, wanted.instance, kind.codec.name, derived_id("start", key), value,
        parent=Parent(definition.name, instance.id, key),
    )  # fmt: skip


def _encoded(encode: Any, fact: Any, what: str) -> bytes:
    try:
        value: bytes = encode(fact)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a value that its schema does not hold
        text = f"{what}, and its event cannot be encoded: {raised(error)}"
        raise Park(Code.COMMAND_INVALID, text) from None
    return value


def known_as(effect: Effect) -> tuple[str, str]:
    """Key and command name of the action that an effect of an entry begins."""
    if isinstance(effect, Publish) and effect.parent is not None:
        return effect.parent.key, command_name(effect.workflow)
    return effect.key, effect.type


def open_child(publish: Publish, state: str, at_ms: int) -> OpenAction:
    """A child that was started, as an open action of its parent."""
    key, name = known_as(publish)
    action = action_part(publish.workflow, publish.instance)
    return OpenAction(key, name, action, publish.workflow, state, publish.value, at_ms)


def cancelled(
    definition: Definition, instance: Instance, forward: OpenAction, wanted: Any, at_ms: int
) -> tuple[OpenAction, Publish]:
    """What asks a child to undo its work, as an open action and as an event.

    Args:
        definition: The parent's.
        instance: Its record.
        forward: The action that the child is.
        wanted: The event that the declared `cancel` returned.
        at_ms: Fold time.

    Raises:
        Park: COMMAND_INVALID, it is no event.
    """
    what = f"cancel of {forward.target!r} gave {type(wanted).__name__}"
    try:
        codec = codec_of(type(wanted))
        if isinstance(wanted, Command) or codec.name.startswith(PREFIX):
            raise TypeError("it is a Command, or the engine's own")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # any class may have come back
        text = f"{what}, which is no event: {raised(error)}"
        raise Park(Code.COMMAND_INVALID, text) from None
    value = _encoded(codec.encode, wanted, what)
    small_enough(definition, value, what)
    key, child = compensate_key(forward.key), unquote(forward.action.partition(".")[2])
    opened = OpenAction(
        key, cancel_name(forward.type), forward.action, forward.target, instance.state, value,
        at_ms, undoes=forward.key,
    )  # fmt: skip
    publish = Publish(
        forward.target, child, codec.name, derived_id("cancel", key), value,
        parent=Parent(definition.name, instance.id, key),
    )  # fmt: skip
    return opened, publish


def cancel_name(name: str) -> str:
    """Command name of the undoing of a child."""
    return f"{name}:cancel"


def started_again(
    definition: Definition, instance: Instance, event: EventRecord, found: OpenAction
) -> Publish:
    """The start of a child that was refused, once more.

    Args:
        definition: The parent's.
        instance: Its record.
        event: The refusal: the start has another id than the one before, by which it is known.
        found: The action that the child is.
    """
    child, codec = unquote(found.action.partition(".")[2]), definition.by_name[found.type].codec
    return Publish(
        found.target, child, codec.name, derived_id("start", found.key, event.source, event.id),
        found.value, parent=Parent(definition.name, instance.id, found.key),
    )  # fmt: skip


# the child's side


def claimed(instance: Instance | None, event: EventRecord, *, again: bool = False) -> Step | None:
    """What is to be said at once to a parent: nothing to its first start, or to its cancel.

    Args:
        instance: The record of the event's instance.
        event: One with a parent.
        again: True for a record that is released from a parked queue, the start itself perhaps.
    """
    parent = event.parent
    if parent is None:
        return None
    undo, mine = undoes(parent), is_mine(instance, parent)
    if mine and instance is not None:
        return None if undo or again else Step(Verdict.DUPLICATE, instance)
    if instance is None and not undo:
        return None
    if undo:
        code, text = Code.NO_TRANSITION, "there is nothing that was done for"
    else:
        code, text = Code.CHILD_EXISTS, "the instance exists already, and not for"
    who = f"{parent.workflow} {parent.instance!r}"
    reason = Reason(code, bounded_text(f"{text} this action of {who}"))
    return unheard(instance, event, Step(Verdict.REFUSED, instance, reason=reason))


def unheard(instance: Instance | None, event: EventRecord, step: Step) -> Step:
    """Tell a parent that its event did nothing; other steps pass as they are.

    Args:
        instance: The record before, None if there is none.
        event: The record.
        step: What was decided about it.
    """
    parent = event.parent
    if parent is None or step.verdict not in _NO or step.effects:
        return step
    reason = step.reason or Reason(Code.NO_TRANSITION, "it was refused")
    if reason.code is Code.WRONG_PARTITION:  # judged before the fold, which never saw it
        return step
    if undoes(parent) and not is_mine(instance, parent):
        told = answer(event, parent, parent.key, Succeeded("there was nothing to undo"))
    else:
        said = Failed(reason.code.value, reason.text, False, 0)
        told = answer(event, parent, parent.key, said)
    now = step.instance
    return replace(step, instance=None if now is None else paid(now, parent.key), effects=(told,))


def answer(
    cause: EventRecord, parent: Parent, key: str, fact: Any, outcome: Outcome | None = None
) -> Publish:
    """The event that answers a parent's action.

    Args:
        cause: What it follows from: an action that is asked for again may fail again.
        parent: Who waits.
        key: Key of the action.
        fact: Event of the user's, or the engine's own.
        outcome: What it says; the engine's own say it themselves.
    """
    if outcome is None:
        outcome = Outcome.SUCCEEDED if type(fact) is Succeeded else Outcome.FAILED
    parts = () if outcome is Outcome.SUCCEEDED else (cause.source, cause.id)
    codec = _OWN.get(type(fact)) or codec_of(type(fact))
    return Publish(
        parent.workflow, parent.instance, codec.name, derived_id("result", key, outcome, *parts),
        codec.encode(fact), answer=Answer(key, 1, outcome),
    )  # fmt: skip


_OWN: Final[dict[type, Any]] = {Failed: FAILED, Succeeded: SUCCEEDED}
