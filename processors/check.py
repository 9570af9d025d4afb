"""What a definition must satisfy before anything is folded with it.

Law of this module: each check is a function from a spec to the first thing that is wrong, told
with the state and the cure. Nothing is repaired or guessed.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Final, get_type_hints

from refold.processors.check_actions import check_actions
from refold.processors.check_children import check_children
from refold.processors.check_ends import check_ends
from refold.processors.check_forks import check_forks
from refold.processors.check_kinds import check_kinds
from refold.processors.definition import short
from refold.processors.engine_events import PREFIX
from refold.processors.purity import faults
from refold.processors.sends import (
    annotated_types,
    command_types,
    positional_count,
    sent_event,
    sent_types,
)
from refold.processors.spec import Function, Late, Spec, Start
from refold.processors.status import WAITING
from refold.processors.wrong import wrong
from refold.schemas.canonical import canonical_of
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, DefinitionError, nearest
from refold.schemas.limits import name_fault, type_fault
from refold.schemas.types import Event

DEDUP_MOST: Final = 100_000
"""Event identities that an instance may remember: 2.4 MB of every snapshot."""


def check(spec: Spec) -> None:
    """Check everything that can be known before an event comes.

    Raises:
        DefinitionError: The first thing that does not hold; names the state and the cure.
    """
    for one in (
        check_kinds,
        _names,
        _bounds,
        _functions,
        _types,
        _upcasters,
        _distinct_types,
        _states,
        _pairs,
        _guards,
        check_ends,
        _reachable,
        _ways_out,
        _first_context,
        _deferred,
        _commands,
        _actions,
        check_actions,
        check_children,
        check_forks,
        _purity,
    ):
        one(spec)


def _names(spec: Spec) -> None:
    named = [("workflow", spec.name)] + [("state", state) for state in spec.states()]
    for one in spec.commands:
        named += [("target", one.target)] if one.target is not None else []
        named += [("action", one.action)] if one.action is not None else []
    for kind, text in named:
        fault = name_fault(text)
        if fault is not None:
            raise wrong(spec, f"{kind} {text!r} {fault}", "Choose another name.", **{kind: text})


def _bounds(spec: Spec) -> None:
    limits = spec.limits
    if not 1 <= spec.dedup <= DEDUP_MOST:
        cure = f"Remember 1 to {DEDUP_MOST} event identities."
        raise wrong(spec, f"dedup={spec.dedup} is out of range", cure)
    if limits.over is not None and limits.over not in {final.state for final in spec.finals}:
        cure = "Name a final state, or leave `over` out to park."
        raise wrong(spec, f"limit over={limits.over!r} is not a final state", cure)


def _used(spec: Spec) -> Iterator[tuple[str, Function, int]]:
    """(what it is, function, parameters it must take) for every user's function."""
    for rule in spec.rules:
        where = f"of {rule.event.__name__} in state {rule.state!r}"
        if rule.guard is not None:
            yield f"the guard {where}", rule.guard, 2
        if rule.reducer is not None:
            yield f"the reducer {where}", rule.reducer, 2
    for entry in spec.entries:
        yield f"send of state {entry.state!r}", entry.send, 2
    for invariant in spec.invariants:
        yield f"invariant {invariant.name!r}", invariant.holds, 2
    for command in spec.commands:
        if command.compensate is not None:
            yield f"the compensation of {command.type.__name__}", command.compensate, -2
    yield from _used_beside(spec)


def _used_beside(spec: Spec) -> Iterator[tuple[str, Function, int]]:
    """Those that make no context and no command of a state."""
    for child in spec.children:
        if child.cancel is not None:
            yield f"cancel of child {child.workflow!r}", child.cancel, -3
    for final in spec.finals:
        if final.answer is not None:
            yield f"the answer of final state {final.state!r}", final.answer, -1
    for timer in spec.timers:
        if not isinstance(timer.duration, timedelta):
            yield f"the duration of {timer.name!r} in state {timer.state!r}", timer.duration, -1
    for one in (*spec.upcasters, *spec.context_upcasters):
        yield f"the upcaster of {one.type.__name__} {one.sequence}", one.lift, 1


