"""What a definition must satisfy about forks and joins.

Law of this module: as `refold.processors.check`, of which it is a part.
"""

from collections.abc import Mapping

from refold.processors.sends import sent_types
from refold.processors.spec import ChildSpec, CommandSpec, Everything, JoinSpec, Spec, Start
from refold.processors.triggers import JOINED, MISSED, called_of, joined, trigger_of
from refold.processors.wrong import wrong


def check_forks(spec: Spec) -> None:
    """Check what begins branches and joins them.

    Raises:
        DefinitionError: The first thing that does not hold; names the state and the cure.
    """
    declared: dict[type | str, CommandSpec | ChildSpec] = {one.type: one for one in spec.commands}
    declared |= {one.workflow: one for one in spec.children}
    seen = {(join.state, join.command) for join in spec.joins}
    for join in spec.joins:
        where = f"the join of {called_of(join.command)} in state {join.state!r}"
        _join(spec, where, join)
        _branches(spec, where, join, declared)
    for rule in spec.rules:
        trigger = trigger_of(rule.event)
        if trigger is None or not trigger.name.startswith((f"{JOINED}:", f"{MISSED}:")):
            continue
        command = trigger.command
        if command is not None and (rule.state, command) not in seen:
            cure = f"Add join({rule.state!r}, {called_of(command)}, to=…)."
            what = f"{trigger.title} in state {rule.state!r} is about no join"
            raise wrong(spec, what, cure, state=rule.state)


def _join(spec: Spec, where: str, join: JoinSpec) -> None:
    pair = (join.state, joined(join.command))
    if any(rule.to is None for rule in spec.rules if (rule.state, rule.event) == pair):
        raise wrong(spec, f"{where} leads nowhere", "Name in to= the state that is entered then.")
    if not isinstance(join.need, Everything) and (type(join.need) is not int or join.need < 1):
        raise wrong(spec, f"{where} needs {join.need!r}", "Give ALL, or a number from 1 on.")
    sent = {
        kind
        for entry in spec.entries
        if entry.state == join.state
        for kind in sent_types(spec, entry.send)
    }
    if (Start if isinstance(join.command, str) else join.command) not in sent:
        cure = f"Add enter({join.state!r}, send=…) that returns such commands."
        raise wrong(spec, f"{where} has no branches", cure, state=join.state)
    if join.state in spec.undoing:
        cure = "Undo in a state of its own."
        raise wrong(spec, f"{where} stands in a state that undoes", cure, state=join.state)


def _branches(
    spec: Spec, where: str, join: JoinSpec, declared: Mapping[type | str, CommandSpec | ChildSpec]
) -> None:
    found = declared.get(join.command)
    undo = found.cancel if isinstance(found, ChildSpec) else found and found.compensate
    if join.cancel_rest and undo is None:
        cure = "Declare it with compensate=, or a child with cancel=."
        raise wrong(spec, f"{where} cancels the rest, which cannot be undone", cure)
    kept = {*spec.deferred, *spec.already}
    for kind in () if found is None else found.answers:
        if (join.state, kind) in kept:
            cure = f"Take it with on({join.state!r}, {kind.__name__}), or leave it to the join."
            what = f"{where} counts {kind.__name__}, which is deferred or already known there"
            raise wrong(spec, what, cure, state=join.state)
