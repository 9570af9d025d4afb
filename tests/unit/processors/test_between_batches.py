"""What comes back between two batches, when the partition is not what it was: loads, throttles."""

import gc
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.processors.test_keeping import Given, partition_at

from refold.processors.assignment import Assignment, Waiting
from refold.processors.decisions import Known, activations_of
from refold.processors.instance import Instance
from refold.processors.jobs import ReleaseJob
from refold.processors.keeping import Keeper
from refold.processors.loading import Fetched
from refold.processors.options import Options
from refold.processors.partition import Partition, Phase
from refold.processors.rounds import Rounds
from refold.processors.transaction import Transactor
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, FenceError, ServerError
from refold.schemas.verdicts import Activate
from refold.snapshots.model import PartitionRow

OPTIONS = Options(namespace="shop", group="shop.workers", name="w", held_records=2)
HERE = ("shop.order.events", 0)


class Consumer:
    """A consumer that keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.told.append(name)


class Unasked:
    """Everything else that a worker has: nothing of it is needed here."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked")


def assignment() -> Assignment:
    unasked = cast(Any, Unasked())
    keeper = Keeper(OPTIONS, unasked, lambda: 0.0)
    made = Assignment(OPTIONS, {}, unasked, keeper, unasked, lambda: 0.0)
    made.consumer = cast(Any, Consumer())
    return made


def rounds(ours: Assignment) -> Rounds:
    unasked = cast(Any, Unasked())
    keeper = Keeper(OPTIONS, unasked, lambda: 0.0)
    return Rounds(OPTIONS, ours, unasked, keeper, unasked, unasked, unasked, unasked, lambda: 0.0)


def told(ours: Assignment) -> list[str]:
    return cast(Any, ours.consumer).told  # type: ignore[no-any-return]


def loaded(partition: Partition) -> Future[Fetched]:
    load: Future[Fetched] = Future()
    record = cast(Instance, object())
    load.set_result(Fetched(partition.epoch, partition.marker, {("acme", "o-1"): record}))
    return load


def test_a_load_that_ends_after_its_partition_was_taken_anew_brings_nothing() -> None:
    """P16: another owner may have folded those instances between the two takes."""
    ours = assignment()
    ran = rounds(ours)
    before, now = partition_at(10), partition_at(20)
    ran._loads[HERE] = before, loaded(before)
    ours.partitions[HERE] = now
    ran.settle()
    assert now.held == {}
    assert not ran.busy
    assert told(ours) == ["seek", "resume"]


def test_a_load_that_ends_does_not_resume_a_partition_that_is_held_back() -> None:
    """Back-pressure holds until the saves have caught up, whatever else has ended."""
    ours = assignment()
    ran = rounds(ours)
    partition = partition_at(10)
    partition.events = [cast(Any, None)] * 3
    ours.partitions[HERE] = partition
    ran._loads[HERE] = partition, loaded(partition)
    ran.settle()
    assert ran.throttled == {HERE}
    assert told(ours) == ["pause", "seek"]
    partition.events = []
    ran.settle()
    assert told(ours) == ["pause", "seek", "seek", "resume"]


def test_a_fence_of_a_partition_that_is_not_ours_takes_nothing_from_its_owner() -> None:
    """P2: an error may be read in the very consume in which the partition goes away."""
    ours = assignment()
    ours.fence(HERE, FenceError(Code.OFFSETS_OUT_OF_RANGE, "It is gone."))
    assert ours.waiting == {}
    ours.waiting[HERE] = Waiting(Phase.TAKING)
    ours.fence(HERE, FenceError(Code.OFFSETS_OUT_OF_RANGE, "It is gone."))
    assert ours.waiting[HERE].phase is Phase.FENCED


def test_a_claim_that_comes_after_its_partition_went_is_given_back() -> None:
    """P4: or its next owner would fence this worker's producer, which is live elsewhere."""
    ours, given = assignment(), Given()
    cast(Any, ours)._saver = given
    take: Future[Any] = Future()
    take.set_running_or_notify_cancel()
    ours.waiting[HERE] = Waiting(Phase.TAKING, take=take)
    ours._forget(HERE)
    assert given.jobs == []
    row = SimpleNamespace(topic=HERE[0], partition=HERE[1], epoch=7)
    take.set_result(SimpleNamespace(row=row))
    assert given.jobs == [ReleaseJob(topic=HERE[0], partition=HERE[1], epoch=7)]


def test_an_activation_counts_from_behind_the_last_one_wherever_the_fold_goes_on() -> None:
    """P13: offsets were lost, and the log is folded again from before what was activated."""
    ours, partition = assignment(), partition_at(5)
    older = [Activate(0, 1, "x", 1, "", 1), Activate(8, 1, "y", 1, "", 1)]
    partition.activations = list(older)
    ours._activate(partition, None)
    assert partition.pending is not None
    assert [each.offset for each in partition.activations] == [0, 8, 9]
    row = cast(PartitionRow, SimpleNamespace(activations=msgspec.msgpack.encode(older)))
    read = activations_of(row, Known({}, [older[1], partition.pending], 0))
    assert read == partition.activations, "a replay would see another order"


class Away:
    """A producer whose broker does not answer."""

    def init_transactions(self, _timeout_s: float) -> None:
        raise ServerError(Code.KAFKA_AWAY, "Kafka is away.")


def test_producers_that_did_not_start_leave_no_threads_behind() -> None:
    """A broker may be away for days; each attempt makes a producer of its own (P4)."""
    before = set(threading.enumerate())
    for _ in range(5):
        transactor = Transactor(cast(Any, Away()), "id")
        with pytest.raises(ServerError):
            transactor.start()
        transactor.leave()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


class Waited(Future[Fetched]):
    """A load that never ends; waiting for it takes as long as one is ready to wait."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self._clock = clock

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._clock[0] += timeout or 0.0
        raise TimeoutError


def test_slow_loads_of_many_partitions_hold_the_loop_up_no_longer_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P11: a hundred partitions whose loads hang would outlast the watchdog, one by one."""
    clock = [100.0]
    monkeypatch.setattr("refold.processors.rounds.monotonic", lambda: clock[0])
    ours = assignment()
    ran = rounds(ours)
    cast(Any, ran)._loader = cast(Any, type("L", (), {"submit": lambda *_: Waited(clock)})())
    cast(Any, ran)._wait_until_s = clock[0] + 1.0
    record = EventRecord(
        "acme", "o-1", "/s", "1", "T", b"x", 1, 0, b"i", b"b", None, None, None, None
    )
    for number in range(100):
        partition = partition_at(1)
        partition.number, partition.complete = number, False
        assert not ran._loaded(partition, [(cast(Any, None), record)])
    assert clock[0] == 101.0
