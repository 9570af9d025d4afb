"""What follows from a step by itself, in the same step: joins that are decided, what is undone.

Law of this module: pure. It goes on until nothing follows any more; each turn takes a transition
of the graph, whose limits bound them.
"""

from typing import Final

from refold.processors.definition import Definition
from refold.processors.effects import Step
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
        definition: The instance's, not simple.
        before: The record before `event`, or the blank one.
        event: The record.
        step: What it decided.
    """
    while step.verdict in _ENTERING and step.instance is not None and step.instance is not before:
        if step.instance.more.ended:
            break
        was = step
        if definition.joins:
            step = join(definition, before, event, step)
        if step.verdict in _ENTERING and definition.undoing:
            step = unwind(definition, before, event, step)
        if step is was:
            break
    return step
