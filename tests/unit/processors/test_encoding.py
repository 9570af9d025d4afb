"""Snapshots of a cut are the same whoever encodes them, and in which pieces."""

from threading import Event, Thread

from refold.examples.order import order
from refold.processors.definition import Workflow
from refold.processors.digest import beginning
from refold.processors.encoding import SLICE_RECORDS, Encoding, snapshot_of
from refold.processors.instance import NOTHING_MORE, Instance
from refold.processors.jobs import CutJob
from refold.processors.saver import Saver
from refold.snapshots.model import Snapshot
from refold.snapshots.packing import Packing

WORKFLOW = Workflow("order", [order.build()])
RECORDS = [
    Instance(
        "acme", f"o-{n}", 1, "new", None, 1, 1, 0, n, n, n, "/shop", f"e{n}", n, b"", (),
        NOTHING_MORE,
    )
    for n in range(5 * SLICE_RECORDS + 7)
]  # fmt: skip


def job(records: list[Instance]) -> CutJob:
    return CutJob(
        topic="shop.order.events",
        partition=0,
        workflow=WORKFLOW,
        epoch=1,
        previous=0,
        marker=10,
        decisions=0,
        digests=beginning("t1"),
        counts={},
        activations=[],
        records=records,
    )


def alone() -> list[Snapshot]:
    return [snapshot_of(WORKFLOW, record) for record in RECORDS]


def packed_alone() -> bytes:
    return b"".join(map(Packing("order", 0).row, alone()))


def test_what_two_threads_encode_together_is_what_one_encodes_alone() -> None:
    encoding, hurry = Encoding(job(RECORDS)), Event()
    hurry.set()
    saver = Thread(target=encoding.finish, args=(hurry,))
    saver.start()
    while not encoding.complete.is_set():
        encoding.advance(3)
    saver.join()
    assert encoding.snapshots == alone()
    assert b"".join(encoding.packed) == packed_alone()


def test_a_saver_that_somebody_waits_for_encodes_what_the_loop_left() -> None:
    encoding, hurry = Encoding(job(RECORDS)), Event()
    encoding.advance(3)
    hurry.set()
    encoding.finish(hurry)
    assert encoding.snapshots == alone()
    assert b"".join(encoding.packed) == packed_alone()


def test_a_cut_without_records_is_complete_when_it_is_looked_at() -> None:
    encoding = Encoding(job([]))
    encoding.advance()
    assert encoding.complete.is_set()
    assert encoding.snapshots == []


def test_the_loop_encodes_cuts_in_their_order_until_none_is_left() -> None:
    saver = Saver(store=None)  # type: ignore[arg-type]  # never started
    saver.submit(job(RECORDS))
    saver.submit(job(RECORDS[:1]))
    first, second = saver._encodings
    while not first.complete.is_set():
        assert saver.encode()
        assert not second.snapshots
    assert saver.encode()
    assert second.complete.is_set()
    assert not saver.encode()
