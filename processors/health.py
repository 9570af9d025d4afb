"""What the loop says about itself, for threads that may not touch it (P1).

Law of this module: the loop publishes an immutable status between batches; everybody else reads
the last one. A status that grows old is itself the alarm.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import msgspec
import structlog

from refold.processors.assignment import Assignment
from refold.processors.keeping import Keeper
from refold.processors.lateness import Lateness
from refold.processors.partition import Partition, Phase
from refold.processors.ringing import Ringing
from refold.processors.rounds import Rounds
from refold.schemas.errors import Code, RefoldError

_LOG = structlog.get_logger("refold.health")
SERVERS: Final = frozenset(
    {
        Code.KAFKA_AWAY,
        Code.KAFKA_REFUSED,
        Code.POSTGRES_AWAY,
        Code.POSTGRES_REFUSED,
        Code.REGISTRY_AWAY,
        Code.REGISTRY_REFUSED,
    }
)
"""Codes of servers that are waited for; what else stops a partition is told each time."""
BACK: Final = "back"
"""Name of the log event that ends what was told of such a code."""
EVERY_S: Final = 0.25
COUNTED_MOST: Final = 10_000
"""Overdue timers that are counted; more are as many."""
OLD_S: Final = 10.0
"""A loop that has not published for so long is not ready."""
DEAD_S: Final = 75.0
"""A loop that has not published for so long is not alive: the watchdog ends it before."""


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One assigned partition."""

    topic: str
    partition: int
    workflow: str
    phase: Phase
    epoch: int = 0
    position: int = 0
    silent_to: int = 0
    marker: int = 0
    rows_to: int = 0
    instances: int = 0
    unsaved: int = 0
    active: int = 0
    """Definition version that new instances begin with; 0 while that is not known."""
    lag: int = 0
    """Offsets between the position and the end of the log as last fetched: control records that
    stand at the end count, for a client cannot tell them before it reads on."""
    parked: int | None = None
    """Instances that wait for a person, as counted with the last check; None: not known."""
    timers: int = 0
    """Instances with a timer that is due within the horizon."""
    overdue: int = 0
    """Those whose timer is due by now, counted up to a bound."""
    overdue_s: float = 0.0
    """Since when the first of them is due."""
    alarm: str = ""
    """Code of what its take-over met and went on with; empty where there was nothing."""
    counts: dict[str, int] = {}
    code: str = ""
    """Code of what keeps it from being live or saved, empty if nothing."""
    text: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as of the last turn of its loop."""

    worker: str
    at_s: float
    partitions: tuple[PartitionStatus, ...] = ()
    transactions: int = 0
    aborts: int = 0
    takeover_s: float = 0.0
    unchecked: str = ""
    """Why the last check of what is owned could not be made; empty when it could."""
    lateness: tuple[Lateness, ...] = ()
    """How late timers were written, by workflow."""
    joined: bool = True
    """True while the group counts on this worker, with partitions or without."""

    def troubles(self, now_s: float) -> list[str]:
        """Why this worker is not ready, a sentence for each reason; empty when it is."""
        found = self.age(now_s, OLD_S)
        if not self.joined:
            found.append("it is not in the group: Kafka is away, or has not answered yet")
        if self.unchecked:
            found.append(f"its partitions cannot be checked: {self.unchecked}")
        for each in self.partitions:
            if each.phase != Phase.LIVE or each.code:
                why = f": {each.code} {each.text}" if each.code else ""
                found.append(f"{each.topic}[{each.partition}] is {each.phase}{why}")
        return found

    def age(self, now_s: float, most_s: float = DEAD_S) -> list[str]:
        """A reason if the loop has not turned for too long."""
        age_s = now_s - self.at_s
        return [f"the loop has not turned for {age_s:.0f} s"] if age_s > most_s else []


class Health:
    """Holds the last published status."""

    def __init__(self, worker: str, clock: Callable[[], float] = monotonic) -> None:
        self._worker = worker
        self._clock = clock
        self._away_s: dict[str, float] = {}
        """Server code → since when it is seen."""
        self._began_s: float | None = None
        """Since when a partition here is not live; None where all are."""
        self.status = Status(worker=worker, at_s=clock(), joined=False)

    def publish(
        self, assignment: Assignment, keeper: Keeper, rounds: Rounds, ringing: Ringing
    ) -> None:
        """Called by the loop after each turn; makes a new status a few times a second."""
        now_s = self._clock()
        if now_s - self.status.at_s < EVERY_S:
            return
        owned = list(assignment.partitions.values())
        now_ms = ringing.now_ms
        partitions = [
            _owned(each, keeper, assignment, rounds.trouble(each) or keeper.trouble(each), now_ms)
            for each in owned
        ]
        for (topic, number), waiting in assignment.waiting.items():
            fence = waiting.fence
            partitions.append(
                PartitionStatus(
                    topic=topic,
                    partition=number,
                    workflow=assignment.workflow(topic),
                    phase=waiting.phase,
                    code=str(fence.code) if fence else "",
                    text=fence.what if fence else "",
                )
            )
        unchecked = assignment.unchecked
        self.status = Status(
            worker=self._worker,
            at_s=now_s,
            partitions=tuple(partitions),
            transactions=rounds.transactions,
            aborts=rounds.aborts,
            takeover_s=keeper.takeover_s(owned),
            unchecked=f"{unchecked.code} {unchecked.what}" if unchecked else "",
            lateness=ringing.lateness.status(),
            joined=assignment.joined,
        )
        codes = {each.code for each in partitions} | {str(unchecked.code) if unchecked else ""}
        self._tell_back(now_s, codes & SERVERS)
        self._tell_live(now_s, partitions)

    def _tell_back(self, now_s: float, away: set[str]) -> None:
        """Say that a server is back; that it went was told by who met it first."""
        for code in away:
            self._away_s.setdefault(code, now_s)
        for code in self._away_s.keys() - away:
            _LOG.info(BACK, code=code, after_s=round(now_s - self._away_s.pop(code), 1))

    def _tell_live(self, now_s: float, partitions: Sequence[PartitionStatus]) -> None:
        """Say when everything that was assigned is live."""
        waiting = sum(each.phase != Phase.LIVE for each in partitions)
        if waiting and self._began_s is None:
            self._began_s = now_s
        elif partitions and not waiting and self._began_s is not None:
            after_s = round(now_s - self._began_s, 1)
            _LOG.info("live", owned=len(partitions), after_s=after_s)
            self._began_s = None


def _owned(
    partition: Partition,
    keeper: Keeper,
    assignment: Assignment,
    trouble: RefoldError | None,
    now_ms: int,
) -> PartitionStatus:
    dues = partition.dues
    due_ms = None if dues is None else dues.next_ms
    late = dues is not None and due_ms is not None and due_ms <= now_ms
    return PartitionStatus(
        topic=partition.topic,
        partition=partition.number,
        workflow=partition.workflow.name,
        phase=Phase.RECOVERING if partition.silent else Phase.LIVE,
        epoch=partition.epoch,
        position=partition.position,
        silent_to=partition.silent_to,
        marker=partition.marker,
        rows_to=partition.rows_to,
        instances=len(partition.held),
        unsaved=keeper.backlog(partition),
        active=partition.activations[-1].version if partition.activations else 0,
        lag=assignment.lag(partition),
        parked=assignment.parked.get(partition.name),
        timers=0 if dues is None else len(dues),
        overdue=dues.overdue(now_ms, COUNTED_MOST) if dues is not None and late else 0,
        overdue_s=(now_ms - due_ms) / 1000 if due_ms is not None and late else 0.0,
        alarm=assignment.alarms.get(partition.name, ""),
        counts=dict(partition.counts),
        code=str(trouble.code) if trouble else "",
        text=trouble.what if trouble else "",
    )
