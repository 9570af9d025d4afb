"""The graph of every schedule: one instance each, whose state says which occurrence is next.

Law of this module: pure, and the same for all schedules. What the user declares reaches it as
events alone, so that a changed declaration is no new version and a replay never asks for it.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from refold.processors.engine_events import Occurrence, Scheduled
from refold.processors.graph import StateGraph
from refold.processors.occurring import SKIP, START, UNDECLARED
from refold.processors.spec import Limits, TimerSpec
from refold.processors.status import RunStatus
from refold.processors.triggers import NEXT, OCCURRED, SCHEDULED
from refold.schemas.types import Context

KEPT: Final = timedelta(hours=1)
"""A schedule that nobody declared when it was due goes on where it was if it is declared again
within so long: a release may be rolled out, or back, worker by worker."""
AGAIN: Final = timedelta(minutes=1)
"""What could not be made is tried again after so long."""
DEDUP: Final = 64
"""Events that a schedule remembers: its own come in order, and each is armed once."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class Plan(Context):
    """What a schedule knows."""

    cron: str = ""
    zone: str = ""
    starts: str = ""
    """Workflow whose instances it starts."""
    catch_up: int = 1
    next: datetime | None = None
    """The next occurrence, as it was announced; None while paused."""
    local: str = ""
    """The same by the zone's clock; empty where the zone has changed since."""
    rules: str = ""
    """Version of the zones' rules by which it was calculated."""
    last: datetime | None = None
    """The last occurrence that was started; likewise how late."""
    late_ms: int = 0
    started: int = 0
    missed: int = 0
    """Occurrences that were not started, for they were too many or too late."""
    problem: str = ""
    """Why the next one could not be started yet."""

    @property
    def next_ms(self) -> int:
        """The next occurrence in milliseconds since the epoch; 0 without one."""
        return 0 if self.next is None else (self.next - _EPOCH) // _MS


def planning(name: str, tenant: str) -> StateGraph[Plan]:
    """The graph of a workflow of schedules.

    Args:
        name: Of the workflow.
        tenant: Of every schedule.
    """
    made = StateGraph(
        name,
        version=1,
        context=Plan,
        initial="new",
        tenant=tenant,
        dedup=DEDUP,
        limits=Limits(transitions=None, unchanged=None),
    )
    for state in ("new", "scheduled", "paused", "undeclared", "failing"):
        made.on(state, SCHEDULED, to=None if state == "paused" else "paused", guard=_pauses)(_rests)
    made.on("scheduled", SCHEDULED, guard=_stands)(_kept)
    made.on("undeclared", SCHEDULED, to="scheduled", guard=_is_back)(_kept)
    made.on("failing", SCHEDULED, to="scheduled")(_kept)
    for state in ("new", "scheduled", "paused", "undeclared"):
        made.on(state, SCHEDULED, to="scheduled")(_announced)
    made.spec.timers.append(TimerSpec("scheduled", NEXT, _due))
    made.on("scheduled", OCCURRED, to="scheduled", guard=_is_start)(_started)
    made.on("scheduled", OCCURRED, to="scheduled", guard=_is_skip)(_skipped)
    made.on("scheduled", OCCURRED, to="undeclared", guard=_is_undeclared)
    made.on("scheduled", OCCURRED, to="failing")(_failed)
    made.after("failing", AGAIN, to="scheduled", name="again")
    made.waits("scheduled", RunStatus.WAITING_TIMER)
    made.waits("failing", RunStatus.RETRYING)
    made.waits(("paused", "undeclared"), RunStatus.PAUSED)
    return made


def _due(plan: Plan) -> datetime:
    return _EPOCH if plan.next is None else plan.next


def _at(ms: int) -> datetime:
    return _EPOCH + ms * _MS


# what a declaration does


def _pauses(_: Plan, event: Scheduled) -> bool:
    return event.paused


def _stands(plan: Plan, event: Scheduled) -> bool:
    """The occurrence that is announced stands: the rule is the same, or it is due already."""
    return (plan.cron, plan.zone) == (event.cron, event.zone) or plan.next_ms <= event.at_ms


def _is_back(plan: Plan, event: Scheduled) -> bool:
    return event.at_ms - plan.next_ms <= KEPT // _MS


def _rests(plan: Plan, event: Scheduled) -> Plan:
    return _declared(plan, event, None, "", event.rules)


def _kept(plan: Plan, event: Scheduled) -> Plan:
    local = plan.local if plan.zone == event.zone else ""
    return _declared(plan, event, plan.next, local, plan.rules)


def _announced(plan: Plan, event: Scheduled) -> Plan:
    return _declared(plan, event, _at(event.next_ms), event.local, event.rules)


def _declared(plan: Plan, event: Scheduled, due: datetime | None, local: str, rules: str) -> Plan:
    return Plan(
        event.cron, event.zone, event.starts, event.catch_up, due, local, rules,
        plan.last, plan.late_ms, plan.started, plan.missed,
    )  # fmt: skip


# what an occurrence does


def _is_start(_: Plan, event: Occurrence) -> bool:
    return event.outcome == START


def _is_skip(_: Plan, event: Occurrence) -> bool:
    return event.outcome == SKIP


def _is_undeclared(_: Plan, event: Occurrence) -> bool:
    return event.outcome == UNDECLARED


def _started(plan: Plan, event: Occurrence) -> Plan:
    return Plan(
        plan.cron, plan.zone, plan.starts, plan.catch_up,
        _at(event.next_ms), event.local, event.rules,
        _at(event.due_ms), event.at_ms - event.due_ms, plan.started + 1, plan.missed,
    )  # fmt: skip


def _skipped(plan: Plan, event: Occurrence) -> Plan:
    return Plan(
        plan.cron, plan.zone, plan.starts, plan.catch_up,
        _at(event.next_ms), event.local, event.rules,
        plan.last, plan.late_ms, plan.started, plan.missed + event.skipped,
    )  # fmt: skip


def _failed(plan: Plan, event: Occurrence) -> Plan:
    return Plan(
        plan.cron, plan.zone, plan.starts, plan.catch_up, plan.next, plan.local, plan.rules,
        plan.last, plan.late_ms, plan.started, plan.missed, event.text,
    )  # fmt: skip
