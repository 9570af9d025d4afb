"""Ringing: which timers of owned partitions are written with the next transaction (P26).

Law of this module: the wall clock of the owner decides when a timer is written and nothing else;
what it does is decided by the fold of its event. Written are so few at a time that other records
are not held up, and none whose partition cannot fold it.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from refold.processors.announcing import announcement, occurrence
from refold.processors.assignment import Assignment
from refold.processors.dues import Dues
from refold.processors.emission import Emission
from refold.processors.engine_events import TIMER, Rung
from refold.processors.horizon import Horizon
from refold.processors.instance import Instance, Timer
from refold.processors.lateness import Latenesses
from refold.processors.options import Options
from refold.processors.partition import Key, Name, Overlay, Partition
from refold.processors.schedules import declared
from refold.processors.triggers import NEXT
from refold.topics.headers import Headers
from refold.topics.records import event_headers
from refold.topics.times import rfc3339

GAP_S: Final = 0.02
"""Transactions with nothing but timers follow each other no faster: 50 a second are cheap."""
OCCURRENCES_MOST: Final = 50
"""Schedules of one transaction: after an outage of years each may cost 40 ms of calendar."""
LEAST_WAIT_S: Final = 0.001
"""Kafka's client counts in milliseconds."""


class Ringing:
    """Rings for one worker.

    Args:
        options: Settings.
        assignment: What is owned.
        horizon: Fills the lists of what is due soon.
        clock: Monotonic seconds.
        wall: Seconds since the epoch: when timers are due is told by it alone.
        timed: False where no workflow has timers or retries: nothing is ever looked at.
    """

    def __init__(
        self,
        options: Options,
        assignment: Assignment,
        horizon: Horizon,
        clock: Callable[[], float],
        wall: Callable[[], float],
        *,
        timed: bool,
    ) -> None:
        self.lateness = Latenesses()
        self._most = options.timer_records
        self._retry_s = options.retry_s
        self._assignment = assignment
        self._horizon = horizon
        self._clock = clock
        self._wall = wall
        self._timed = timed
        self._shares: dict[Name, int] = {}
        self._quiet_until_s = 0.0
        """Before it no transaction is made for timers alone."""
        self._paused_until_s = 0.0
        """Before it nothing rings: the last transaction that rang was aborted."""

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return int(self._wall() * 1000)

    def settle(self) -> None:
        """Keep the horizon ahead; between two batches."""
        if self._timed:
            self._horizon.settle(self._assignment.partitions, self.now_ms)

    def close(self) -> None:
        """End the thread of the horizon."""
        self._horizon.close()

    def wait_s(self, most_s: float, held_back: Callable[[], Collection[Name]]) -> float:
        """How long the loop may wait for records, at most `most_s`.

        Args:
            most_s: Where no timer is due before.
            held_back: Partitions that wait for something else.
        """
        if not self._timed:
            return most_s
        due = [each[1] for each in self._candidates(held_back())]
        if not due:
            return most_s
        wait_s = (min(due) - self.now_ms) / 1000
        pause_s = max(self._quiet_until_s, self._paused_until_s) - self._clock()
        return min(most_s, max(wait_s, pause_s, LEAST_WAIT_S))

    def due(self, held_back: Callable[[], Collection[Name]]) -> bool:
        """Whether a transaction is worth while for timers alone."""
        return self._timed and self.wait_s(1.0, held_back) <= LEAST_WAIT_S

    def plan(
        self,
        live: Sequence[Partition],
        held_back: Callable[[], Collection[Name]],
        careful: bool,
    ) -> list[Partition]:
        """Share out the next transaction's timers.

        Args:
            live: Partitions whose records it folds.
            held_back: Partitions that wait for something else.
            careful: One record or one timer a transaction (P12).

        Returns:
            Partitions without records that ring in it.
        """
        self._shares = {}
        now_s = self._clock()
        if not self._timed or now_s < self._paused_until_s or (careful and live):
            return []
        if not live and now_s < self._quiet_until_s:
            return []
        now_ms, others = self.now_ms, held_back()
        ripe = [each for each, due_ms in self._candidates(others) if due_ms <= now_ms]
        if careful or any(each.careful for each in ripe):
            ripe = [each for each in ripe if not each.careful] if live else ripe[:1]
        share = 1 if careful else max(1, self._most // max(1, len(ripe)))
        self._shares = {each.name: 1 if each.careful else share for each in ripe}
        taken = {each.name for each in live}
        return [each for each in ripe if each.name not in taken]

    def ring(self, partition: Partition, overlay: Overlay, emission: Emission) -> None:
        """Write what rings of a partition into the open transaction, behind its records.

        Raises:
            KafkaException: The producer is finished.
        """
        share, dues = self._shares.get(partition.name, 0), partition.dues
        if share == 0 or dues is None:
            return
        if dues.announce:
            self._announce(partition, dues, emission)
            return
        fresh, held, workflow = overlay.instances, partition.held, partition.workflow

        def look(key: Key) -> Instance | None:
            return fresh.get(key) or held.get(key)

        now_ms = self.now_ms
        most = min(share, self._left(dues))
        if workflow.schedules is not None:
            most = min(most, OCCURRENCES_MOST)
        volley = dues.choose(now_ms, most, look)
        for key, timer in volley.rung:
            tenant, instance = key
            if workflow.schedules is None or timer.name != NEXT:
                value, headers = timer_event(workflow.name, tenant, timer)
            else:
                value, headers = self._occurrence(partition, key, timer, look(key), now_ms)
            emission.ring(instance, value, headers, volley.delivered)

    def _announce(self, partition: Partition, dues: Dues, emission: Emission) -> None:
        """Write what is declared of this partition's schedules: the fold compares."""
        volley, now_ms = dues.announcing(), self.now_ms
        name, tenant = partition.workflow.name, partition.workflow.tenant
        for one in dues.announce:
            value, headers = announcement(name, tenant, one, partition.epoch, now_ms)
            emission.ring(one.id, value, headers, volley.delivered)

    def _occurrence(
        self, partition: Partition, key: Key, timer: Timer, record: Instance | None, now_ms: int
    ) -> tuple[bytes, Headers]:
        """The event of a schedule; one whose record is not in memory is announced: that loads it,
        and it is due still."""
        workflow, (tenant, instance) = partition.workflow, key
        found = declared(workflow, tenant, instance)
        if record is None and found is not None:
            return announcement(workflow.name, tenant, found, partition.epoch, now_ms)
        return occurrence(workflow, record, instance, tenant, timer, now_ms)

    def committed(self, partitions: Sequence[Partition]) -> None:
        """The transaction is committed: what it wrote is on the way."""
        if not self._shares:
            return
        now_ms = self.now_ms
        for partition in partitions:
            volley = None if partition.dues is None else partition.dues.open
            for _, timer in () if volley is None else volley.rung:
                self.lateness.add(partition.workflow.name, (now_ms - timer.due_ms) / 1000)
        self._quiet_until_s = self._clock() + GAP_S

    def rang(self, partition: Partition) -> bool:
        """Whether the open transaction has timers, or declarations, of a partition."""
        volley = None if partition.dues is None else partition.dues.open
        return volley is not None and (volley.announces or bool(volley.rung))

    def aborted(self, partitions: Sequence[Partition]) -> None:
        """The transaction is aborted: what it wrote was seen by nobody, and rings later."""
        for partition in partitions:
            if self.rang(partition):
                self._paused_until_s = self._clock() + self._retry_s
            if partition.dues is not None:
                partition.dues.forget()

    def _candidates(self, held_back: Collection[Name]) -> list[tuple[Partition, int]]:
        """Partitions that may ring, and when they have something to write."""
        found = []
        for partition in self._assignment.partitions.values():
            dues = partition.dues
            if dues is None or partition.silent or partition.position < dues.ready_at:
                continue
            due_ms = dues.write_ms
            if due_ms is not None and self._left(dues) > 0 and partition.name not in held_back:
                found.append((partition, due_ms))
        return found

    def _left(self, dues: Dues) -> int:
        """Timers that may ring before some of the last ones are folded (B044)."""
        return 2 * self._most - dues.on_the_way


def timer_event(workflow: str, tenant: str, timer: Timer) -> tuple[bytes, Headers]:
    """Value and headers of a timer's event; its time is when it was due.

    Args:
        workflow: Whose.
        tenant: The instance's.
        timer: As it is armed.
    """
    value = TIMER.encode(Rung(timer.id, timer.name, timer.due_ms))
    source, time = f"/refold/timer/{workflow}", rfc3339(timer.due_ms)
    return value, event_headers(timer.id, source, TIMER.name, tenant, time=time)
