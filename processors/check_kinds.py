"""What a declaration is made of: names are texts, events are classes, numbers lie in their ranges.

Law of this module: as `refold.processors.check`, of which it is the first part: mixed up, these
would fail somewhere else, with a traceback in place of a cure, or only when an event comes.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from math import isfinite
from typing import Final

from refold.processors.entering import TIMER_MOST_S
from refold.processors.spec import CommandSpec, Limits, Retry, Spec
from refold.processors.triggers import ANY, trigger_of
from refold.processors.wrong import wrong
from refold.schemas.types import Command

VERSION_MOST: Final = 2**31 - 1
"""A version is an int of 32 bits in PostgreSQL."""
_NO_BOUND: Final = ("transitions", "visits", "unchanged")
"""Limits that may be None."""
_RETRY: Final = (
    "Give 1 or more attempts, no time below 0 s, a factor of 1 or more, jitter 0 to 1, and in"
    " never= a tuple of codes; no pause is longer than 100 years."
)


def check_kinds(spec: Spec) -> None:
    """Check that everything is of the kind that it must be.

    Raises:
        DefinitionError: The first thing that is not.
    """
    for one in (_numbers, _states, _events, _answers, _lates, _retries, _durations):
        one(spec)


def _numbers(spec: Spec) -> None:
    if type(spec.version) is not int or not 1 <= spec.version <= VERSION_MOST:
        raise wrong(spec, "the version is not 1 or more", "Count versions from 1.")
    if type(spec.dedup) is not int:
        raise wrong(spec, f"dedup={spec.dedup!r} is no whole number", "Give a count of events.")
    limits: object = spec.limits
    if not isinstance(limits, Limits):
        raise wrong(spec, f"limits={limits!r} is no Limits(…)", "Give Limits(transitions=…).")
    for name in ("deferred", "parked", "command_bytes", "actions", "branches", *_NO_BOUND):
        value = getattr(limits, name)
        if value is None and name in _NO_BOUND:
            continue
        if type(value) is not int or value < 1:
            cure = "Give a count or None." if name in _NO_BOUND else "Give a count."
            raise wrong(spec, f"limit {name}={value!r} is not 1 or more", cure)


def _named(spec: Spec) -> Iterator[tuple[str, object]]:
    yield "the initial state", spec.initial
    for rule in spec.rules:
        yield f"the state in which {rule.event!r} comes", rule.state
        if rule.to is not None:
            title = getattr(rule.event, "__name__", rule.event)
            yield f"to= of {title} in state {rule.state!r}", rule.to
    yield from (("the state of final(…)", final.state) for final in spec.finals)
    yield from (("the state of enter(…)", entry.state) for entry in spec.entries)
    yield from (("a state of defer(…)", state) for state, _ in spec.deferred)
    yield from (("a state of already(…)", state) for state, _ in spec.already)
    yield from (("a state of waits(…)", state) for state, _ in spec.waits)
    yield from (("a state of pivot(…)", state) for state in spec.pivots)
    for one in spec.invariants:
        yield from ((f"a state of invariant {one.name!r}", state) for state in one.states or ())


def _states(spec: Spec) -> None:
    for what, state in _named(spec):
        if not isinstance(state, str):
            found = f"the class {state.__name__}" if isinstance(state, type) else repr(state)
            raise wrong(spec, f"{what} is {found}", "Give a state's name, a text.")
    for one in spec.invariants:
        if not isinstance(one.name, str):
            raise wrong(spec, f"the invariant {one.name!r} has no name", "Say what must hold.")


def _events(spec: Spec) -> None:
    events = [(rule.state, rule.event) for rule in spec.rules]
    for state, kind in (*events, *spec.deferred, *spec.already):
        if not isinstance(kind, type):
            what = f"{kind!r} in state {state!r} is no event type"
            raise wrong(spec, what, "Give the event's class.", state=state)
        if issubclass(kind, Command):
            what = f"{kind.__name__} in state {state!r} is a Command"
            raise wrong(spec, what, "A state waits for events: make it an Event.", state=state)
    for rule in spec.rules:
        if type(rule.renew) is not bool:
            what = f"renew={rule.renew!r} of {rule.event.__name__} in state {rule.state!r}"
            raise wrong(spec, f"{what} is neither True nor False", "Give one of the two.")
    for child in spec.children:
        if isinstance(child.event, type) and issubclass(child.event, Command):
            what = (
                f"child {child.workflow!r} begins with {child.event.__name__}, which is a Command"
            )
            raise wrong(spec, what, "Give the event by which an instance of it begins.")


def _answers(spec: Spec) -> None:
    said = [(getattr(one.type, "__name__", repr(one.type)), one.answers) for one in spec.commands]
    said += [(f"child {one.workflow!r}", one.answers) for one in spec.children]
    for name, answers in said:
        for kind in answers:
            event = isinstance(kind, type) and trigger_of(kind) is None
            if not event or issubclass(kind, Command):
                what = f"{kind!r} among the answers of {name} is no event type"
                raise wrong(spec, what, "Give the event's class.")


def _lates(spec: Spec) -> None:
    for final in spec.finals:
        late: object = final.late
        where = f"final state {final.state!r}"
        if not isinstance(late, Mapping):
            cure = "Give late={ANY: Late.RECORD}, or a policy for each event type."
            raise wrong(spec, f"{where} has late={late!r}", cure, state=final.state)
        for kind in late:
            event = isinstance(kind, type) and not issubclass(kind, Command)
            if kind is not ANY and not event:
                what = f"{where} has a late policy for {kind!r}, which is no event type"
                raise wrong(spec, what, "Give the event's class, or ANY.", state=final.state)


def _retries(spec: Spec) -> None:
    for one in spec.commands:
        if one.retry is not None and not _is_retry(one.retry):
            what = f"the retry of {_name(one)} is out of range: {one.retry!r}"
            raise wrong(spec, what, _RETRY)


def _name(command: CommandSpec) -> str:
    return getattr(command.type, "__name__", repr(command.type))


def _is_retry(retry: object) -> bool:
    if not isinstance(retry, Retry) or type(retry.attempts) is not int:
        return False
    codes: object = retry.never
    if not isinstance(codes, tuple | list) or not all(isinstance(code, str) for code in codes):
        return False
    times = (retry.first_s, retry.most_s, 0.0 if retry.elapsed_s is None else retry.elapsed_s)
    for value in (*times, retry.factor, retry.jitter):
        if type(value) not in (int, float) or not isfinite(value):
            return False
    good = all(0 <= value <= TIMER_MOST_S for value in times)
    return good and retry.attempts >= 1 and retry.factor >= 1 and 0 <= retry.jitter <= 1


def _durations(spec: Spec) -> None:
    for one in spec.timers:
        where = f"timer {one.name!r} of state {one.state!r}"
        if not isinstance(one.duration, timedelta):
            if not callable(one.duration):
                what = f"{where} lasts {one.duration!r}"
                cure = (
                    "Give a timedelta, or a function of the context that gives one or a datetime."
                )
                raise wrong(spec, what, cure, state=one.state)
            continue
        least, most = timedelta(milliseconds=1), timedelta(seconds=TIMER_MOST_S)
        if not least <= one.duration <= most:
            cure = "Give a duration above zero, of a millisecond at least and 100 years at most."
            raise wrong(spec, f"{where} lasts {one.duration}", cure, state=one.state)
