"""What a definition must satisfy about actions: answers, retries, undoing, timers.

Law of this module: as `refold.processors.check`, of which it is a part.
"""

from refold.processors.sends import annotated_types, command_types, sent_types, targets_of
from refold.processors.spec import Spec
from refold.processors.triggers import UNDONE_TRIGGER, trigger_of
from refold.processors.wrong import wrong
from refold.schemas.limits import name_fault
from refold.schemas.types import Event


def check_actions(spec: Spec) -> None:
    """Check what waits, retries and undoes.

    Raises:
        DefinitionError: The first thing that does not hold; names the state and the cure.
    """
    for one in (_answers, _triggers, _undoing, _timers):
        one(spec)


def _answers(spec: Spec) -> None:
    """A state that sends a command takes every answer to it."""
    taken = {(rule.state, rule.event) for rule in spec.rules} | {*spec.deferred, *spec.already}
    finals = {final.state for final in spec.finals}
    joined = {(one.state, one.command) for one in spec.joins}  # there they are counted
    answers = {one.type: one.answers for one in spec.commands if one.answers}
    for entry in (one for one in spec.entries if one.state not in finals):
        for command in sent_types(spec, entry.send):
            for kind in answers.get(command, ()):
                if (entry.state, kind) not in taken and (entry.state, command) not in joined:
                    what = f"state {entry.state!r} sends {command.__name__} and does not take its"
                    cure = f"Add on({entry.state!r}, {kind.__name__}, …), or defer it there."
                    raise wrong(spec, f"{what} answer {kind.__name__}", cure, state=entry.state)


def _triggers(spec: Spec) -> None:
    """Reports are about commands that the graph sends."""
    known = {*command_types(spec), *(one.workflow for one in spec.children)}
    for kind in spec.kinds():
        trigger = trigger_of(kind)
        if trigger is not None and trigger.command is not None and trigger.command not in known:
            what = f"{trigger.title} is about a command that no state sends"
            raise wrong(spec, what, "Name a command of this graph, or a child workflow.")
    for final in spec.finals:
        for late in final.late:
            if isinstance(late, type) and trigger_of(late) is not None:
                what = f"final state {final.state!r} has a late policy for {late.__name__}"
                raise wrong(spec, what, "Give late policies for events: reports are noted.")


def _undoing(spec: Spec) -> None:
    """What undoes can be found, goes to the same executor, and is itself not undone."""
    declared = {one.type: one for one in spec.commands}
    target_of = targets_of(spec)
    for one in spec.commands:
        if one.compensate is None:
            continue
        name, found = one.type.__name__, sent_types(spec, one.compensate)
        if not found:
            cure = "Annotate what it returns."
            raise wrong(spec, f"what undoes {name} cannot be told from its code", cure)
        if any(several for _, several in annotated_types(one.compensate)):
            cure = "Return one command: what is done by one action is undone by one."
            raise wrong(spec, f"the compensation of {name} returns several commands", cure)
        for kind in found:
            if issubclass(kind, Event):
                cure = "Make it a Command: an executor undoes."
                raise wrong(spec, f"{kind.__name__} undoes {name} and is an Event", cure)
            if target_of[kind] != target_of[one.type]:
                what = f"{kind.__name__} undoes {name} and goes to another target"
                cure = (
                    f"Leave target= of {kind.__name__} out; where it undoes commands of several"
                    " targets, give each target a command of its own."
                )
                raise wrong(spec, what, cure)
            if kind in declared and declared[kind].compensate is not None:
                what = f"{kind.__name__} undoes {name} and is undone itself"
                raise wrong(spec, what, "What undoes an action stands.")
    finals = {final.state for final in spec.finals}
    for state in spec.undoing:
        if state in finals:
            raise wrong(spec, f"state {state!r} undoes and is final", "Let it lead to the end.")
        undoable = [one.compensate for one in spec.commands]
        undoable += [one.cancel for one in spec.children]
        if not any(undoable):
            cure = (
                "Declare command(…, compensate=…), or child(…, cancel=…), for what is to be undone."
            )
            raise wrong(spec, f"state {state!r} undoes, and no command can be undone", cure)
        if state in spec.pivots:
            cure = "Make a pivot of the state from which on nothing is to be undone."
            raise wrong(spec, f"state {state!r} undoes and is a pivot: nothing is left", cure)
    _ends_undoing(spec)


def _ends_undoing(spec: Spec) -> None:
    """Where everything is undone, the way leads out of what undoes."""
    ways = {rule.state: rule.to for rule in spec.rules if rule.event is UNDONE_TRIGGER}
    for state in spec.undoing:
        seen, at = {state}, ways.get(state)
        while at is not None and at in ways:
            if at in seen:
                what = f"undo leads from state {state!r} back to state {at!r} for ever"
                raise wrong(spec, what, "Give to= a state that does not undo.", state=state)
            seen.add(at)
            at = ways[at]


def _timers(spec: Spec) -> None:
    seen: set[tuple[str, str]] = set()
    finals = {final.state for final in spec.finals}
    for one in spec.timers:
        fault = name_fault(one.name)
        if fault is not None:
            raise wrong(spec, f"timer {one.name!r} {fault}", "Give it another name=.")
        if (one.state, one.name) in seen:
            cure = "Give each timer of a state its own name=."
            raise wrong(spec, f"state {one.state!r} has timer {one.name!r} twice", cure)
        seen.add((one.state, one.name))
        if one.state in finals or one.state == spec.initial:
            what = f"state {one.state!r} has a timer, and it is never entered or never left"
            raise wrong(spec, what, "Give timers to states that are entered and left.")
