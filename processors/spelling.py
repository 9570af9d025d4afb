"""What one declaration says of several states, spelled out: a rule for each of them.

Law of this module: pure data to pure data, before anything is checked; what is spelled out is told
from what was written by nobody after this, so that checks, pictures and fingerprints are those of
the long form. What is said by name stands: what is said for `ANY`, or by `undo(when=…)`, is for
the rest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from refold.processors.check_kinds import check_kinds
from refold.processors.sends import sent_types
from refold.processors.spec import Rule, Spec, Start, UndoSpec
from refold.processors.triggers import (
    ANY,
    FAILED_ANY,
    missed,
    named_of,
    trigger_of,
)
from refold.processors.wrong import wrong
from refold.schemas.errors import nearest
from refold.schemas.types import Command

Action = type | str
"""A command type, or the name of a child workflow."""


def spelled_out(spec: Spec) -> Spec:
    """The same graph with a rule for each state and event; itself where nothing was shortened.

    Raises:
        DefinitionError: A short form stands for nothing; names the state and the cure.
    """
    short = [rule for rule in spec.rules if _is_any(rule.event)]
    if not short and not any(one.when for one in spec.undos):
        return spec
    check_kinds(spec)
    for one in spec.undos:
        _only_types(spec, one)
    rules = [rule for rule in spec.rules if not _is_any(rule.event)]
    plain = replace(spec, rules=rules)
    said = _with_rest(plain, [rule for one in short for rule in _of_each(plain, one)])
    return _with_rest(said, [rule for one in spec.undos for rule in _led(plain, one)])


def _with_rest(spec: Spec, rest: Iterable[Rule]) -> Spec:
    """The graph with rules for what nothing is said about by name."""
    named = {(rule.state, rule.event) for rule in spec.rules if rule.guard is None}
    named |= {*spec.deferred, *spec.already}
    more = [rule for rule in rest if (rule.state, rule.event) not in named]
    return replace(spec, rules=[*spec.rules, *more])


def _is_any(kind: object) -> bool:
    trigger = trigger_of(kind) if isinstance(kind, type) else None
    return trigger is not None and trigger.command is ANY


def _of_each(spec: Spec, rule: Rule) -> list[Rule]:
    """A rule of `failed(ANY)` and its like, for each action that its state asks for."""
    found = [replace(rule, event=kind) for kind in _kinds(spec, rule.state, rule.event)]
    if not found:
        title = rule.event.__name__
        cure = "Leave it out, or declare answers= of the command that the state sends."
        what = f"state {rule.state!r} has {title} and asks for no action"
        raise wrong(spec, what, cure, state=rule.state)
    return found


def _kinds(spec: Spec, state: str, kind: type) -> Iterator[type]:
    """What stands for a trigger of any action in a state; a join counts what fails of its own."""
    joined = {one.command for one in spec.joins if one.state == state}
    for action in _asked(spec, state):
        branch = kind is FAILED_ANY and action in joined
        yield missed(action) if branch else named_of(kind, action)


def _asked(spec: Spec, state: str) -> list[Action]:
    """The actions that entering a state asks for and that are followed."""
    followed = spec.tracked()
    found: dict[Action, None] = {}
    for entry in (one for one in spec.entries if one.state == state):
        for kind in sent_types(spec, entry.send):
            if kind is Start:
                found.update(dict.fromkeys(child.workflow for child in spec.children))
            elif kind in followed:
                found[kind] = None
    return list(found)


def _led(spec: Spec, undo: UndoSpec) -> Iterator[Rule]:
    """What leads to an undoing from each undoable state."""
    if not undo.when:
        return
    answers = {kind: one.type for one in spec.commands for kind in one.answers}
    found = undoable_states(spec) if undo.during is None else _known(spec, undo.state, undo.during)
    if not found:
        cure = "Name the states: undo(…, during=…)."
        what = f"state {undo.state!r} undoes, and no state before a pivot sends what can be undone"
        raise wrong(spec, what, cure, state=undo.state)
    for kind in undo.when:
        trigger = trigger_of(kind)
        about = answers.get(kind) if trigger is None else trigger.command
        rules = [rule for state in found for rule in _leading(spec, state, kind, about, undo)]
        if not rules:
            cure = f"Leave it out; the undoable states are {', '.join(found)}."
            what = f"{kind.__name__} in when= of undo({undo.state!r}) is about none of its states"
            raise wrong(spec, what, cure, state=undo.state)
        yield from rules


def _leading(spec: Spec, state: str, kind: type, about: object, undo: UndoSpec) -> list[Rule]:
    """What one event, which may be about one action, means in one state."""
    if about is ANY:
        return [Rule(state, one, undo.state) for one in _kinds(spec, state, kind)]
    meant = about is None or about in _asked(spec, state)
    return [Rule(state, kind, undo.state)] if meant else []


def _known(spec: Spec, undoing: str, states: Sequence[str]) -> list[str]:
    known = spec.states()
    for state in states:
        if state not in known:
            near = nearest(state, known) if isinstance(state, str) else ""
            cure = f"{near}Its states: {', '.join(known)}."
            what = f"undo({undoing!r}, during=…) names state {state!r}, which no transition has"
            raise wrong(spec, what, cure, state=undoing)
    return list(states)


def undoable_states(spec: Spec) -> list[str]:
    """States that ask for what can be undone, as long as it can be: no pivot leads to them."""
    undoable: set[Action] = {one.type for one in spec.commands if one.compensate is not None}
    undoable |= {one.workflow for one in spec.children if one.cancel is not None}
    beyond = _beyond(spec)
    return [
        state
        for state in spec.states()
        if state not in beyond and not undoable.isdisjoint(_asked(spec, state))
    ]


def _beyond(spec: Spec) -> set[str]:
    """Pivots, what they lead to, and where nothing more is to be undone."""
    found = {*spec.pivots}
    ahead = [*found]
    while ahead:
        state = ahead.pop()
        for rule in spec.rules:
            if rule.state == state and rule.to is not None and rule.to not in found:
                found.add(rule.to)
                ahead.append(rule.to)
    return found | {*spec.undoing} | {final.state for final in spec.finals}


def _only_types(spec: Spec, undo: UndoSpec) -> None:
    kinds: Sequence[object] = undo.when
    for kind in kinds:
        if not isinstance(kind, type) or issubclass(kind, Command):
            what = f"{kind!r} in when= of undo({undo.state!r}) is no event type"
            raise wrong(spec, what, "Give event classes, or failed(ANY).", state=undo.state)
