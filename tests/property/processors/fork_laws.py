"""What must hold of every step, whatever the graph and whatever comes: one law a function.

Each compares the record before with the record after and with what was sent, and knows nothing of
how the fold decides.
"""

from collections import Counter
from typing import Final

from msgspec.structs import replace
from tests.property.processors.forked_world import Watched

from refold.processors.effects import Effect, Publish, Send, Step
from refold.processors.engine_events import REDRIVE, TERMINATE
from refold.processors.fold import fold, needed
from refold.processors.forks import BRANCH_BYTES, holds, need_of
from refold.processors.instance import Fork, Instance, OpenAction
from refold.processors.instance_codec import encode
from refold.processors.keys import compensate_key
from refold.schemas.envelope import EventRecord, Outcome
from refold.schemas.verdicts import Verdict

ENDS: Final = (Outcome.SUCCEEDED, Outcome.FAILED)
FIXED_BYTES: Final = 1_500
"""What a record has beside what is open: names, context, counters, a parent, a reason."""
REMEMBERED: Final = frozenset(
    {Verdict.APPLIED, Verdict.ALREADY, Verdict.LATE, Verdict.DEFERRED, Verdict.PARKED}
)


def over(driver: Watched, record: Instance | None) -> bool:
    """Whether an instance is at its end."""
    return record is not None and (
        bool(record.more.ended) or record.state in driver.definition.finals
    )


def answers(event: EventRecord, key: str) -> bool:
    """Whether an event says how the action with this key ended."""
    return event.answer is not None and event.answer.key == key and event.answer.outcome in ENDS


