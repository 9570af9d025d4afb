"""What is declared is written before anything rings, and again until it is committed."""

from typing import Any, cast

from tests.kafka.worker.nightly import daily, nightly
from tests.unit.processors.test_between_batches import assignment
from tests.unit.processors.test_dues import END, record, timer
from tests.unit.processors.test_keeping import partition_at
from tests.unit.processors.test_ringing import Clock, nobody, ringing

from refold.processors.announcing import of_partition
from refold.processors.dues import Dues
from refold.processors.instance import Timer
from refold.processors.partition import Overlay, Partition
from refold.processors.ringing import LEAST_WAIT_S, OCCURRENCES_MOST, Ringing
from refold.processors.triggers import NEXT


class Log:
    """An emission that keeps what is written; what it delivers follows the position."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.written: list[tuple[str, str]] = []

    def ring(self, instance: str, value: bytes, headers: Any, delivered: Any) -> None:
        self.written.append((instance, dict(headers)["ce_type"].decode()))
        delivered(self.offset)
        self.offset += 1


def owned(schedules: int, *, due: int = 0) -> tuple[Ringing, Partition]:
    """A partition with so many schedules that are declared, and so many timers that are due."""
    ours = assignment()
    workflow = nightly(*(daily(f"s-{each}") for each in range(schedules)))
    partition = partition_at(10)
    partition.workflow = workflow
    ours.partitions[partition.name] = partition
    partition.dues = Dues(0, end=END, announce=of_partition(workflow, 0, 1))
    overlay = partition.overlay()
    for each in range(due):
        made = record(f"gone-{each}", timer(f"{each}", 0))
        overlay.instances[made.tenant, made.id] = made
    partition.merge(overlay, 0.0, rows=False)
    return ringing(ours, Clock(), most=500), partition


def volley(made: Ringing, partition: Partition) -> list[tuple[str, str]]:
    log = Log(partition.position)
    made.plan([], nobody, careful=False)
    made.ring(partition, Overlay(partition.position, partition.digests), cast(Any, log))
    return log.written


def folded(partition: Partition, records: int) -> None:
    overlay = partition.overlay()
    overlay.position += records
    partition.merge(overlay, 0.0, rows=False)


def test_what_is_declared_is_written_at_once_and_nothing_rings_before_it_is_folded() -> None:
    made, partition = owned(2, due=1)
    assert made.wait_s(5.0, nobody) == LEAST_WAIT_S
    wanted = [("s-0", "refold.schedule"), ("s-1", "refold.schedule")]
    assert volley(made, partition) == wanted
    made.committed([partition])
    folded(partition, 0)
    assert volley(made, partition) == []
    folded(partition, 2)
    assert made.due(nobody) is False  # a transaction without records waits its turn
    cast(Clock, made._clock).s += 1
    assert volley(made, partition) == [("gone-0", "refold.timer")]


def test_what_was_aborted_is_written_again() -> None:
    made, partition = owned(1)
    assert volley(made, partition) == [("s-0", "refold.schedule")]
    assert made.rang(partition)
    made.aborted([partition])
    cast(Clock, made._clock).s += 10
    assert volley(made, partition) == [("s-0", "refold.schedule")]


def test_what_is_still_to_be_declared_is_not_overdue() -> None:
    _, partition = owned(1)
    assert partition.dues is not None
    assert partition.dues.next_ms is None
    assert partition.dues.overdue(1, 10) == 0


def test_schedules_are_announced_where_their_instances_are() -> None:
    workflow = nightly(*(daily(f"s-{each}") for each in range(50)))
    parts = [of_partition(workflow, number, 3) for number in range(3)]
    assert sorted(one.id for part in parts for one in part) == sorted(workflow.schedules or {})
    assert all(parts)


def test_few_schedules_go_with_one_transaction() -> None:
    """What an owner asks the calendar for takes time, in which other records wait."""
    made, partition = owned(0)
    assert partition.dues is not None
    overlay = partition.overlay()
    for each in range(2 * OCCURRENCES_MOST):
        one = record(f"gone-{each}", Timer(f"timer-{each}", NEXT, 0))
        overlay.instances[one.tenant, one.id] = one
    partition.merge(overlay, 0.0, rows=False)
    written = volley(made, partition)
    assert len(written) == OCCURRENCES_MOST
    assert {kind for _, kind in written} == {"refold.occurrence"}