_TAKES: Final[Mapping[object, tuple[tuple[int, ...], str]]] = {
    "invariant": ((2,), "It gets (state, context)."),
    -3: ((2,), "It gets (context, event)."),
    -2: ((2,), "It gets (context, command)."),
    -1: ((1,), "It gets the context."),
    1: ((1,), "It gets the old fields."),
    2: ((2, 3), "It gets (context, event) and, if it takes three, the step."),
}


def _functions(spec: Spec) -> None:
    for what, function, least in _used(spec):
        if not callable(function):
            raise wrong(spec, f"{what} is not a function", "Give a plain function.")
        if iscoroutinefunction(function) or isgeneratorfunction(function):
            cure = "A fold waits for nothing: give a plain function."
            raise wrong(spec, f"{what} is async or a generator", cure)
        count = positional_count(function)
        allowed, cure = _TAKES["invariant" if what.startswith("invariant") else least]
        if count is None:
            cure = "Write a function with parameters that calls it."
            raise wrong(spec, f"what {what} takes cannot be told", cure)
        if count not in allowed:
            takes = " or ".join(map(str, allowed))
            raise wrong(spec, f"{what} takes {count} parameters, not {takes}", cure)


def _types(spec: Spec) -> None:
    canonical_of(spec.context)
    for kind in (*spec.events(), *(one.type for one in spec.commands)):
        codec_of(kind)
    for kind in command_types(spec):
        codec_of(kind)


def _upcasters(spec: Spec) -> None:
    known = set(spec.events())
    for one in spec.upcasters:
        name = one.type.__name__
        if one.type not in known:
            raise wrong(spec, f"an upcaster is for {name}", "Name an event type of this graph.")
        if type(one.sequence) is not int or one.sequence < 1:
            cure = "Schemas are counted from 1 on the schema topic."
            raise wrong(spec, f"an upcaster of {name} is for sequence {one.sequence!r}", cure)
    for one in spec.context_upcasters:
        if type(one.sequence) is not int or not 1 <= one.sequence < spec.version:
            cure = "Name a version below this one."
            what = f"an upcaster of the context is from version {one.sequence!r}"
            raise wrong(spec, what, cure)
    named = [(one.type, one.sequence) for one in (*spec.upcasters, *spec.context_upcasters)]
    for kind, number in named:
        if named.count((kind, number)) > 1:
            cure = "Keep one: it lifts that shape straight to the newest."
            raise wrong(spec, f"two upcasters are for {kind.__name__} {number}", cure)


def _distinct_types(spec: Spec) -> None:
    for what, kinds in (("event", spec.events()), ("command", command_types(spec))):
        known: dict[str, type] = {}
        for kind in kinds:
            name = codec_of(kind).name
            fault = type_fault(name)
            if fault is not None:
                raise wrong(spec, f"{what} type {name!r} {fault}", "Set __avro_name__.")
            if name.startswith(PREFIX):
                cure = "Types of that name are the engine's own: choose another."
                raise wrong(spec, f"{what} type {name!r} begins with {PREFIX!r}", cure)
            if known.setdefault(name, kind) is not kind:
                cure = "Give one of them another __avro_name__."
                raise wrong(spec, f"two {what} types are called {name!r}", cure)


def _states(spec: Spec) -> None:
    known = set(spec.states())
    named = [("enter", one.state) for one in spec.entries]
    named += [("defer", state) for state, _ in spec.deferred]
    named += [("already", state) for state, _ in spec.already]
    named += [("waits", state) for state, _ in spec.waits]
    named += [("pivot", state) for state in spec.pivots]
    named += [
        (f"invariant {one.name!r}", state) for one in spec.invariants for state in one.states or ()
    ]
    for what, state in named:
        if state not in known:
            cure = f"{nearest(state, known)}Its states: {', '.join(sorted(known))}."
            raise wrong(spec, f"{what} names state {state!r}, which no transition has", cure)
    for state, status in spec.waits:
        if status not in WAITING:
            cure = f"Declare one of {', '.join(sorted(WAITING))}."
            raise wrong(spec, f"state {state!r} cannot wait as {status}", cure, state=state)
    _once(spec, "waits", (state for state, _ in spec.waits))
    _once(spec, "final", (final.state for final in spec.finals))


