"""What a definition must satisfy about its ends: final states and their late policies.

Law of this module: as `refold.processors.check`, of which it is a part.
"""

from typing import Final

from refold.processors.sends import undoable_answers
from refold.processors.spec import FinalState, Forward, Late, Reopen, Spec
from refold.processors.status import ENDED
from refold.processors.triggers import ANY, REOPENED, Anything, trigger_of
from refold.processors.wrong import wrong
from refold.schemas.errors import nearest
from refold.schemas.limits import name_fault

_OTHERWISE: Final = frozenset({Late.RECORD, Late.REFUSE, Late.ALREADY})
_POLICIES: Final = (*sorted(Late), "reopen(…)", "forward(…)")


def check_ends(spec: Spec) -> None:
    """Check what is final, and what becomes of events that come after it.

    Raises:
        DefinitionError: The first thing that does not hold; names the state and the cure.
    """
    _renewing(spec)
    for final in spec.finals:
        _end(spec, final)
        for kind, late in final.late.items():
            _late(spec, final.state, kind, late)
        missing = [kind for kind in spec.events() if kind not in final.late]
        if missing and ANY not in final.late:
            cure = f"Add {missing[0].__name__}: Late.…, or ANY: Late.… for the rest."
            what = f"final state {final.state!r} has no late policy for {missing[0].__name__}"
            raise wrong(spec, what, cure, state=final.state)


def _renewing(spec: Spec) -> None:
    finals = {final.state for final in spec.finals}
    for rule in spec.rules:
        if rule.renew and (rule.to is None or rule.to in finals):
            what = f"{rule.event.__name__} in state {rule.state!r} renews and enters no state"
            raise wrong(spec, what, "Give to= a state that goes on.", state=rule.state)


def _end(spec: Spec, final: FinalState) -> None:
    where = f"final state {final.state!r}"
    leaving = [
        rule.event.__name__
        for rule in spec.rules
        if rule.state == final.state and not is_reopening(rule.event)
    ]
    leaving += [kind.__name__ for state, kind in spec.deferred if state == final.state]
    leaving += [kind.__name__ for state, kind in spec.already if state == final.state]
    if leaving:
        cure = "Say it with late=…, or do not declare the state final."
        raise wrong(spec, f"{where} does something on {leaving[0]}", cure, state=final.state)
    if final.status not in ENDED:
        cure = f"Declare one of {', '.join(sorted(ENDED))}."
        raise wrong(spec, f"{where} cannot end as {final.status}", cure, state=final.state)
    if final.state in {state for state, _ in spec.waits}:
        raise wrong(spec, f"{where} waits for something", "Leave waits out.")


def is_reopening(event: type) -> bool:
    """True for the trigger of an event that opens an instance again."""
    trigger = trigger_of(event)
    return trigger is not None and trigger.name.startswith(f"{REOPENED}:")


def _late(spec: Spec, state: str, kind: type | Anything, late: object) -> None:
    name = "ANY" if not isinstance(kind, type) else kind.__name__
    where = f"final state {state!r}: {late!s} for {name}"
    match late:
        case Reopen():
            _reopen(spec, where, kind, late)
        case Forward():
            _forward(spec, where, late)
        case Late.COMPENSATE:
            if kind not in undoable_answers(spec):
                cure = "Name an event among the answers= of a command with compensate=."
                raise wrong(spec, f"{where} has nothing to undo", cure, state=state)
        case Late():
            pass
        case _:
            cure = f"Declare one of {', '.join(_POLICIES)}."
            if isinstance(late, str):
                cure = f"{nearest(late, sorted(Late))}{cure}"
            raise wrong(spec, f"final state {state!r}: {late!r} for {name} is no late policy", cure)


def _reopen(spec: Spec, where: str, kind: object, late: Reopen) -> None:
    if not isinstance(kind, type):
        cure = "Name each event that opens the instance again."
        raise wrong(spec, f"{where} does not say for which event", cure)
    declared = {spec.initial}
    for rule in spec.rules:
        if not is_reopening(rule.event):
            declared |= {rule.state} if rule.to is None else {rule.state, rule.to}
    if late.otherwise not in _OTHERWISE and not isinstance(late.otherwise, Forward):
        cure = f"Declare one of {', '.join(sorted(_OTHERWISE))}, forward(…)."
        raise wrong(spec, f"{where}, otherwise {late.otherwise!s}, cannot be kept", cure)
    if isinstance(late.otherwise, Forward):
        _forward(spec, where, late.otherwise)
    if late.state not in declared or late.state in {final.state for final in spec.finals}:
        going = declared - {final.state for final in spec.finals}
        cure = f"{nearest(late.state, going)}Name a state that goes on: {', '.join(sorted(going))}."
        raise wrong(spec, f"{where} names no state to go on in", cure)


def _forward(spec: Spec, where: str, late: Forward) -> None:
    fault = name_fault(late.workflow)
    if fault is not None:
        raise wrong(spec, f"{where}: {late.workflow!r} {fault}", "Name a workflow.")
    if late.workflow == spec.name:
        cure = "Use reopen(…), or name another workflow."
        raise wrong(spec, f"{where} hands it to this workflow, where it is late again", cure)
