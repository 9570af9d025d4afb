"""Schedules of a test, and the workflow whose instances they start."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kafka.worker.stage import Stage, header

from refold import ANY, Context, Event, Late, Schedule, Schedules, StateGraph
from refold.processors.definition import Workflow
from refold.processors.engine_events import OCCURRENCE, Occurrence
from refold.topics.specs import create, workflow_specs

DAILY, YEARLY = "30 1 * * *", "0 0 1 1 *"
NEW_YORK = "America/New_York"


class DayEnded(Event):
    day: str


class Day(Context):
    day: str = ""


def ended(due: datetime) -> DayEnded:
    return DayEnded(day=due.date().isoformat())


def close(_: Day, event: DayEnded) -> Day:
    return Day(event.day)


def closing_graph() -> StateGraph[Day]:
    made = StateGraph("closing", version=1, context=Day, initial="new", tenant="acme")
    made.on("new", DayEnded, to="closed")(close)
    made.final("closed", late={ANY: Late.RECORD})
    return made


def closing() -> Workflow:
    return Workflow("closing", [closing_graph()])


def daily(
    id_: str = "close",
    *,
    cron: str = DAILY,
    zone: str = NEW_YORK,
    catch_up: int = 1,
    paused: bool = False,
) -> Schedule:
    return Schedule(id_, cron, zone, "closing", ended, catch_up, paused=paused)


def nightly(*schedules: Schedule) -> Workflow:
    return Workflow("nightly", [Schedules("nightly", *schedules, tenant="acme")])


CLOSING_GRAPH = closing_graph()
CLOSING = closing()
SCHEDULES = Schedules("nightly", daily(), tenant="acme")
NIGHTLY = nightly(daily())
EVERY_YEAR = nightly(
    *(daily(f"s-{number}", cron=YEARLY, zone="UTC", catch_up=4) for number in range(12))
)
"""Twelve schedules that make good four years each."""


class Wall:
    """A wall clock that a test sets."""

    def __init__(self, at: str) -> None:
        self.set(at)

    def set(self, at: str) -> None:
        self.s = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()

    def forward(self, duration: timedelta) -> None:
        self.s += duration.total_seconds()

    def __call__(self) -> float:
        return self.s


def add_nightly(stage: Stage) -> None:
    """Create the topics of both workflows."""
    for name in ("nightly", "closing"):
        specs = workflow_specs(stage.namespace, name, [name], stage.partitions)
        create(stage.admin, specs)


def begun(stage: Stage) -> list[tuple[str, str]]:
    """(instance, event id) of every committed event that starts one, partition by partition."""
    return [
        (bytes(each.key() or b"").decode(), header(each, "ce_id"))
        for each in stage.committed("events", "closing")
    ]


def instances(stage: Stage) -> list[str]:
    """Instances that were begun, in order of their ids."""
    return sorted(instance for instance, _ in begun(stage))


def occurrences(stage: Stage) -> list[tuple[str, Occurrence]]:
    """Schedule and event of every occurrence that was written."""
    return [
        (bytes(each.key() or b"").decode(), OCCURRENCE.decode(bytes(each.value() or b"")))
        for each in stage.committed("events", "nightly")
        if header(each, "ce_type") == OCCURRENCE.name
    ]


def plan(stage: Stage, schedule: str = "close") -> dict[str, Any]:
    """What the row of a schedule shows; empty while there is none."""
    found: Sequence[Any] = stage.sql(
        "SELECT context || jsonb_build_object('state', state) FROM refold.workflow_instance"
        " WHERE workflow = 'nightly' AND instance_id = %s",
        schedule,
    )
    return dict(found[0][0]) if found else {}