def _once(spec: Spec, what: str, states: Iterable[str]) -> None:
    seen: set[str] = set()
    for state in states:
        if state in seen:
            raise wrong(spec, f"state {state!r} is declared {what} twice", "Declare it once.")
        seen.add(state)


def _pairs(spec: Spec) -> None:
    """Each (state, event type) is a transition, deferred or already: one of them, once."""
    kinds: dict[tuple[str, type], str] = {}
    said = [((rule.state, rule.event), "a transition") for rule in spec.rules]
    said += [(pair, "deferred") for pair in dict.fromkeys(spec.deferred)]
    said += [(pair, "already") for pair in dict.fromkeys(spec.already)]
    for pair, kind in said:
        if kinds.setdefault(pair, kind) != kind:
            state, event = pair
            what = f"{event.__name__} in state {state!r} is both {kinds[pair]} and {kind}"
            raise wrong(spec, what, "Keep one of the two.", state=state)


def _guards(spec: Spec) -> None:
    """Of one pair at most one transition has no guard, and it stands last."""
    closed: set[tuple[str, type]] = set()
    for rule in spec.rules:
        pair = (rule.state, rule.event)
        if pair in closed:
            kind = "two unguarded transitions" if rule.guard is None else "a guard after the last"
            what = f"{rule.event.__name__} in state {rule.state!r} has {kind} resort"
            if rule.guard is None:
                what = f"{rule.event.__name__} in state {rule.state!r} has {kind}"
            cure = "Guards are tried in order: give all but the last one a guard."
            raise wrong(spec, what, cure, state=rule.state)
        if rule.guard is None:
            closed.add(pair)


def _arrows(spec: Spec) -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = {state: set() for state in spec.states()}
    for rule in spec.rules:
        if rule.to is not None and rule.to != rule.state:
            arrows[rule.state].add(rule.to)
            if spec.limits.over is not None:
                arrows[rule.state].add(spec.limits.over)
    return arrows


def _alike(spec: Spec, state: str) -> str:
    """A state that nothing leads to or from is often another one, misspelt."""
    others = [each for each in spec.states() if each != state]
    near = get_close_matches(state, others, n=1, cutoff=0.8)
    return f"{near[0]!r} and {state!r} look alike: is one misspelt? If not: " if near else ""


def _reachable(spec: Spec) -> None:
    arrows = _arrows(spec)
    seen, ahead = {spec.initial}, [spec.initial]
    while ahead:
        for state in arrows[ahead.pop()] - seen:
            seen.add(state)
            ahead.append(state)
    for state in spec.states():
        if state not in seen:
            cure = f"{_alike(spec, state)}Add a transition to={state!r}, or remove the state."
            what = f"no way leads from {spec.initial!r} to state {state!r}"
            raise wrong(spec, what, cure, state=state)


def _ways_out(spec: Spec) -> None:
    finals = {final.state for final in spec.finals}
    arrows = _arrows(spec)
    for state in spec.states():
        if state not in finals and not arrows[state]:
            cure = f"{_alike(spec, state)}Add a transition out of it, or final({state!r}, late=…)."
            raise wrong(spec, f"no way leads out of state {state!r}", cure, state=state)


def _first_context(spec: Spec) -> None:
    """The first transition makes the context, where its class cannot make itself."""
    try:
        spec.context()
    except (TypeError, ValueError):
        for rule in spec.rules:
            if rule.state == spec.initial and rule.reducer is None:
                cure = "Give the transition a reducer, or every field of the context a default."
                what = (
                    f"{rule.event.__name__} in the initial state {spec.initial!r} has no reducer,"
                    f" and {spec.context.__name__}() needs arguments"
                )
                raise wrong(spec, what, cure, state=spec.initial) from None


