"""Open actions and armed timers: what an executor says of one, and what is due.

Law of this module: pure and total. A report closes its action or tries it again; a report of an
action that is not open changes nothing but the memory of it; failing for good is a transition of
the graph or parks, never silence.
"""

from hashlib import blake2b
from typing import Any, Final

from msgspec.structs import replace

from refold.processors.advance import advance
from refold.processors.children import started_again
from refold.processors.definition import Definition
from refold.processors.effects import Effect, Send, Step
from refold.processors.ending import CHILD_FAILED
from refold.processors.engine_events import (
    FAILED,
    SUCCEEDED,
    UNKNOWN,
    Failed,
    Occurrence,
    Rung,
)
from refold.processors.entering import TIMER_MOST_S
from refold.processors.forks import branch_of, counted, holds
from refold.processors.instance import Instance, More, OpenAction, Timer
from refold.processors.records import (
    Park,
    fold_time,
    forgotten,
    more_with,
    park,
    refuse,
    remembered,
)
from refold.processors.spec import Late, Retry
from refold.processors.triggers import MISSED
from refold.processors.undoing import undoing, undoing_again
from refold.schemas.envelope import Answer, EventRecord, Outcome, derived_id
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Reason, Verdict

_SAID: Final = {
    FAILED.name: Outcome.FAILED, UNKNOWN.name: Outcome.UNKNOWN, SUCCEEDED.name: Outcome.SUCCEEDED,
}  # fmt: skip


def answered(  # noqa: PLR0911  # one way out for each thing that may come of an answer
    definition: Definition, instance: Instance, event: EventRecord, data: Any, *,
    again: bool = False,
) -> Step:  # fmt: skip
    """Judge an event of the user's that answers an action: the action ends, the graph moves.

    Where the graph has nothing for it in this state, the action has ended all the same.

    Args:
        definition: The instance's.
        instance: Its record, not parked.
        event: The record.
        data: Its decoded value; None when no state of the definition knows the type.
        again: True in a redrive: an undoing that was refused is tried once more, and an answer
            that the state does not know ends its action.
    """
    found = _open(instance, event.answer)
    if found is None or event.answer is None or event.answer.outcome is Outcome.UNKNOWN:
        return advance(definition, instance, event, data)
    more = closed(definition, instance.more, found, event.answer.outcome)
    unchanged = instance.unchanged if more.forks == instance.more.forks else 0  # a branch ended
    working = replace(instance, more=more, unchanged=unchanged)
    step = advance(definition, working, event, data)
    if step.verdict is Verdict.PARKED and step.reason is not None:
        return park(definition, instance, event, step.reason)
    if found.undoes and event.answer.outcome is Outcome.FAILED:
        return _refused(definition, instance, event, step, found, again=again)
    if step.verdict is Verdict.LATE:
        return _regretted(definition, instance, event, step, found)
    if step.verdict is not Verdict.REFUSED:
        return step
    if step.reason is not None and step.reason.code is Code.STALE:
        return replace(step, instance=instance)
    missing = None if again else unanswered(definition, working, found, event.type)
    ended = noted(definition, working, event, "answer")
    return ended if missing is None else park(definition, instance, event, missing)


def _refused(
    definition: Definition, before: Instance, event: EventRecord, step: Step, found: OpenAction, *,
    again: bool,
) -> Step:  # fmt: skip
    """The other side refuses an undoing: the graph goes its way for that, or a person is asked."""
    if step.verdict is Verdict.REFUSED and step.reason and step.reason.code is Code.STALE:
        return replace(step, instance=before)
    if step.verdict is Verdict.APPLIED and _went_on(definition, found, step):
        return step
    if again:
        return _tried(definition, before, event, found)
    return park(definition, before, event, _for_good(found, "refused:", event.type))


