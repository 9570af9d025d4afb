"""What the end of an instance means for others: its parent is answered, its children are asked.

Law of this module: pure. Each answer goes out once, in the step in which the instance ends; one
that was asked for its undoing after its end answers at once.
"""

from typing import Any, Final

from msgspec.structs import replace

from refold.processors.children import answer
from refold.processors.definition import Definition
from refold.processors.effects import Effect, Publish, Step
from refold.processors.engine_events import Failed, Succeeded
from refold.processors.instance import Instance, OpenAction
from refold.processors.keys import COMPENSATE
from refold.processors.records import Park, more_with, park, raised, small_enough
from refold.processors.status import RunStatus, run_status
from refold.processors.undoing import undoing
from refold.schemas.envelope import EventRecord, Outcome, Parent
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Reason

_DONE: Final = frozenset({RunStatus.COMPLETED, RunStatus.CONTINUED})
CHILD_FAILED: Final = "CHILD_FAILED"
"""Code of a failure report: the child ended otherwise than completed."""
CHILD_COMPLETED: Final = "CHILD_COMPLETED"
"""Code of a failure report: what a child did stands, it ended as completed."""


def ended(definition: Definition, before: Instance, event: EventRecord, step: Step) -> Step:
    """After a step that leaves an instance at its end, tell those who wait and those who work.

    Args:
        definition: The instance's.
        before: The record before `event`: what stands again if this cannot be done.
        event: The record.
        step: What it decided.
    """
    now, effects, reason = step.instance, list[Effect](), step.reason
    if now is None or not (now.more.ended or now.state in definition.finals):
        return step
    try:
        for one in _working(definition, now):
            now, wanted, why = _asked(definition, now, one)
            effects += wanted
            reason = reason or why
        if now.more.owed and now.more.parent is not None:
            for key in now.more.owed:
                effects.append(_told(definition, now, event, now.more.parent, key))
            now = replace(now, more=more_with(now.more, owed=()))
    except Park as problem:
        return park(definition, before, event, problem.reason)
    if now is step.instance and reason is step.reason:
        return step
    return replace(step, instance=now, effects=(*step.effects, *effects), reason=reason)


def _working(definition: Definition, now: Instance) -> list[OpenAction]:
    """Children that were started before the end and can be asked to undo their work."""
    asked = {one.undoes for one in now.more.actions}
    return [
        one
        for one in now.more.actions
        if definition.by_name[one.type].child
        and definition.by_name[one.type].compensate is not None
        and one.key not in asked
        and (now.more.ended or one.state != now.state)
    ]


def _asked(
    definition: Definition, now: Instance, child: OpenAction
) -> tuple[Instance, list[Effect], Reason | None]:
    try:
        now, wanted = undoing(definition, now, child, now.fold_ms)
    except Park as problem:
        if not now.more.ended:
            raise
        # a person's order is carried out; the child stays among the open actions, and is named
        text = f"{child.target} {child.action!r} was not asked to undo: {problem.reason.text}"
        return now, [], Reason(problem.reason.code, bounded_text(text))
    return now, [wanted], None


def _told(
    definition: Definition, now: Instance, event: EventRecord, parent: Parent, key: str
) -> Publish:
    """The answer to one action of the parent."""
    status = run_status(definition, now)
    done = status in _DONE
    how = f"{definition.name} {now.id!r} ended in state {now.state!r} as {status}"
    if key.endswith(f":{COMPENSATE}"):
        fact: Any = Failed(CHILD_COMPLETED, how, False, 0) if done else Succeeded(how)
        return answer(event, parent, key, fact)
    final = None if now.more.ended else definition.finals.get(now.state)
    if final is None or final.answer is None:
        said = Succeeded(how) if done else Failed(CHILD_FAILED, how, False, 0)
        return answer(event, parent, key, said)
    outcome = Outcome.SUCCEEDED if done else Outcome.FAILED
    context = now.context if definition.copied is None else definition.copied(now.context)
    try:
        told = answer(event, parent, key, final.answer(context), outcome)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the user's function raised, or gave no event
        text = f"the answer of final state {now.state!r}: {raised(error)}"
        raise Park(Code.REDUCER_RAISED, text) from None
    small_enough(definition, told.value, f"the answer of final state {now.state!r}")
    return told
