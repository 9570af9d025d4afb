"""Cuts and flushes: the marker never passes the rows (P20)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from refold.examples.order import order
from refold.processors.definition import Workflow
from refold.processors.digest import beginning
from refold.processors.encoding import Encoding
from refold.processors.jobs import CutJob, Done, FlushJob, ReleaseJob
from refold.processors.keeping import Keeper
from refold.processors.options import Options
from refold.processors.partition import Partition
from refold.processors.saver import Saver
from refold.schemas.errors import Code, ServerError
from refold.schemas.verdicts import Activate
from refold.topics.records import EventReader

OLDER, NEWER = (cast(Any, SimpleNamespace(tenant="acme", id="o-1", version=n)) for n in (1, 2))


class Given:
    """A saver that keeps what it is given."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def submit(self, job: Any) -> None:
        self.jobs.append(job)

    def kinds(self) -> list[str]:
        return [type(each).__name__ for each in self.jobs]


class Store:
    """A store whose first flush fails."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        self.away = True

    def flush(self, rows: Any) -> bool:
        if self.away:
            self.away = False
            raise ServerError(Code.POSTGRES_AWAY, "PostgreSQL is away.", "Wait.")
        self.saved.append("flush")
        return True

    def save(self, cut: Any) -> bool:
        self.saved.append("cut")
        return True


def partition_at(position: int) -> Partition:
    workflow = Workflow("order", [order.build()])
    return Partition(
        topic="shop.order.events",
        number=0,
        topic_id="t1",
        workflow=workflow,
        reader=EventReader("order", 1),
        epoch=1,
        position=position,
        silent_to=0,
        expected=None,
        digests=beginning("t1"),
        marker=0,
        rows_to=0,
        decided_from=0,
        decided_to=0,
        complete=True,
    )


def keeper(saver: Given) -> Keeper:
    options = Options(namespace="shop", group="shop.workers", name="w")
    return Keeper(options, cast(Saver, saver), lambda: 100.0)


def test_a_flush_goes_before_the_cut_and_reaches_as_far() -> None:
    saver = Given()
    keeper(saver).save(partition_at(10))

    assert saver.kinds() == ["FlushJob", "CutJob"]
    assert saver.jobs[0].rows_to == saver.jobs[1].marker == 10


def test_a_cut_waits_for_a_flush_on_its_way_that_ends_before_it() -> None:
    saver = Given()
    keeping, partition = keeper(saver), partition_at(10)
    keeping.save(partition)
    saver.jobs.clear()
    keeping._way(partition).cut = None
    partition.position = 20

    keeping.save(partition)

    assert saver.kinds() == []


def test_a_partition_is_given_back_without_a_cut_that_would_pass_the_rows() -> None:
    saver = Given()
    keeping, partition = keeper(saver), partition_at(10)
    keeping.save(partition)
    saver.jobs.clear()
    partition.position = 20

    keeping.release(partition)

    assert saver.kinds() == [ReleaseJob.__name__]


def test_a_cut_behind_a_flush_that_failed_fails_too() -> None:
    given = Given()
    keeper(given).save(partition_at(10))
    flush, cut = given.jobs
    assert isinstance(flush, FlushJob)
    assert isinstance(cut, CutJob)
    store = Store()
    saver = Saver(cast(Any, store))

    done = [saver._do(each) for each in (flush, Encoding(cut), flush, Encoding(cut))]

    assert [each.good for each in done] == [False, False, True, True]
    assert store.saved == ["flush", "cut"]
    assert done[1].error is done[0].error


class Standing(Store):
    """A store whose rows stand elsewhere than the worker knows: a COMMIT's answer was lost."""

    def flush(self, rows: Any) -> bool:
        return False


def test_a_cut_behind_a_flush_that_met_other_rows_is_not_written() -> None:
    """P20: the flush before it had been committed without an answer; the marker must not pass."""
    given = Given()
    keeping, partition = keeper(given), partition_at(10)
    keeping.save(partition)
    flush, cut = given.jobs
    store = Standing()
    saver = Saver(cast(Any, store))

    done = [saver._do(each) for each in (flush, Encoding(cut))]

    assert [each.good for each in done] == [False, False]
    assert store.saved == []
    assert not keeping.settle(done[0], partition), "the partition is to be taken again"
    taken_again = replace(cut, epoch=2)
    assert saver._do(Encoding(taken_again)).good, "a new epoch knows where the rows stand"


def saved_once(keeping: Keeper, partition: Partition, given: Given) -> CutJob:
    """Its only instance is on its way, and is folded again meanwhile."""
    partition.held = {("acme", "o-1"): OLDER}
    partition.dirty, partition.counts = dict(partition.held), {"applied": 10}
    keeping.save(partition)
    overlay = partition.overlay()
    overlay.position, overlay.counts = 20, {"applied": 10}
    overlay.instances = {("acme", "o-1"): NEWER}
    overlay.activations = [Activate(15, 1, "f", 1, "", 1)]
    partition.merge(overlay, 0.0, rows=True)
    cut = given.jobs[-1]
    assert isinstance(cut, CutJob)
    return cut


def test_a_cut_holds_what_stood_when_it_was_taken() -> None:
    """P15: it is encoded on another thread, while the fold goes on."""
    given = Given()
    cut = saved_once(keeper(given), partition_at(10), given)

    assert list(cut.records) == [OLDER]
    assert (cut.marker, cut.counts, list(cut.activations)) == (10, {"applied": 10}, [])


@pytest.mark.parametrize("good", [True, False])
def test_an_instance_that_changed_while_its_save_was_under_way_is_saved_as_it_is_now(
    *, good: bool
) -> None:
    """P15, P16: the newer record is dirty, whatever became of the older one's save."""
    given = Given()
    keeping, partition = keeper(given), partition_at(10)
    cut = saved_once(keeping, partition, given)
    error = None if good else ServerError(Code.POSTGRES_AWAY, "PostgreSQL is away.", "Wait.")
    for job in given.jobs:
        assert keeping.settle(Done(job, good, error, 0.0), partition)

    assert partition.dirty == partition.touched == {("acme", "o-1"): NEWER}
    assert partition.saving == {}
    assert partition.marker == (cut.marker if good else 0)
