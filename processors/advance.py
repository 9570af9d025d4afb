"""One event against the graph: the transition, its reducer, what must hold, what is sent.

Law of this module: pure and total. Whatever a user's function does is a verdict; only
KeyboardInterrupt and SystemExit pass. A step is whole or not at all: what parks leaves the
state as it was before the record. This is the hot path: tables are looked up, records are
replaced in one call, and what most steps do not need is not made.
"""

from typing import Any, Final
from urllib.parse import unquote

from msgspec.structs import replace

from refold.processors.children import started
from refold.processors.definition import Definition, sendings
from refold.processors.effects import Effect, Send, Step
from refold.processors.entering import entered
from refold.processors.info import StepInfo
from refold.processors.instance import NOTHING_MORE, Instance, More
from refold.processors.keys import action_part, key_of
from refold.processors.publishing import forwarded
from refold.processors.records import (
    Park,
    deferred_of,
    memory,
    more_with,
    park,
    raised,
    refuse,
    remembered,
    small_enough,
)
from refold.processors.spec import Forward, Late, LatePolicy, Reopen, Start
from refold.processors.table import Cell, Sending, Transition
from refold.processors.triggers import REOPENED
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Reason, Verdict

NOTHING_WANTED: Final[tuple[Effect, ...]] = ()
_APPLIED: Final = Verdict.APPLIED


def advance(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    data: Any,
    name: str | None = None,
) -> Step:
    """Judge one event that is not a duplicate and not queued; deferred ones are not tried again.

    Args:
        definition: The instance's.
        instance: Its record, or the blank one of an instance without an event.
        event: The record.
        data: Its decoded value; None when no state of the definition knows the type.
        name: Row of the table; the event's type unless a trigger is meant.
    """
    expects = event.expected_state is not None or event.expected_version is not None
    if expects and name is None:  # a trigger follows from an event whose expectation has held
        stale = _stale(instance, event)
        if stale is not None:
            return refuse(instance, Code.STALE, stale)
    state = instance.state
    cell = definition.table[state].get(event.type if name is None else name)
    if cell is None or not cell.transitions or instance.more.ended:
        return _without(definition, instance, event, data, cell)
    context = instance.context
    if definition.copied is not None:
        context = definition.copied(context)
    logged, before = event.log_time_ms, instance.fold_ms
    at = logged if logged > before else before  # max() costs three times that
    step: StepInfo | None = None
    chosen: Transition | None = None
    try:
        for transition in cell.transitions:
            if transition.needs_step and step is None:
                step = StepInfo(definition.name, instance, event, at)
            guard = transition.guard
            if guard is None or (
                guard(context, data, step) if transition.guard_steps else guard(context, data)
            ):
                chosen = transition
                break
        if chosen is None:
            text = f"no guard of {event.type} holds in state {state!r}"
            return refuse(instance, Code.NO_TRANSITION, text)
        reducer = chosen.reducer
        if reducer is not None:
            context = (
                reducer(context, data, step) if chosen.reducer_steps else reducer(context, data)
            )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # whatever it is, the user's function raised it
        where = "a guard" if chosen is None else "the reducer"
        text = f"{where} of {event.type} in state {state!r} raised {raised(error)}"
        return park(definition, instance, event, Reason(Code.REDUCER_RAISED, bounded_text(text)))
    try:
        return _applied(definition, instance, event, data, chosen, context, at, step)
    except Park as problem:
        return park(definition, instance, event, problem.reason)


def _applied(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    data: Any,
    transition: Transition,
    context: Any,
    at: int,
    step: StepInfo | None,
) -> Step:
    """Everything after the reducer: limits, storable, invariants, commands, the new record."""
    before = instance.context
    target, enters, visits = transition.target, transition.enters, instance.visits
    if context is None and transition.reducer is not None:
        text = f"the reducer of {transition.id} returned nothing: is a `return` missing?"
        raise Park(Code.NOT_STORABLE, text)
    if context is not before or before is None:
        fault = definition.canonical.fault(context)
        if fault is not None:
            raise Park(Code.NOT_STORABLE, f"the context after {transition.id}: {fault}")
    moved = target != instance.state
    unchanged = 0 if moved or not _same(context, before) else instance.unchanged + 1
    if (
        instance.transitions >= definition.most_transitions
        or unchanged > definition.most_unchanged
        or (visits and enters and visits[definition.positions[target]] >= definition.most_visits)
    ) and not transition.renews:
        return _over(definition, instance, event, data, transition, at)
    seen = context if definition.copied is None else definition.copied(context)
    for invariant in transition.invariants:
        _hold(invariant.name, invariant.holds, target, seen)
    since, effects, more = instance.since_ms, NOTHING_WANTED, instance.more
    if enters:
        since = at
        if transition.sends:
            effects = _sent(definition, instance, event, data, transition.sends, target, seen, step)
        if visits:
            visits = _visited(visits, definition.positions[target])
        if transition.tends or more is not NOTHING_MORE:
            more = entered(definition, instance, event, target, seen, effects, at)
            if transition.renews:
                instance, visits, more = _renewed(definition, instance, target, more, event.offset)
                unchanged = 0
    after = replace(
        instance,
        state=target,
        context=context,
        version=instance.version + 1,
        transitions=instance.transitions + 1,
        unchanged=unchanged,
        since_ms=since,
        fold_ms=at,
        last_source=event.source,
        last_id=event.id,
        last_offset=event.offset,
        dedup=memory(definition, instance, event),
        visits=visits,
        more=more,
    )
    return Step(_APPLIED, after, effects, None, transition.id)