def _regretted(
    definition: Definition, before: Instance, event: EventRecord, step: Step, found: OpenAction
) -> Step:
    """What turned out to be done after the end is undone, where the end says so, and only then.

    A report without an event of the user's, such as a person's word, says what its answers say.
    """
    now = step.instance
    kinds = (event.type,) if event.type not in _SAID else definition.answers.get(found.type, ())
    regretted = any(definition.late(before.state, one) is Late.COMPENSATE for one in kinds)
    if now is None or not regretted or before.more.ended:
        return step
    forward = next((one for one in now.more.done if one.key == found.key), None)
    if forward is None or _is_undone(now.more, forward):  # it failed, or is being undone already
        return step
    try:
        now, send = undoing(definition, now, forward, now.fold_ms)
    except Park as problem:
        return park(definition, before, event, problem.reason)
    return replace(step, instance=now, effects=(*step.effects, send))


def reported(
    definition: Definition, instance: Instance, event: EventRecord, report: Any, *,
    again: bool = False,
) -> Step:  # fmt: skip
    """Judge a report of the engine's executors: failed, unknown or succeeded.

    Args:
        definition: The instance's.
        instance: Its record, not parked.
        event: The record.
        report: Its decoded value.
        again: True in a redrive: what failed for good is tried once more, and what was done
            without an answer is taken as ended.
    """
    answer = event.answer
    if answer is None or answer.outcome is not _SAID[event.type]:
        return refuse(instance, Code.BAD_ENVELOPE, f"{event.type} does not say of which action")
    found = _open(instance, answer)
    if found is None:
        after = remembered(definition, instance, event)
        return Step(Verdict.ALREADY, after, transition=f"{instance.state}/{event.type}/none")
    if answer.outcome is Outcome.UNKNOWN:
        more = _with(instance.more, replace(found, known="unknown"))
        return _triggered(definition, replace(instance, more=more), instance, event, found, report)
    if answer.outcome is Outcome.FAILED:
        return _failed(definition, instance, event, found, report, again=again)
    working = replace(instance, more=closed(definition, instance.more, found, Outcome.SUCCEEDED))
    missing = None if again else unanswered(definition, working, found, event.type)
    otherwise = None if missing is None else park(definition, instance, event, missing)
    step = _triggered(definition, working, instance, event, found, report, otherwise)
    if step.verdict is Verdict.LATE:
        return _regretted(definition, instance, event, step, found)
    return step


def unanswered(
    definition: Definition, working: Instance, found: OpenAction, kind: str
) -> Reason | None:
    """Why a state would stand for ever: what it asked for has ended without a declared answer, it
    has no way for that, and nothing else is under way in it. None where something may lead on.

    Args:
        definition: The instance's.
        working: Its record without the action.
        found: The action that has ended.
        kind: Type of what says so.
    """
    state, more = working.state, working.more
    if found.undoes or found.state != state or more.ended or state in definition.finals:
        return None
    pending = more.forks or any(one.state == state or one.undoes for one in more.actions)
    if pending or any(not one.key for one in more.timers):
        return None
    names = definition.answers.get(found.type)
    if names is None:
        return None
    text = f"action {found.action!r} of state {state!r} has ended with {kind}, and the state waits"
    return Reason(Code.ANSWER_MISSING, bounded_text(f"{text} for {' or '.join(names)}"))


def rang(
    definition: Definition, instance: Instance, event: EventRecord, order: Rung | Occurrence
) -> Step:
    """Judge a timer event: one that is not armed is a duplicate (P26)."""
    timer = armed(instance, order.id)
    if timer is None:
        return Step(Verdict.DUPLICATE, instance)
    rest = tuple(one for one in instance.more.timers if one.id != timer.id)
    more = more_with(instance.more, timers=rest)
    if timer.key:
        found = next((one for one in more.actions if one.key == timer.key), None)
        working = replace(instance, more=more)
        if found is None:
            return noted(definition, working, event, "none")
        return _tried(definition, working, event, found)
    name = f"{event.type}:{timer.name}"
    return _moved(definition, replace(instance, more=more), instance, event, name, order)


def armed(instance: Instance, timer: str) -> Timer | None:
    """The timer of that id, None if it is not armed."""
    return next((one for one in instance.more.timers if one.id == timer), None)


def _triggered(
    definition: Definition,
    working: Instance,
    before: Instance,
    event: EventRecord,
    found: OpenAction,
    report: Any,
    otherwise: Step | None = None,
) -> Step:
    """Take the transition that a graph has for a report about an action, if it has one."""
    name = f"{event.type}:{found.type}"
    return _moved(definition, working, before, event, name, report, otherwise)


