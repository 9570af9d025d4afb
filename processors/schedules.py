"""`Schedules`: which instances the calendar starts, and what becomes of an occurrence.

Law of this module: a declaration is the owner's alone. Whoever owns a schedule's partition writes
down what is declared, what is due and what is next (`refold.processors.announcing`); the fold does
what stands there.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from refold.processors.calendar import Slot, cron_fault, local_of, rules_of, slots, zone_fault
from refold.processors.definition import Definition, Workflow
from refold.processors.engine_events import PREFIX, Occurrence, Scheduled
from refold.processors.instance import Instance, Timer
from refold.processors.occurring import FAILED, SKIP, START, UNDECLARED
from refold.processors.planned import Plan, planning
from refold.processors.records import raised
from refold.processors.sends import positional_count
from refold.processors.spec import Schedule
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, DefinitionError
from refold.schemas.limits import ID_BYTES, bounded_text, id_fault, name_fault

CATCH_UP_MOST: Final = 1_000
"""Occurrences that one event passes over, and that may be made good."""
SCHEDULES_MOST: Final = 10_000
"""Each is announced whenever its partition changes hands."""
EVENT_BYTES: Final = 100_000
"""Of the event that starts an instance: it is written twice, and says when and not what."""
_SUFFIX_BYTES: Final = len("-20261101T053000Z")
_EPOCH: Final = datetime(1970, 1, 1)
"""In UTC."""
_NEW_YEAR: Final = Slot(1_704_067_200_000, "")
"""2024 began: from here on the event of a schedule is tried."""


class Schedules:
    """A workflow whose instances are schedules: they start instances of other workflows.

    Args:
        name: Of the workflow and of its topics, as for `StateGraph`.
        schedules: What is declared, each with another id.
        tenant: Of the schedules, and of the instances that they start.
    """

    def __init__(self, name: str, *schedules: Schedule, tenant: str) -> None:
        self.name = name
        self.tenant = tenant
        self.schedules = schedules
        self._built: Definition | None = None

    def build(self) -> Definition:
        """Check what is declared; the same definition at each call.

        Raises:
            DefinitionError: The first thing that does not hold; names the schedule and the cure.
        """
        if self._built is None:
            found = self._checked()
            graph = planning(self.name, self.tenant)
            self._built = replace(graph.build(), schedules=found)
        return self._built

    def _checked(self) -> dict[str, Schedule]:
        fault = name_fault(self.tenant)
        if fault is not None:
            raise self._wrong(f"tenant {self.tenant!r} {fault}", "Choose another name.")
        if len(self.schedules) > SCHEDULES_MOST:
            what = f"{len(self.schedules)} schedules are declared"
            raise self._wrong(what, f"Declare {SCHEDULES_MOST} at most in one workflow.")
        found: dict[str, Schedule] = {}
        for one in self.schedules:
            for what, cure in _faults(one):
                raise self._wrong(f"schedule {one.id!r}: {what}", cure)
            if found.setdefault(one.id, one) is not one:
                raise self._wrong(f"schedule {one.id!r} is declared twice", "Declare it once.")
        return found

    def _wrong(self, what: str, cure: str) -> DefinitionError:
        return DefinitionError(Code.DEFINITION_INVALID, f"{self.name}: {what}.", cure)


def _faults(one: Schedule) -> Iterator[tuple[str, str]]:
    """(what does not hold, the cure), the first one first."""
    fault = id_fault(one.id, ID_BYTES - _SUFFIX_BYTES) if type(one.id) is str else "is no text"
    if fault is not None:
        yield f"its id {fault}", "Choose another id; the time is added to it."
    fault = cron_fault(one.cron)
    if fault is not None:
        yield f"cron {one.cron!r} {fault}", "Write it as in '30 1 * * MON-FRI'."
    fault = zone_fault(one.zone)
    if fault is not None:
        cure = "Name a zone of the IANA database, such as 'Europe/Berlin' or 'UTC'."
        yield f"zone {one.zone!r} {fault}", cure
    fault = name_fault(one.start) if type(one.start) is str else "is no text"
    if fault is not None:
        yield f"start {one.start!r} {fault}", "Name the workflow that is to be started."
    if type(one.catch_up) is not int or not 1 <= one.catch_up <= CATCH_UP_MOST:
        cure = f"Give 1 to {CATCH_UP_MOST}; `within` says that late ones are not started."
        yield f"catch_up={one.catch_up!r} is out of range", cure
    if one.within is not None and not (
        isinstance(one.within, timedelta) and one.within > timedelta(0)
    ):
        yield f"within={one.within!r} is no time", "Give a timedelta above zero, or leave it out."
    if not callable(one.event) or positional_count(one.event) not in (1, None):
        cure = "Give a function that makes the event from the datetime at which it is due."
        yield "its event is no function of one parameter", cure
    else:
        fault = _made(one, next(slots(one.cron, one.zone, _NEW_YEAR)).ms)[2]
        if fault:
            cure = "Let it return an event of the workflow that is started, for any datetime."
            yield f"its event {fault}", cure


# what becomes of an occurrence


def source_of(workflow: str) -> str:
    """The source of what owners write about schedules."""
    return f"/refold/schedule/{workflow}"


def declared(workflow: Workflow, tenant: str, instance: str) -> Schedule | None:
    """The schedule as it is declared here; None if it is not."""
    return (workflow.schedules or {}).get(instance) if tenant == workflow.tenant else None


def scheduled(schedule: Schedule, now_ms: int) -> Scheduled:
    """What is declared, and which occurrence is next."""
    coming = next(slots(schedule.cron, schedule.zone, Slot(now_ms, "")))
    return Scheduled(
        schedule.cron, schedule.zone, schedule.start, schedule.catch_up, schedule.paused, now_ms,
        coming.ms, coming.local, rules_of(schedule.zone),
    )  # fmt: skip


def due(
    schedule: Schedule | None, record: Instance | None, timer: Timer, now_ms: int
) -> Occurrence:
    """What becomes of the occurrence that is announced, and which one is next.

    Args:
        schedule: As declared; None if it is not.
        record: The schedule's record.
        timer: As it is armed.
        now_ms: The owner's wall clock.
    """
    plan = None if record is None else record.context
    if schedule is None or not isinstance(plan, Plan):
        return _occurrence(timer, timer.due_ms, now_ms, UNDECLARED)
    here = Slot(plan.next_ms, plan.local if plan.zone == schedule.zone else "")
    try:
        wanted, skipped, following = chosen(schedule, here, now_ms)
        rules = rules_of(schedule.zone)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # rules of zones that are gone, or broken: told, tried again
        return _failure(timer, here.ms, now_ms, f"its rule has no next one: {raised(error)}")
    known = {"next_ms": following.ms, "local": following.local, "rules": rules}
    if not wanted:
        return _occurrence(timer, here.ms, now_ms, SKIP, skipped=skipped, **known)
    kind, value, fault = _made(schedule, here.ms)
    if fault:
        return _failure(timer, here.ms, now_ms, f"its event {fault}")
    return _occurrence(
        timer, here.ms, now_ms, START, workflow=schedule.start,
        instance=instance_id(schedule.id, here.ms), type=kind, value=value, **known,
    )  # fmt: skip


def chosen(schedule: Schedule, here: Slot, now_ms: int) -> tuple[bool, int, Slot]:
    """Whether an occurrence is started, else how many are passed over, and which one is next.

    Of those that are due by now, the latest `catch_up` are started, none later than `within`.
    """
    known, following = [here], None
    for slot in slots(schedule.cron, schedule.zone, here):
        if slot.ms > now_ms or len(known) > CATCH_UP_MOST:
            following = slot
            break
        known.append(slot)
    if following is None:
        raise ValueError("the rule has no further occurrence")
    within_ms = None if schedule.within is None else schedule.within // timedelta(milliseconds=1)
    fresh = [one for one in known if within_ms is None or now_ms - one.ms <= within_ms]
    first = fresh[-schedule.catch_up :][0] if fresh else following
    if first is here:
        return True, 0, known[1] if len(known) > 1 else following
    return False, known.index(first) if fresh else len(known), first


def instance_id(schedule: str, due_ms: int) -> str:
    """Id of the instance that an occurrence starts: `close-the-day-20261101T053000Z`."""
    return f"{schedule}-{_EPOCH + timedelta(milliseconds=due_ms):%Y%m%dT%H%M%SZ}"


def _made(schedule: Schedule, due_ms: int) -> tuple[str, bytes, str]:
    """Type and value of the event that starts an instance, and what is wrong with it, if it is."""
    try:
        fact = schedule.event(local_of(due_ms, schedule.zone))
        codec = codec_of(type(fact))
        value = codec.encode(fact)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the user's function raised, or gave something else
        return "", b"", f"cannot be made: {raised(error)}"
    if codec.name.startswith(PREFIX):
        return "", b"", f"is of type {codec.name}, the engine's own"
    if len(value) > EVENT_BYTES:
        return "", b"", f"has {len(value)} bytes, allowed are {EVENT_BYTES}"
    return codec.name, value, ""


def _failure(timer: Timer, due_ms: int, now_ms: int, why: str) -> Occurrence:
    return _occurrence(timer, due_ms, now_ms, FAILED, text=bounded_text(why))


def _occurrence(timer: Timer, due_ms: int, now_ms: int, outcome: str, **given: Any) -> Occurrence:
    nothing: dict[str, Any] = {
        "skipped": 0, "next_ms": 0, "local": "", "rules": "", "workflow": "", "instance": "",
        "type": "", "value": b"", "text": "",
    }  # fmt: skip
    return Occurrence(
        id=timer.id, name=timer.name, due_ms=due_ms, at_ms=now_ms, outcome=outcome,
        **(nothing | given),
    )  # fmt: skip