def _renewed(
    definition: Definition, instance: Instance, target: str, more: More, offset: int
) -> tuple[Instance, tuple[int, ...], More]:
    """The counters of a run that begins by entering the target; what was done before stands."""
    visits = instance.visits
    if visits:
        visits = _visited((0,) * len(visits), definition.positions[target])
    more = more_with(more, renewed=more.renewed + 1, renewed_offset=offset, done=())
    return replace(instance, transitions=0), visits, more


def _without(
    definition: Definition, instance: Instance, event: EventRecord, data: Any, cell: Cell | None
) -> Step:
    """No transition: late, deferred, already, or refused."""
    state = instance.state
    late = definition.late(state, event.type)
    if instance.more.ended or late is not None:
        if type(late) is Reopen and not instance.more.ended:
            return _reopened(definition, instance, event, data, late)
        return _late(definition, instance, event, late)
    if cell is None:
        return refuse(
            instance, Code.NO_TRANSITION, f"state {state!r} has no transition for {event.type}"
        )
    if cell.already:
        after = remembered(definition, instance, event)
        return Step(Verdict.ALREADY, after, transition=f"{state}/{event.type}/already")
    waiting = instance.more.deferred
    if len(waiting) >= definition.limits.deferred:
        text = f"state {state!r} defers {event.type}, but {len(waiting)} events wait already"
        return park(definition, instance, event, Reason(Code.QUEUE_FULL, text))
    more = more_with(instance.more, deferred=(*waiting, deferred_of(event)))
    return Step(Verdict.DEFERRED, remembered(definition, instance, event, more=more))


def _late(
    definition: Definition, instance: Instance, event: EventRecord, late: LatePolicy | None
) -> Step:
    """After the end: always verdict late, the policy beside it."""
    state, ended = instance.state, instance.more.ended
    reason, effects = None, NOTHING_WANTED
    policy = "terminated" if ended else str(late)
    if ended:
        reason = Reason(Code.NO_TRANSITION, bounded_text(f"the instance was terminated: {ended}"))
    elif late is Late.REFUSE:
        text = f"state {state!r} is final and refuses {event.type}"
        reason = Reason(Code.NO_TRANSITION, text)
    elif type(late) is Forward:
        effects = forwarded(definition.name, event, late.workflow)
    after = remembered(definition, instance, event)
    return Step(Verdict.LATE, after, effects, reason, f"{state}/{event.type}/{policy}")


def _reopened(
    definition: Definition, instance: Instance, event: EventRecord, data: Any, late: Reopen
) -> Step:
    """After the end, and the end does not stand: verdict late, in the state that is entered."""
    step = advance(definition, instance, event, data, f"{REOPENED}:{event.type}")
    if step.verdict is Verdict.REFUSED:  # its condition does not hold
        return _late(definition, instance, event, late.otherwise)
    after = step.instance
    if step.verdict is not _APPLIED or after is None:
        return step
    more = more_with(after.more, reopened=after.more.reopened + 1)
    return replace(step, verdict=Verdict.LATE, instance=replace(after, more=more))


def _stale(instance: Instance, event: EventRecord) -> str | None:
    """What the sender expected and did not find; None when it holds."""
    state, version = event.expected_state, event.expected_version
    if state is not None and state != instance.state:
        return f"the sender expects state {state!r}, the instance is in {instance.state!r}"
    if version is not None and version != instance.version:
        return f"the sender expects version {version}, the instance has {instance.version}"
    return None


def _over(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    data: Any,
    transition: Transition,
    at: int,
) -> Step:
    """A limit is reached: into the declared final state, or parked.

    One that stands at an end already, and would be opened again, does not enter an end once more:
    what the end sends would go out each time.
    """
    over, limits = definition.limits.over, definition.limits
    if over is None or instance.state in definition.finals:
        raise Park(
            Code.LIMIT_REACHED,
            f"{transition.id} would pass a limit: {instance.transitions} of"
            f" {limits.transitions} transitions, {instance.unchanged} of {limits.unchanged}"
            f" unchanged in a row, visits of {transition.target!r} at most {limits.visits}",
        )
    context = instance.context
    if definition.copied is not None:
        context = definition.copied(context)
    for invariant in definition.invariants:
        if invariant.states is None or over in invariant.states:
            _hold(invariant.name, invariant.holds, over, context)
    step = StepInfo(definition.name, instance, event, at)
    sends = sendings(definition.spec, over)
    effects = _sent(definition, instance, event, data, sends, over, context, step)
    visits = instance.visits
    more = entered(definition, instance, event, over, context, effects, at)
    after = remembered(
        definition,
        instance,
        event,
        state=over,
        since_ms=at,
        transitions=instance.transitions + 1,
        unchanged=0,
        more=more,
        visits=_visited(visits, definition.positions[over]) if visits else visits,
    )
    name = f"{instance.state}/{event.type}/limit"
    return Step(Verdict.APPLIED, after, effects, transition=name)