def closed(definition: Definition, more: More, found: OpenAction, outcome: Outcome) -> More:
    """What is left when an action has ended; one that was done may have to be undone."""
    ended = {found.key}
    if found.undoes:  # what it undid has ended as well; or stands, and the graph has taken it so
        ended.add(found.undoes)
    left = forgotten(more, ended)
    undoable = definition.by_name[found.type].compensate is not None
    if outcome is Outcome.SUCCEEDED and undoable and not found.undoes:
        left = more_with(left, done=(*left.done, replace(found, known="")))
    forks = counted(more.forks, found.key, outcome) if more.forks else ()
    return more_with(left, forks=forks) if forks else left


def noted(definition: Definition, working: Instance, event: EventRecord, what: str) -> Step:
    """Something changed beside the state, which stands: late after the end, as everything is."""
    late = bool(working.more.ended) or working.state in definition.finals
    after = remembered(definition, working, event)
    name = f"{working.state}/{event.type}/{what}"
    return Step(Verdict.LATE if late else Verdict.APPLIED, after, transition=name)


def _moved(
    definition: Definition,
    working: Instance,
    before: Instance,
    event: EventRecord,
    name: str,
    data: Any,
    otherwise: Step | None = None,
) -> Step:
    """Take a transition of the graph; where it has none, or no guard holds: `otherwise`."""
    cell = definition.table[working.state].get(name)
    if cell is None or working.more.ended:
        return otherwise or noted(definition, working, event, "noted")
    step = advance(definition, working, event, data, name)
    if step.verdict is Verdict.PARKED and step.reason is not None:
        return park(definition, before, event, step.reason)
    if step.verdict is Verdict.REFUSED:
        return otherwise or noted(definition, working, event, "noted")
    return step


def _failed(
    definition: Definition,
    instance: Instance,
    event: EventRecord,
    found: OpenAction,
    report: Failed,
    *,
    again: bool,
) -> Step:
    at_ms = fold_time(instance, event)
    kind = definition.by_name[found.type]
    retry = kind.undo_retry if found.undoes else kind.retry
    due_ms = _next_ms(retry, found, report, at_ms)
    if due_ms is not None and _wanted(definition, instance, found):
        number = str(found.attempt + 1)
        timer = Timer(derived_id("timer", found.key, number), f"retry {number}", due_ms, found.key)
        more = _with(instance.more, replace(found, known="retrying"))
        more = more_with(more, timers=(*more.timers, timer))
        return noted(definition, replace(instance, more=more), event, "retry")
    otherwise = None
    if found.undoes or not _passes(definition, instance, found, again=again):
        if again and found.value and report.code != CHILD_FAILED:  # what has ended begins no more
            otherwise = _tried(definition, instance, event, found)
        else:
            reason = _for_good(found, report.code, report.text)
            otherwise = park(definition, instance, event, reason)
    more = closed(definition, instance.more, found, Outcome.FAILED)
    working = replace(instance, more=more)
    step = _triggered(definition, working, instance, event, found, report, otherwise)
    return step if otherwise is None or _went_on(definition, found, step) else otherwise


def _went_on(definition: Definition, found: OpenAction, step: Step) -> bool:
    """Whether a failure led on: an undoing that failed must not leave its instance undoing."""
    state = "" if step.instance is None else step.instance.state
    return not found.undoes or state not in definition.undoing


def _passes(definition: Definition, instance: Instance, found: OpenAction, *, again: bool) -> bool:
    """Whether an action may fail for good where its state has no way for that: it is being undone,
    nobody waits for it any more, or a join counts it. In a redrive one that counts towards a join
    without a way is tried once more.
    """
    state = instance.state
    over = bool(instance.more.ended) or state in definition.finals or state in definition.undoing
    if over or _is_undone(instance.more, found):
        return True
    fork = next((one for one in instance.more.forks if holds(one, found.key)), None)
    if fork is None:
        return False
    return not again or not found.value or f"{MISSED}:{fork.type}" in definition.table[state]


def _is_undone(more: More, found: OpenAction) -> bool:
    """Whether its undoing is asked for already: the executor settles the two together (P33)."""
    return any(one.undoes == found.key for one in more.actions)


