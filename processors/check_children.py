"""What a definition must satisfy about other workflows whose instances work for it.

Law of this module: as `refold.processors.check`, of which it is a part.
"""

from refold.processors.engine_events import PREFIX
from refold.processors.sends import annotated_types, sent_types
from refold.processors.spec import ChildSpec, Spec, Start
from refold.processors.triggers import trigger_of
from refold.processors.wrong import wrong
from refold.schemas.codec import codec_of
from refold.schemas.limits import name_fault
from refold.schemas.types import Command


def check_children(spec: Spec) -> None:
    """Check children: names, events, and that their answers are taken.

    Raises:
        DefinitionError: The first thing that does not hold; names the state and the cure.
    """
    names = [one.workflow for one in spec.children]
    for one in spec.children:
        fault = name_fault(one.workflow)
        if fault is not None:
            raise wrong(spec, f"child {one.workflow!r} {fault}", "Name a workflow.")
        if names.count(one.workflow) > 1:
            raise wrong(spec, f"child {one.workflow!r} is declared twice", "Declare it once.")
        if not isinstance(one.event, type) or trigger_of(one.event) is not None:
            what = f"{one.event!r} of child {one.workflow!r} is no event type"
            raise wrong(spec, what, "Give the event's class.")
        for kind, _ in () if one.cancel is None else annotated_types(one.cancel):
            if issubclass(kind, Command):
                what = f"cancel of child {one.workflow!r} gives {kind.__name__}, which is a Command"
                raise wrong(spec, what, "Give the event by which the child undoes its work.")
        if codec_of(one.event).name.startswith(PREFIX):
            what = f"child {one.workflow!r} begins with an event of the engine's own"
            raise wrong(spec, what, "Give an event type of that workflow.")
    starting = {entry.state for entry in spec.entries if Start in sent_types(spec, entry.send)}
    for state in starting:
        if not spec.children:
            cure = "Declare it with child(workflow, Event)."
            raise wrong(spec, f"state {state!r} starts a child that is not declared", cure)
    if spec.children and not starting:
        cure = "Return start(workflow, instance, event) from a send, and say so: `-> Start`."
        raise wrong(spec, f"no state starts child {names[0]!r}", cure)
    if len(spec.children) == 1:  # of several nobody can tell which one a state starts
        _answers(spec, spec.children[0], starting)


def _answers(spec: Spec, child: ChildSpec, starting: set[str]) -> None:
    taken = {(rule.state, rule.event) for rule in spec.rules} | {*spec.deferred, *spec.already}
    joined = {one.state for one in spec.joins if one.command == child.workflow}
    finals = {final.state for final in spec.finals}
    for state in sorted(starting - joined - finals):
        for kind in child.answers:
            if (state, kind) not in taken:
                cure = f"Add on({state!r}, {kind.__name__}, …), or defer it there."
                what = f"state {state!r} starts {child.workflow!r} and does not take its answer"
                raise wrong(spec, f"{what} {kind.__name__}", cure, state=state)