def _deferred(spec: Spec) -> None:
    handled = {rule.event for rule in spec.rules} | {kind for _, kind in spec.already}
    for final in spec.finals:  # what an end takes up again, or hands on, may be waited for
        handled |= {
            kind
            for kind, late in final.late.items()
            if isinstance(kind, type) and not isinstance(late, Late)
        }
    for state, kind in spec.deferred:
        if kind not in handled:
            cure = "Add the transition that it waits for, or do not defer it."
            what = f"state {state!r} defers {kind.__name__}, which no state takes"
            raise wrong(spec, what, cure, state=state)


def _commands(spec: Spec) -> None:
    for entry in spec.entries:
        event = sent_event(spec, entry.send)
        if event is not None:
            cure = "A state sends commands: make it a Command, or let its receiver send the event."
            what = f"state {entry.state!r} sends {event.__name__}, which is an Event"
            raise wrong(spec, what, cure, state=entry.state)
        if entry.state == spec.initial and all(rule.to != entry.state for rule in spec.rules):
            cure = "Send from the state that the first event leads to, or lead back to it by to=."
            what = f"state {entry.state!r} sends when it is entered, and it is never entered"
            raise wrong(spec, f"{what}: every instance begins in it", cure, state=entry.state)
        if not sent_types(spec, entry.send):
            cure = "Annotate what it returns, or declare the type with command(…)."
            what = f"which commands state {entry.state!r} sends cannot be told from its code"
            raise wrong(spec, what, cure, state=entry.state)
    seen: set[type] = set()
    for one in spec.commands:
        if isinstance(one.type, type) and issubclass(one.type, Event):
            cure = "Declare command types; events are named by on, defer and already."
            raise wrong(spec, f"command({one.type.__name__}) names an Event", cure)
        if one.type in seen:
            raise wrong(spec, f"command {one.type.__name__} is declared twice", "Declare it once.")
        seen.add(one.type)
        if one.each is not None:
            _discriminator(spec, one.type, one.each)


def _discriminator(spec: Spec, kind: type, each: str) -> None:
    hint = get_type_hints(kind).get(each)
    if hint is not str and hint is not int:
        cure = "Name a field that is a str or an int, such as the item's number."
        found = "is not a field" if hint is None else f"is {hint}"
        raise wrong(spec, f"each={each!r} of command {kind.__name__} {found}", cure)


def _actions(spec: Spec) -> None:
    """The same action twice from one step needs a discriminator, where it can be seen."""
    declared = {one.type: one for one in spec.commands}

    def action_of(kind: type) -> str:
        said = declared[kind].action if kind in declared else None
        return said or short(codec_of(kind).name)

    told_apart = {one.type for one in spec.commands if one.each is not None}
    for kind in command_types(spec):
        fault = name_fault(action_of(kind))
        if fault is not None:
            cure = f"Declare command({kind.__name__}, action=…)."
            raise wrong(spec, f"action {action_of(kind)!r} {fault}", cure)
    for state in spec.states():
        sent: dict[str, type] = {}
        for entry in (one for one in spec.entries if one.state == state):
            many = {kind for kind, several in annotated_types(entry.send) if several}
            for kind in sent_types(spec, entry.send):
                if kind in told_apart or kind is Start:  # children are told apart by their ids
                    continue
                action = action_of(kind)
                if action in sent or kind in many:
                    cure = f"Declare command({kind.__name__}, each=<field>)."
                    what = f"state {state!r} sends action {action!r} twice in one step"
                    raise wrong(spec, what, cure, state=state)
                sent[action] = kind


def _purity(spec: Spec) -> None:
    kinds = [("the context", spec.context)] + [("an event", kind) for kind in spec.events()]
    kinds += [("a command", kind) for kind in command_types(spec)]
    kinds += [("an event", one.event) for one in spec.children]
    used: list[tuple[str, object]] = [(what, function) for what, function, _ in _used(spec)]
    for what, thing in [*used, *kinds]:
        found = faults(thing)
        if found:
            raise DefinitionError(
                Code.IMPURE_REDUCER,
                f"{spec.name} version {spec.version}: {what}: {found[0].file}:{found[0].line}:"
                f" {found[0].function} {found[0].found}.",
                found[0].cure,
            )