def _wanted(definition: Definition, instance: Instance, found: OpenAction) -> bool:
    """Whether anybody waits for another attempt: after the end only what the end itself asked for.

    A payment is not tried again when its order has expired; the mail that says so is, and so is
    an undoing. What is being undone is not: the undoing could have been confirmed before it.
    """
    if instance.more.ended or _is_undone(instance.more, found):
        return False
    over = instance.state in definition.finals
    return not over or found.state == instance.state or bool(found.undoes)


def _for_good(found: OpenAction, code: str, text: str) -> Reason:
    """Why an instance waits for a person, and what stands undone."""
    after = f"after attempt {found.attempt}: {code} {text}"
    if found.undoes:
        text = f"{found.type} did not undo what {found.undoes} did, {after}"
        return Reason(Code.COMPENSATION_FAILED, bounded_text(text))
    text = f"action {found.action!r} of state {found.state!r} failed for good {after}"
    return Reason(Code.ACTION_FAILED, bounded_text(text))


def _tried(
    definition: Definition, working: Instance, event: EventRecord, found: OpenAction
) -> Step:
    """Ask for the next attempt under the same key (P24)."""
    if definition.by_name[found.type].child:
        return _asked_again(definition, working, event, found)
    attempt = found.attempt + 1
    send = Send(
        found.target, found.type, found.action, found.key, found.state, found.value, attempt
    )
    more = _with(working.more, replace(found, attempt=attempt, known=""))
    after = remembered(definition, working, event, more=more)
    name = f"{working.state}/{event.type}/attempt {attempt}"
    return Step(Verdict.APPLIED, after, (send,), transition=name)


def _asked_again(
    definition: Definition, working: Instance, event: EventRecord, found: OpenAction
) -> Step:
    """Ask a child once more: to begin, or to undo as its parent would say it now."""
    name = f"{working.state}/{event.type}/again"
    if not found.undoes:
        publish: Effect = started_again(definition, working, event, found)
        return Step(Verdict.APPLIED, remembered(definition, working, event), (publish,), None, name)
    try:
        asked, publish = undoing_again(definition, working, event, found)
    except Park as problem:
        return park(definition, working, event, problem.reason)
    return Step(Verdict.APPLIED, remembered(definition, asked, event), (publish,), None, name)


def _next_ms(retry: Retry | None, found: OpenAction, report: Failed, at_ms: int) -> int | None:
    """When the next attempt begins; None: there is none."""
    if retry is None or not report.retry or report.code in retry.never:
        return None
    if found.attempt >= retry.attempts:
        return None
    pause_s = retry.first_s
    for _ in range(found.attempt - 1):
        if pause_s >= retry.most_s:
            break
        pause_s = min(pause_s * retry.factor, retry.most_s)
    pause_ms = int(min(pause_s, retry.most_s) * 1000)
    pause_ms += int(pause_ms * retry.jitter) * _share(found) // 1000
    due_ms = at_ms + min(max(pause_ms, report.retry_after_ms), TIMER_MOST_S * 1000)
    last_ms = None if retry.elapsed_s is None else found.since_ms + int(retry.elapsed_s * 1000)
    return None if last_ms is not None and due_ms > last_ms else due_ms


def _share(found: OpenAction) -> int:
    """0 to 999, the same in every process for this key and attempt."""
    digest = blake2b(f"{found.key}/{found.attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 1000


def _open(instance: Instance, answer: Answer | None) -> OpenAction | None:
    """The open action that an answer is about; an attempt that is over counts only if it was done.

    Over is an older one, and one that certainly did nothing and is to be followed by another: that
    nobody knows what became of it was said before, and comes late.
    """
    if answer is None:
        return None
    for one in instance.more.actions:
        if one.key == answer.key:
            past = answer.attempt < one.attempt or one.known == "retrying"
            return None if past and answer.outcome is not Outcome.SUCCEEDED else one
    return branch_of(instance, answer.key) if instance.more.forks else None


def _with(more: More, changed: OpenAction) -> More:
    actions = tuple(changed if one.key == changed.key else one for one in more.actions)
    return replace(more, actions=actions)
