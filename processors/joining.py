"""Where branches come together: once, when enough are done, or when that cannot be any more.

Law of this module: pure. What a join decides follows from the counts of its fork alone; with the
decision the fork is gone, so that it is made once.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from refold.processors.advance import advance
from refold.processors.definition import Definition
from refold.processors.effects import Effect, Step
from refold.processors.forks import BRANCH_BYTES, holds, need_of
from refold.processors.instance import Fork, Instance
from refold.processors.records import Park, fold_time, forgotten, grown, more_with, park
from refold.processors.spec import JoinSpec
from refold.processors.triggers import JOINED, MISSED, Joined
from refold.processors.undoing import undoing
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.verdicts import Reason, Verdict


def join(definition: Definition, before: Instance, event: EventRecord, step: Step) -> Step:
    """Take the transition of the first join that is decided after a step.

    Args:
        definition: The instance's.
        before: The record before `event`: what stands again if this cannot be done.
        event: The record.
        step: What it decided, not parked.
    """
    now = step.instance
    found = None if now is None else next(_decided(definition, now), None)
    if now is None or found is None:
        return step
    each, fork, name = found
    try:
        nested, wanted = _fired(definition, now, event, each, fork, name)
    except Park as problem:
        return park(definition, before, event, problem.reason)
    if nested.verdict is not Verdict.APPLIED or nested.instance is None:
        reason = nested.reason or _short(now.state, each, fork)
        return park(definition, before, event, reason)
    effects = (*step.effects, *wanted, *nested.effects)
    return grown(step, nested.instance, before, event, effects)


def _decided(definition: Definition, now: Instance) -> Iterator[tuple[JoinSpec, Fork, str]]:
    """Joins of the present state that are decided, in declared order."""
    for each in definition.joins.get(now.state, ()):
        name = each.name
        for fork in (one for one in now.more.forks if one.type == name):
            need = need_of(each, fork)
            if fork.succeeded >= need:
                yield each, fork, f"{JOINED}:{name}"
            elif fork.asked - fork.failed < need:
                yield each, fork, f"{MISSED}:{name}"


def _fired(
    definition: Definition,
    now: Instance,
    event: EventRecord,
    each: JoinSpec,
    fork: Fork,
    name: str,
) -> tuple[Step, list[Effect]]:
    if name not in definition.table[now.state]:
        raise Park(Code.JOIN_FAILED, _short(now.state, each, fork).text)
    rest = tuple(one for one in now.more.forks if one is not fork)
    working = replace(now, more=more_with(now.more, forks=rest))
    wanted: list[Effect] = []
    if each.cancel_rest:
        working, wanted = _without(definition, working, fork, fold_time(now, event))
    counts = Joined(fork.asked, fork.succeeded, fork.failed, len(fork.pending) // BRANCH_BYTES)
    return advance(definition, working, event, counts, name), wanted


def _without(
    definition: Definition, working: Instance, fork: Fork, at_ms: int
) -> tuple[Instance, list[Effect]]:
    """Ask for the undoing of open branches; those between two attempts certainly did nothing."""
    more, wanted = working.more, list[Effect]()
    open_ = [one for one in more.actions if one.type == fork.type and holds(fork, one.key)]
    waiting = {one.key for one in open_ if one.known == "retrying"}
    if waiting:
        working = replace(working, more=forgotten(more, waiting))
    for one in open_:
        if one.key not in waiting:
            working, send = undoing(definition, working, one, at_ms)
            wanted.append(send)
    return working, wanted


def _short(state: str, each: JoinSpec, fork: Fork) -> Reason:
    text = (
        f"state {state!r} joins {fork.asked} branches of {fork.type} and needs"
        f" {need_of(each, fork)}: {fork.succeeded} succeeded, {fork.failed} failed"
    )
    return Reason(Code.JOIN_FAILED, text)
