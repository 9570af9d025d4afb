"""What follows from a step by itself, in the same step: joins, what is undone, what an end means.

Law of this module: pure. It goes on until nothing follows any more; what goes round for ever parks,
and so does what would send two commands under one key.
"""

from typing import Final

from refold.processors.definition import Definition
from refold.processors.effects import Send, Step
from refold.processors.ending import ended
from refold.processors.instance import Instance
from refold.processors.joining import join
from refold.processors.records import park
from refold.processors.undoing import unwind
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Reason, Verdict

TURNS_MOST: Final = 11_000
"""Transitions that may follow from one event by themselves; the limits of a definition, where it
has not lifted them, come first and lead where it says."""
_ENTERING: Final = frozenset({Verdict.APPLIED, Verdict.LATE})
"""Verdicts of steps that may enter a state; late: an instance that is opened again."""


def follow(definition: Definition, before: Instance, event: EventRecord, step: Step) -> Step:
    """Take what follows from a step.

    Args:
        definition: The instance's.
        before: The record before `event`, or the blank one.
        event: The record.
        step: What it decided.
    """
    now = step.instance
    if now is None or now is before or step.verdict not in _ENTERING:
        return step
    if not now.more.ended:
        step = _transitions(definition, before, event, step)
    return ended(definition, before, event, step) if step.verdict in _ENTERING else step


def _transitions(definition: Definition, before: Instance, event: EventRecord, step: Step) -> Step:
    first = step
    for _ in range(TURNS_MOST):
        was = step
        if definition.joins:
            step = join(definition, before, event, step)
        if step.verdict in _ENTERING and definition.undoing:
            step = unwind(definition, before, event, step)
        if step.verdict not in _ENTERING:
            return step
        if step is was:
            return step if step is first else _once(definition, before, event, step)
    state = "" if step.instance is None else step.instance.state
    text = f"after {TURNS_MOST} transitions that follow from one event it goes on in {state!r}"
    return park(definition, before, event, Reason(Code.LIMIT_REACHED, text))


def _once(definition: Definition, before: Instance, event: EventRecord, step: Step) -> Step:
    """What goes round and enters a state twice in one step would send under one key twice."""
    seen: set[tuple[str, int]] = set()
    for one in step.effects:
        key = (one.key, one.attempt if isinstance(one, Send) else 0)
        if key in seen:
            state = one.state if isinstance(one, Send) else before.state
            text = f"state {state!r} is entered twice by one event and sends {one.key} twice"
            return park(definition, before, event, Reason(Code.COMMAND_INVALID, bounded_text(text)))
        seen.add(key)
    return step