def a_repeated_event_changes_nothing_and_sends_nothing(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    after = step.instance
    again = replace(event, offset=event.offset + 1)
    kept = {one.event.offset: one.event for one in driver.log} if needed(after, again) else {}
    repeated = fold(driver.workflow, driver.active, after, again, kept)
    assert repeated.instance is after
    if step.verdict in REMEMBERED:
        assert repeated.verdict is Verdict.DUPLICATE, repeated
        assert not repeated.effects
    else:  # what is refused tells its parent so, under the same id
        assert repeated.effects == step.effects


def each_key_is_sent_with_one_body_and_each_attempt_once(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    sent = [one for one in driver.sent if driver.whose(one.key) == (event.tenant, event.instance)]
    bodies: dict[str, set[tuple[str, str, bytes]]] = {}
    for one in sent:
        bodies.setdefault(one.key, set()).add((one.target, one.type, one.value))
    assert all(len(several) == 1 for several in bodies.values()), bodies
    attempts: dict[str, list[int]] = {}
    for one in sent:
        attempts.setdefault(one.key, []).append(one.attempt)
    assert all(found == list(range(1, len(found) + 1)) for found in attempts.values()), attempts


def each_event_for_another_workflow_goes_out_once(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    if step.verdict in (Verdict.REFUSED, Verdict.POISON):
        return  # a refused start that comes again is refused again, under the same id
    for one in step.effects:
        if isinstance(one, Publish):
            assert [other.id for _, other in driver.published].count(one.id) == 1, one


def branches_are_counted_and_each_ends_once(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    if step.instance is None:
        return
    after = step.instance
    for fork in after.more.forks:
        open_, rest = divmod(len(fork.pending), BRANCH_BYTES)
        assert rest == 0
        assert fork.succeeded + fork.failed + open_ == fork.asked
    if before is None or event.type == REDRIVE.name or before.visits != after.visits:
        return
    for fork in after.more.forks:  # nothing was entered: it is one that was there
        was = next(one for one in before.more.forks if one.type == fork.type)
        gone = _digests(was) - _digests(fork)
        assert gone.total() == fork.succeeded + fork.failed - was.succeeded - was.failed
        assert not _digests(fork) - _digests(was)
        assert gone.total() <= 1
        if gone:
            assert event.answer is not None
            assert holds(was, event.answer.key)
            assert not holds(fork, event.answer.key)


def _digests(fork: Fork) -> Counter[bytes]:
    size = BRANCH_BYTES
    return Counter(fork.pending[at : at + size] for at in range(0, len(fork.pending), size))


def a_join_is_decided_as_soon_as_it_can_be_and_once(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    after = step.instance
    if after is None or over(driver, after) or after.more.parked is not None:
        return
    for join in driver.definition.joins.get(after.state, ()):
        for fork in after.more.forks:
            if fork.type == join.name:
                assert fork.succeeded < need_of(join, fork) <= fork.asked - fork.failed
    decided = Counter(line.rpartition("/")[0].split("/")[0] for line in _joins(after))
    for state, times in decided.items():
        kinds = len(driver.definition.joins[state])
        assert times <= kinds * after.visits[driver.definition.positions[state]]


def a_join_is_told_what_its_own_branches_said(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    told = {
        (answer.key, answer.outcome)
        for entry in driver.log
        if (answer := entry.event.answer) is not None and entry.event.instance == event.instance
    }
    for line in _joins(step.instance)[len(_joins(before)) :]:
        state, kind, how, *counts = line.split("/")
        asked, succeeded, failed, open_ = map(int, counts)
        assert succeeded + failed + open_ == asked
        (join,) = (
            one for one in driver.definition.joins[state] if one.name.rpartition(":")[2] == kind
        )
        need = join.need if isinstance(join.need, int) else asked
        assert (succeeded >= need) if how == "joined" else (asked - failed < need)
        if not succeeded + failed:
            continue
        keys = _last_entry(driver, event, step, state, join.name)
        assert len(keys) == asked
        assert succeeded <= sum((key, Outcome.SUCCEEDED) in told for key in keys)
        assert failed <= sum((key, Outcome.FAILED) in told for key in keys)


def _joins(record: Instance | None) -> tuple[str, ...]:
    return () if record is None else getattr(record.context, "joins", ())


def _last_entry(driver: Watched, event: EventRecord, step: Step, state: str, name: str) -> set[str]:
    """Keys of the branches that the last entry of a state before this step began."""
    for entry in reversed(driver.log):
        if entry.step is step or entry.event.instance != event.instance:
            continue
        keys = {one[0] for one in map(begun, entry.step.effects) if one[1:] == (state, name)}
        if keys:
            return keys
    return set()


def begun(effect: Effect) -> tuple[str, str, str]:
    """Key, state and name of the action that an effect of an entry begins."""
    if isinstance(effect, Send):
        return effect.key, effect.state, effect.type if effect.attempt == 1 else ""
    if effect.parent is None:
        return effect.key, "", ""
    return effect.parent.key, effect.parent.key.split(":")[4], f"child:{effect.workflow}"


def no_open_action_is_forgotten(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    after = step.instance
    if after is None or event.type == REDRIVE.name:  # a redrive folds many events at once
        return
    more, kept = after.more, {one.key for one in after.more.actions}
    timers = Counter(one.key for one in more.timers if one.key)
    if not more.ended:
        assert timers == Counter(one.key for one in more.actions if one.known == "retrying")
    assert Counter(one.key for one in more.actions).total() == len(kept)
    for one in () if before is None else before.more.actions:
        assert one.key in kept or _may_go(before, event, after, one), one
    if before is not None and event.type != TERMINATE.name:
        done = {one.key for one in more.done}
        for one in before.more.done:
            assert one.key in done or _undone(driver, before, event, after, one), one
    for effect in step.effects:
        key, state, name = begun(effect)
        kind = driver.definition.by_name.get(name)
        if kind is None or not kind.tracked:
            continue
        branch = any(one.name == name for one in driver.definition.joins.get(state, ()))
        light = branch and kind.retry is None and kind.compensate is None
        assert light or key in kept, effect


def _may_go(before: Instance | None, event: EventRecord, after: Instance, one: OpenAction) -> bool:
    """Whether an action that was open may have gone: it was answered, undone, or never begun."""
    if answers(event, one.key):
        return True
    undo = compensate_key(one.key) if not one.undoes else ""
    if event.answer is not None and event.answer.key == undo:
        return event.answer.outcome is Outcome.SUCCEEDED
    if before is None:
        return False
    moved = before.visits != after.visits
    moved = moved or len(before.more.forks) > len(after.more.forks)  # a join may cancel the rest
    return one.known == "retrying" and (moved or bool(after.more.ended))


def _undone(
    driver: Watched, before: Instance, event: EventRecord, after: Instance, one: OpenAction
) -> bool:
    answer = event.answer
    if answer is not None and answer.key == compensate_key(one.key):
        return answer.outcome is Outcome.SUCCEEDED
    definition = driver.definition
    entered = (definition.positions[each] for each in definition.pivots)
    return any(after.visits[each] > before.visits[each] for each in entered)


def after_the_end_nothing_is_sent_but_what_the_end_asked_for(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    if before is None or step.instance is None or not over(driver, before):
        return
    if event.type == REDRIVE.name or step.instance.more.reopened > before.more.reopened:
        return
    asked = {one.key: one for one in before.more.actions}
    for one in step.effects:
        if isinstance(one, Publish):  # a parent asks what has ended already, or is refused
            assert one.answer is not None
            assert event.parent is not None
            assert one.answer.key == event.parent.key
        elif one.attempt > 1:
            again = asked[one.key]
            assert not before.more.ended
            assert again.undoes or again.state == before.state
        else:  # Late.COMPENSATE
            assert not before.more.ended
            assert event.answer is not None
            assert event.answer.outcome is Outcome.SUCCEEDED
            assert one.key == compensate_key(event.answer.key)


def a_record_holds_no_more_than_is_open(
    driver: Watched, before: Instance | None, event: EventRecord, step: Step
) -> None:
    after = step.instance
    if after is None or step.verdict is not Verdict.APPLIED:
        return
    limits, more = driver.definition.limits, after.more
    branches = sum(len(one.pending) for one in more.forks) // BRANCH_BYTES
    assert branches <= limits.branches
    several = (*more.actions, *more.done)
    assert len(several) <= 2 * limits.actions  # each of them, and what undoes it
    open_ = sum(len(encode_action(one)) for one in several)
    rest = len(after.dedup) + BRANCH_BYTES * branches + 100 * len(more.timers)
    rest += sum(len(line) + 5 for line in _joins(after))
    rest += sum(len(one.value) + 200 for one in more.deferred) + 200 * len(more.owed)
    assert len(encode(after, driver.definition)) <= FIXED_BYTES + open_ + rest


def encode_action(one: OpenAction) -> bytes:
    """As many bytes as an action takes at most."""
    return b"x" * (len(one.key) + len(one.undoes) + len(one.value) + len(one.action) + 200)


LAWS: Final = (
    a_repeated_event_changes_nothing_and_sends_nothing,
    each_key_is_sent_with_one_body_and_each_attempt_once,
    each_event_for_another_workflow_goes_out_once,
    branches_are_counted_and_each_ends_once,
    a_join_is_decided_as_soon_as_it_can_be_and_once,
    a_join_is_told_what_its_own_branches_said,
    no_open_action_is_forgotten,
    after_the_end_nothing_is_sent_but_what_the_end_asked_for,
    a_record_holds_no_more_than_is_open,
)
