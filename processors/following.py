"""What follows from a step by itself, in the same step: joins, what is undone, what an end means.

Law of this module: pure. It goes on until nothing follows any more; each turn takes a transition
of the graph, whose limits bound them.
"""

from typing import Final

from refold.processors.definition import Definition
from refold.processors.effects import Step
from refold.processors.ending import ended
from refold.processors.instance import Instance
from refold.processors.joining import join
from refold.processors.undoing import unwind
from refold.schemas.envelope import EventRecord
from refold.schemas.verdicts import Verdict

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
    while step.verdict in _ENTERING:
        was = step
        if definition.joins:
            step = join(definition, before, event, step)
        if step.verdict in _ENTERING and definition.undoing:
            step = unwind(definition, before, event, step)
        if step is was:
            break
    return step
