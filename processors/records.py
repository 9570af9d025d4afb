"""New instance records from old ones: what every verdict that is remembered has in common.

Law of this module: the only place besides `advance` that makes instance records. Each record
of the log that changes one adds one to `version`, its identity to the dedup memory, and its
coordinates; nothing is changed in place (P15).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from refold.processors.definition import Definition
from refold.processors.effects import Effect, Step
from refold.processors.instance import NOTHING_MORE, Deferred, Instance, More, Parked
from refold.processors.owing import owing
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.limits import bounded_text
from refold.schemas.verdicts import Reason, Verdict

ENTRY_BYTES: Final = 24
"""One dedup entry: 16 bytes of event identity, 8 of body digest."""

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")
_PATH: Final = re.compile(r"(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


class Park(Exception):  # noqa: N818  # a finding, turned into a verdict by whoever makes the step
    """A step that cannot be completed; never leaves the fold."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(code, text)
        self.reason = Reason(code, bounded_text(text))


def small_enough(definition: Definition, value: bytes, what: str) -> None:
    """Check the size of what is to be sent.

    Raises:
        Park: COMMAND_TOO_LARGE.
    """
    most = definition.limits.command_bytes
    if len(value) > most:
        text = f"{what} has {len(value)} bytes, the definition allows {most}"
        raise Park(Code.COMMAND_TOO_LARGE, text)


def fold_time(instance: Instance, event: EventRecord) -> int:
    """The later of the instance's last fold time and the record's log time (P25)."""
    return max(instance.fold_ms, event.log_time_ms)


def memory(definition: Definition, instance: Instance, event: EventRecord) -> bytes:
    """The dedup memory with one more entry, the oldest forgotten over the bound (P23)."""
    known = instance.dedup
    over = len(known) + ENTRY_BYTES - definition.dedup_bytes
    if over <= 0:
        return known + event.identity + event.body
    return b"".join((memoryview(known)[over:], event.identity, event.body))  # one copy, not three


def remembered(
    definition: Definition, instance: Instance, event: EventRecord, **changed: Any
) -> Instance:
    """The record after an event that changed it: `changed`, and what always changes."""
    return replace(
        instance,
        version=instance.version + 1,
        fold_ms=fold_time(instance, event),
        last_source=event.source,
        last_id=event.id,
        last_offset=event.offset,
        dedup=memory(definition, instance, event),
        **changed,
    )


def as_one(instance: Instance, before: Instance, event: EventRecord, dedup: bytes) -> Instance:
    """Fold the changes of several nested events into the one of the record that caused them."""
    return replace(
        instance,
        version=before.version + 1,
        fold_ms=max(instance.fold_ms, event.log_time_ms),
        last_source=event.source,
        last_id=event.id,
        last_offset=event.offset,
        dedup=dedup,
    )


def grown(
    step: Step, now: Instance, before: Instance, event: EventRecord, effects: Iterable[Effect]
) -> Step:
    """A step with what followed from it: one record of the log is one version (`as_one`)."""
    if now is step.instance:
        return step
    after = as_one(now, before, event, b"" if step.instance is None else step.instance.dedup)
    return replace(step, instance=after, effects=tuple(effects))


def forgotten(more: More, keys: Collection[str]) -> More:
    """`more` without the actions of these keys, nor the timers of their next attempts."""
    return more_with(
        more,
        actions=tuple(one for one in more.actions if one.key not in keys),
        timers=tuple(one for one in more.timers if one.key not in keys),
        done=tuple(one for one in more.done if one.key not in keys),
    )


def between_attempts(more: More) -> set[str]:
    """Keys of forward actions that wait for another attempt: they certainly did nothing."""
    return {one.key for one in more.actions if one.known == "retrying" and not one.undoes}


def place_of(entries: bytes, start: bytes, size: int) -> int:
    """Where an entry that starts so stands among entries of `size` bytes; -1 if none does."""
    at = -1
    while (at := entries.find(start, at + 1)) >= 0:
        if at % size == 0:  # else it lies across two entries by chance
            return at
    return -1


def more_with(more: More, **changed: Any) -> More:
    """`more` with changes; the shared empty object again when nothing is left in it."""
    result = replace(more, **changed)
    return NOTHING_MORE if result == NOTHING_MORE else result


def park(definition: Definition, instance: Instance, event: EventRecord, reason: Reason) -> Step:
    """Park the instance as it was before the event, the event first in its queue."""
    instance = owing(instance, event)
    parked = Parked(reason.code.value, reason.text, fold_time(instance, event), (event.offset,))
    after = remembered(definition, instance, event, more=more_with(instance.more, parked=parked))
    return Step(Verdict.PARKED, after, reason=reason)


def refuse(instance: Instance | None, code: Code, text: str) -> Step:
    """Refuse: nothing changes, the bytes and the reason are kept."""
    return Step(Verdict.REFUSED, instance, reason=Reason(code, bounded_text(text)))


def deferred_of(event: EventRecord) -> Deferred:
    """An event as a deferred queue keeps it: with its payload (P28)."""
    return Deferred(
        event.offset, event.source, event.id, event.type, event.value, event.log_time_ms,
        event.identity, event.body, event.time, event.expected_state, event.expected_version,
        event.traceparent,
    )  # fmt: skip


def event_of(instance: Instance, kept: Deferred) -> EventRecord:
    """A deferred event as the record that it was."""
    return EventRecord(
        instance.tenant, instance.id, kept.source, kept.id, kept.type, kept.value, kept.offset,
        kept.log_time_ms, kept.identity, kept.body, kept.time, kept.expected_state,
        kept.expected_version, kept.traceparent,
    )  # fmt: skip


def raised(error: BaseException) -> str:
    """An exception as a reason: its class and message, made `plain`."""
    try:
        message = str(error)
    except Exception:  # the user's __str__ raised: its class is all that is known
        message = "(its message cannot be read)"
    return plain(f"{type(error).__name__}: {message}")


def plain(text: str) -> str:
    """A text alike in every process and installation, within its limit.

    Addresses, directories and control characters go: a replay elsewhere must write the same.
    """
    return bounded_text(_PATH.sub("…/", _ADDRESS.sub("0x…", _CONTROL.sub(" ", text))))


def remapped(visits: tuple[int, ...], old: Definition, new: Definition) -> tuple[int, ...]:
    """Visits per state in another version's order of states."""
    if new.limits.visits is None:
        return ()
    counted: Mapping[str, int] = dict(zip(old.states, visits, strict=False))
    return tuple(counted.get(state, 0) for state in new.states)
