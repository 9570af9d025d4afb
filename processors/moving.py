"""An instance goes on with another version of its definition, in a redrive (P14).

Law of this module: pure. What the instance has under way must make sense in the new version, or it
does not go there: an action, a branch or a state that a version does not know would be waited for
by nobody. Timers are what the new version says of the state, counted from when it was entered.
"""

from typing import Any

from msgspec.structs import replace

from refold.processors.definition import Definition
from refold.processors.entering import armed_in
from refold.processors.instance import Instance, More
from refold.processors.reading import Unreadable
from refold.processors.records import Park, more_with, raised, remapped
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.verdicts import Reason


def moved_to(
    new: Definition, old: Definition, instance: Instance, event: EventRecord
) -> Instance | str:
    """The instance on another version of its definition, or why it does not fit.

    Args:
        new: The version that it goes on with.
        old: The one that it has.
        instance: Its record.
        event: The order to do so.
    """
    if old is new:
        return instance
    visits = remapped(instance.visits, old, new)
    if instance.context is None:  # nothing was ever applied
        return replace(
            instance, definition=new.version, state=new.initial, context=new.fresh, visits=visits
        )
    strange = _strange(new, old, instance)
    if strange:
        return f"version {new.version} {strange}"
    context = _carried(old, new, instance.context)
    if isinstance(context, Unreadable):
        return context.reason.text
    moved = replace(instance, definition=new.version, context=context, visits=visits)
    try:
        return replace(moved, more=_fitted(new, old, moved, event))
    except Park as problem:
        return problem.reason.text


def _strange(new: Definition, old: Definition, instance: Instance) -> str:
    """What an instance has under way and a version does not know, or the other way round."""
    more, state = instance.more, instance.state
    if state not in new.table:
        return f"has no state {state!r}"
    followed = {one.type for one in (*more.actions, *more.done)}
    followed |= {one.type for one in more.forks}
    unknown = sorted(followed - new.by_name.keys())
    if unknown:
        return f"does not send {', '.join(unknown)}, which is open or done"
    fresh = _joined(new, state) - _joined(old, state)
    if fresh:
        what = ", ".join(sorted(fresh))
        return f"joins {what} in state {state!r}, which was entered without such branches"
    return ""


def _joined(definition: Definition, state: str) -> set[str]:
    return {one.name for one in definition.joins.get(state, ())}


def _fitted(new: Definition, old: Definition, moved: Instance, event: EventRecord) -> More:
    """The timers of the state as the new version declares them: those that both have go on, those
    that it alone has are armed as of when the state was entered, the others are dead. So are
    branches that it does not join.
    """
    state = moved.state
    named = {one.name for one in new.timers.get(state, ())}
    known = {one.name for one in old.timers.get(state, ())}
    kept = tuple(one for one in moved.more.timers if one.key or one.name in named)
    if named - known:
        fresh = armed_in(new, event, state, moved.context, moved.since_ms)
        kept += tuple(one for one in fresh if one.name not in known)
    joined = _joined(new, state)
    forks = tuple(one for one in moved.more.forks if one.type in joined)
    return more_with(moved.more, timers=kept, forks=forks)


def _carried(old: Definition, new: Definition, context: Any) -> Any:
    """A context through its canonical form into another version's class."""
    try:
        upcast = new.context_upcasts.get(old.version)
        return new.canonical.decode(old.canonical.encode(context), upcast)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever the new class says to the old context
        text = f"version {new.version} cannot load the context: {raised(error)}"
        return Unreadable(Reason(Code.REDRIVE_REFUSED, text))