def _same(context: Any, before: Any) -> bool:
    if context is before:
        return True
    try:
        return bool(context == before)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the user's __eq__ raised
        raise Park(Code.REDUCER_RAISED, f"comparing contexts raised {raised(error)}") from None


def _hold(name: str, holds: Any, state: str, context: Any) -> None:
    try:
        kept = bool(holds(state, context))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the user's predicate raised
        text = f"invariant {name!r} raised {raised(error)} in state {state!r}"
        raise Park(Code.INVARIANT_BROKEN, text) from None
    if not kept:
        raise Park(Code.INVARIANT_BROKEN, f"invariant {name!r} does not hold in state {state!r}")


def _visited(visits: tuple[int, ...], position: int) -> tuple[int, ...]:
    return (*visits[:position], visits[position] + 1, *visits[position + 1 :])


def _sent(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    data: Any,
    sends: tuple[Sending, ...],
    state: str,
    context: Any,
    step: StepInfo | None,
) -> tuple[Effect, ...]:
    """The commands of an entry, encoded, each with its key; order: declaration, then list."""
    effects: list[Effect] = []
    known = definition.commands
    for sending in sends:
        try:
            wanted = (
                sending.send(context, data, step)
                if sending.takes_step
                else sending.send(context, data)
            )
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # whatever it is, the user's function raised it
            text = f"send of state {state!r} raised {raised(error)}"
            raise Park(Code.REDUCER_RAISED, text) from None
        if wanted is None:
            continue
        if type(wanted) in known:
            effects.append(_command(definition, instance, event, state, wanted))
        elif type(wanted) is list or type(wanted) is tuple:
            for one in wanted:
                effects.append(_command(definition, instance, event, state, one))
        elif type(wanted) is Start:
            effects.append(_command(definition, instance, event, state, wanted))
        else:
            raise _unknown(state, wanted)
    if len(effects) > 1:
        _distinct(definition, effects, state)
    return tuple(effects)


def _command(
    definition: Definition, instance: Instance, event: EventRecord, state: str, wanted: Any
) -> Effect:
    kind = definition.commands.get(type(wanted))
    if kind is None:
        if type(wanted) is Start:
            return started(definition, instance, event, state, wanted)
        raise _unknown(state, wanted)
    action = kind.action
    try:
        value = kind.encode(wanted)
        if kind.each is not None:
            action = _discriminated(action, getattr(wanted, kind.each))
        key = key_of(
            instance.tenant, definition.name, instance.id, state, action, event.source, event.id
        )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a value that its schema does not hold
        text = f"command {kind.name} of state {state!r} cannot be encoded: {raised(error)}"
        raise Park(Code.COMMAND_INVALID, text) from None
    if len(value) > definition.limits.command_bytes:
        small_enough(definition, value, f"command {kind.name} of state {state!r}")
    return Send(kind.target, kind.name, action, key, state, value)


def _discriminated(action: str, value: Any) -> str:
    if type(value) is not str and type(value) is not int:
        raise TypeError(f"a discriminator is text or a whole number, not {type(value).__name__}")
    return action_part(action, value)


def _distinct(definition: Definition, effects: list[Effect], state: str) -> None:
    """Two equal keys in one step: one of the two effects would never happen."""
    seen: set[str] = set()
    for send in effects:
        if send.key in seen:
            raise Park(Code.COMMAND_INVALID, _twice(definition, send, state))
        seen.add(send.key)


def _twice(definition: Definition, send: Effect, state: str) -> str:
    if not isinstance(send, Send):
        return f"state {state!r} starts {send.instance!r} of {send.workflow!r} twice in one step"
    name = send.type.rpartition(".")[2]
    known = definition.commands.values()
    each = next((kind.each for kind in known if kind.each and kind.name == send.type), None)
    what = f"state {state!r} sends action {send.action!r} twice in one step"
    if each is None:
        return f"{what}; declare a discriminator: command({name}, each=<field>)"
    value = unquote(send.action.partition(".")[2])
    return f"{what}: two of them have {each}={value!r}; merge them or choose a field that differs"


def _unknown(state: str, wanted: Any) -> Park:
    return Park(
        Code.COMMAND_INVALID,
        f"send of state {state!r} returned {type(wanted).__name__}, which is not a command of"
        " this definition; declare it with command(…)",
    )
