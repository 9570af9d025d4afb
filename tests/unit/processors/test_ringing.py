"""Which timers go with the next transaction: few at a time, and none that could not be folded."""

from typing import Any, cast

import msgspec
from tests.unit.processors.test_between_batches import OPTIONS, assignment
from tests.unit.processors.test_dues import END, record, timer
from tests.unit.processors.test_keeping import partition_at

from refold.processors.assignment import Assignment
from refold.processors.dues import Dues
from refold.processors.lateness import BUCKETS_S, Latenesses
from refold.processors.partition import Overlay, Partition
from refold.processors.ringing import GAP_S, LEAST_WAIT_S, Ringing, timer_event
from refold.schemas.envelope import EventRecord
from refold.topics.records import EventReader


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class Log:
    """An emission that keeps what rang."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def ring(self, instance: str, value: bytes, headers: Any, delivered: Any) -> None:
        self.rung.append(instance)
        delivered(1_000 + len(self.rung))


def ringing(ours: Assignment, clock: Clock | None = None, *, most: int = 4) -> Ringing:
    options = msgspec.structs.replace(OPTIONS, timer_records=most)
    clock = clock or Clock()
    return Ringing(options, ours, cast(Any, None), clock, clock, timed=True)


def waiting(ours: Assignment, instances: int, *, number: int = 0, due_ms: int = 0) -> Partition:
    """A partition of so many instances, each with a timer that is due."""
    partition = partition_at(10)
    partition.number = number
    ours.partitions[partition.name] = partition
    partition.dues = Dues(0, end=END)
    overlay = partition.overlay()
    for each in range(instances):
        made = record(f"i-{number}-{each}", timer(f"{number}-{each}", due_ms))
        overlay.instances[made.tenant, made.id] = made
    partition.merge(overlay, 0.0, rows=False)
    return partition


def nobody() -> tuple[()]:
    return ()


def volley(made: Ringing, partition: Partition) -> list[str]:
    log = Log()
    made.ring(partition, Overlay(partition.position, partition.digests), cast(Any, log))
    return log.rung


def test_a_transaction_has_so_many_timers_at_most_and_partitions_share_them() -> None:
    ours = assignment()
    first, second = waiting(ours, 9), waiting(ours, 9, number=1)
    made = ringing(ours)
    assert made.plan([], nobody, careful=False) == [first, second]
    assert [len(volley(made, each)) for each in (first, second)] == [2, 2]


def test_a_partition_with_records_rings_behind_them_and_is_not_named_twice() -> None:
    ours = assignment()
    partition = waiting(ours, 2)
    made = ringing(ours)
    assert made.plan([partition], nobody, careful=False) == []
    assert len(volley(made, partition)) == 2


def test_no_more_are_on_the_way_than_two_transactions_hold() -> None:
    """B044: other records wait behind so many at most, whatever is due at once."""
    ours, clock = assignment(), Clock()
    partition = waiting(ours, 20)
    made = ringing(ours, clock)
    for expected in (4, 4, 0):
        clock.s += 1
        made.plan([], nobody, careful=False)
        assert len(volley(made, partition)) == expected
        made.committed([partition])
        partition.merge(partition.overlay(), 0.0, rows=False)
    assert not made.due(nobody)
    assert made.wait_s(5.0, nobody) == 5.0


def test_nothing_rings_before_what_stood_on_the_log_at_takeover_is_folded() -> None:
    """P26: an earlier owner may have written those very timers."""
    ours = assignment()
    partition = waiting(ours, 1)
    assert partition.dues is not None
    partition.dues.ready_at = partition.position + 1
    made = ringing(ours)
    assert not made.due(nobody)
    assert made.plan([], nobody, careful=False) == []
    partition.position += 1
    assert made.plan([], nobody, careful=False) == [partition]


def test_nothing_rings_where_records_cannot_be_folded() -> None:
    ours = assignment()
    partition = waiting(ours, 1)
    made = ringing(ours)
    assert made.plan([], lambda: {partition.name}, careful=False) == []
    partition.silent_to = partition.position + 1
    assert made.plan([], nobody, careful=False) == []


def test_careful_mode_writes_one_timer_alone() -> None:
    """P12: with records it has enough to do; without, timers must come out of it too."""
    ours, clock = assignment(), Clock()
    first, second = waiting(ours, 3), waiting(ours, 3, number=1)
    made = ringing(ours, clock)
    assert made.plan([first], nobody, careful=True) == []
    assert volley(made, first) == []
    assert made.plan([], nobody, careful=True) == [first]
    assert len(volley(made, first)) == 1
    assert volley(made, second) == []
    made.aborted([first])
    clock.s, first.careful = 9.0, 5
    assert made.plan([second], nobody, careful=False) == []
    assert (len(volley(made, first)), len(volley(made, second))) == (0, 3)


def test_an_abort_makes_a_pause_and_loses_nothing() -> None:
    ours, clock = assignment(), Clock()
    partition = waiting(ours, 2)
    made = ringing(ours, clock)
    made.plan([], nobody, careful=False)
    assert len(volley(made, partition)) == 2
    assert made.rang(partition)
    made.aborted([partition])
    assert made.plan([], nobody, careful=False) == []
    assert made.wait_s(5.0, nobody) == OPTIONS.retry_s
    clock.s += OPTIONS.retry_s
    made.plan([], nobody, careful=False)
    assert len(volley(made, partition)) == 2
    assert made.lateness.status() == ()


def test_transactions_for_timers_alone_keep_a_distance() -> None:
    ours, clock = assignment(), Clock()
    partition = waiting(ours, 9)
    made = ringing(ours, clock)
    made.plan([], nobody, careful=False)
    volley(made, partition)
    made.committed([partition])
    assert not made.due(nobody)
    assert made.wait_s(5.0, nobody) == GAP_S
    assert made.plan([], nobody, careful=False) == []
    partition.merge(partition.overlay(), 0.0, rows=False)
    assert made.plan([partition], nobody, careful=False) == []
    assert len(volley(made, partition)) == 4


def test_the_loop_waits_until_the_next_timer_is_due() -> None:
    ours, clock = assignment(), Clock()
    waiting(ours, 1, due_ms=250)
    made = ringing(ours, clock)
    assert made.wait_s(5.0, nobody) == 0.25
    assert made.wait_s(0.1, nobody) == 0.1
    clock.s = 7.0
    assert made.wait_s(5.0, nobody) == LEAST_WAIT_S


def test_what_was_written_is_counted_by_its_lateness() -> None:
    ours, clock = assignment(), Clock()
    partition = waiting(ours, 3)
    clock.s = 0.2
    made = ringing(ours, clock)
    made.plan([], nobody, careful=False)
    volley(made, partition)
    made.committed([partition])
    (found,) = made.lateness.status()
    assert found.counts[BUCKETS_S.index(0.25)] == sum(found.counts) == 3
    assert round(found.sum_s, 6) == 0.6


def test_a_timer_that_is_early_by_a_clock_that_stepped_back_counts_as_not_late() -> None:
    counts = Latenesses()
    counts.add("w", -5.0)
    (found,) = counts.status()
    assert (found.counts[0], found.sum_s) == (1, 0.0)


def test_the_event_of_a_timer_is_read_as_the_engines_own() -> None:
    value, headers = timer_event("wait", "acme", timer("t", 1_500))
    read = EventReader("wait", 1).read(cast(Any, Written(value, headers)), 0)
    assert isinstance(read, EventRecord)
    assert (read.type, read.id, read.source) == ("refold.timer", "timer-t", "/refold/timer/wait")
    assert (read.tenant, read.time) == ("acme", "1970-01-01T00:00:01.500Z")


class Written:
    """A record as a consumer gives it."""

    def __init__(self, value: bytes, headers: Any) -> None:
        self._value, self._headers = value, headers

    def headers(self) -> Any:
        return self._headers

    def key(self) -> bytes:
        return b"i"

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return 3

    def timestamp(self) -> tuple[int, int]:
        return 2, 9
