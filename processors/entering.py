"""What entering a state does beside its commands: actions opened, timers armed, old ones dead.

Law of this module: pure; what cannot be done raises `Park`, and the step is not made at all.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from refold.processors.children import known_as, open_child
from refold.processors.definition import Definition
from refold.processors.effects import Effect, Send
from refold.processors.forks import forked, light_types
from refold.processors.instance import Instance, More, OpenAction, Timer
from refold.processors.records import Park, between_attempts, forgotten, more_with, raised
from refold.processors.spec import TimerSpec
from refold.schemas.envelope import EventRecord, derived_id
from refold.schemas.errors import Code

TIMER_MOST_S: Final = 100 * 366 * 86_400
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def entered(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    state: str,
    context: Any,
    effects: Sequence[Effect],
    at_ms: int,
) -> More:
    """What an instance has beside its state after it entered one.

    Args:
        definition: The instance's.
        instance: Its record before.
        event: What made it enter.
        state: State that it enters.
        context: The new context.
        effects: Commands of the entry.
        at_ms: Fold time.

    Raises:
        Park: LIMIT_REACHED, too many actions; REDUCER_RAISED, a duration cannot be told.
    """
    more = instance.more
    if state in definition.finals:  # after the end nothing is tried again that it did not ask for
        more = forgotten(more, between_attempts(more))
    actions = opened(definition, more, effects, at_ms, state)
    timers = tuple(one for one in more.timers if one.key)  # those of the state before are dead
    if state in definition.timers:
        timers += armed_in(definition, event, state, context, at_ms)
    done = () if state in definition.pivots else more.done
    forks = forked(definition, state, effects) if state in definition.joins else ()
    return more_with(more, actions=actions, timers=timers, done=done, forks=forks)


def opened(
    definition: Definition, more: More, effects: Iterable[Effect], at_ms: int, state: str
) -> tuple[OpenAction, ...]:
    """The open actions with those that these commands begin."""
    light = light_types(definition, state)
    fresh = tuple(
        OpenAction(one.key, one.type, one.action, one.target, one.state, one.value, at_ms)
        if isinstance(one, Send)
        else open_child(one, state, at_ms)
        for one in effects
        if (name := known_as(one)[1]) not in light and definition.by_name[name].tracked
    )
    count, most = len(more.actions) + len(more.done) + len(fresh), definition.limits.actions
    if fresh and count > most:
        text = f"{count} actions would be open or to be undone, the definition allows {most}"
        raise Park(Code.LIMIT_REACHED, text)
    return more.actions + fresh


def armed_in(
    definition: Definition, event: EventRecord, state: str, context: Any, at_ms: int
) -> tuple[Timer, ...]:
    """The timers of a state that is entered at a time.

    Raises:
        Park: REDUCER_RAISED, a duration cannot be told.
    """
    specs = definition.timers.get(state, ())
    return tuple(_armed(one, event, context, at_ms) for one in specs)


def _armed(spec: TimerSpec, event: EventRecord, context: Any, at_ms: int) -> Timer:
    due_ms = _due(spec, context, at_ms)
    found = derived_id("timer", event.source, event.id, spec.state, spec.name, "1")
    return Timer(found, spec.name, due_ms)


def _due(spec: TimerSpec, context: Any, at_ms: int) -> int:
    """When it rings; what is over already rings at once."""
    duration = spec.duration
    try:
        length: object = duration if isinstance(duration, timedelta) else duration(context)
        if isinstance(length, datetime):
            if length.tzinfo is None:
                raise TypeError("a datetime without a time zone is no instant")
            due_ms = (length - _EPOCH) // _MILLISECOND
        elif isinstance(length, timedelta):
            due_ms = at_ms + length // _MILLISECOND
        else:
            raise TypeError(f"{type(length).__name__} is neither a timedelta nor a datetime")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the user's function raised, or gave something else
        text = f"the duration of timer {spec.name!r} of state {spec.state!r}: {raised(error)}"
        raise Park(Code.REDUCER_RAISED, text) from None
    if due_ms > at_ms + TIMER_MOST_S * 1000:
        text = f"timer {spec.name!r} of state {spec.state!r} would ring in more than 100 years"
        raise Park(Code.REDUCER_RAISED, text)
    return max(due_ms, at_ms)
