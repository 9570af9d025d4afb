"""One bad record, row or answer stops its own partition at most, and never the worker (O6)."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.kafka.worker.graphs import Counted, count, fixed
from tests.kafka.worker.ports import changed
from tests.kafka.worker.stage import Stage

from refold.processors.engine_events import Redrive
from refold.processors.worker import Worker
from refold.schemas.errors import Code

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def placed_on_both(stage: Stage, first: int, end: int) -> None:
    for number in range(2):
        stage.place(*stage.names(number, end)[first:])


def test_a_foreign_record_on_a_decision_log_fences_its_partition_alone(two: Stage) -> None:
    """P13: it may be a decision that was damaged, so it is not skipped; the others go on."""
    placed_on_both(two, 0, 2)
    two.fold()
    producer = two.producer()
    producer.produce(two.topic("rejected"), b"rubbish", b"k", 0)
    assert producer.flush(30) == 0
    placed_on_both(two, 2, 4)
    with two.working() as worker:
        two.until_codes(worker, {0: Code.UNDECODABLE, 1: ""})
        two.until(lambda: two.marks() == {"p0": 2, "p1": 4}, "the other partition")


@pytest.mark.parametrize("column", ["digest", "activations", "choice"])
def test_a_damaged_row_fences_its_partition_alone(two: Stage, column: str) -> None:
    """What does not load is damage with a cure, and no reason to end the process."""
    placed_on_both(two, 0, 2)
    two.fold()
    rubbish = "'{'" if column == "choice" else "'\\x0102'::bytea"
    two.sql(f"UPDATE refold.workflow_partition SET {column} = {rubbish} WHERE partition = 0")
    placed_on_both(two, 2, 4)
    with two.working() as worker:
        two.until_codes(worker, {0: Code.SNAPSHOT_DAMAGED, 1: ""})
        two.until(lambda: two.marks() == {"p0": 2, "p1": 4}, "the other partition")


@pytest.mark.parametrize("offset", [-5, -1, 1, 10**12])
def test_a_redrive_that_names_other_offsets_than_wait_is_refused_without_a_look(
    one: Stage, offset: int
) -> None:
    """P28: offsets of a record are not read from the log before they are known to be queued."""
    one.add_count()
    one.put(("c", "1", Counted(number=13)), workflow="count")
    one.act("c", Redrive(offsets=(offset,), version=0, who="ann", why="x"), workflow="count")
    one.put(("d", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    assert one.counts("count") == {"parked": 1, "refused": 1, "applied": 1}
    assert one.decided("count") == [
        (0, "parked", "REDUCER_RAISED"),
        (1, "refused", "REDRIVE_REFUSED"),
    ]


def test_p13_a_cut_after_a_commit_without_an_answer_does_not_know_its_decisions(one: Stage) -> None:
    """P13: the transaction parked a record; its end is not known, and the worker is stopped.

    The last cut stands before the transaction, so must its position on the decision log, or the
    successor asks its code again about what was decided.
    """
    one.add_count()
    one.put(("c", "1", Counted(number=1)), workflow="count")
    workers: list[Worker] = []
    commits: list[int] = []

    def unanswered(commit: Callable[..., Any]) -> Callable[..., Any]:
        def committed(*args: Any) -> Any:
            answer = commit(*args)
            commits.append(1)
            if len(commits) == 2:
                workers[0].stop()
                raise KafkaException(KafkaError(KafkaError._FENCED, "no answer", True))
            return answer

        return committed

    wrap = changed(producer={"commit_transaction": unanswered})
    with one.working(count, wrap=wrap, snapshot_max_age_s=3600, takeover_budget_s=3600) as worker:
        workers.append(worker)
        one.until(lambda: len(one.sent("count")) == 1, "the first command")
        one.put(("c", "2", Counted(number=13)), workflow="count")
        one.until(lambda: len(one.decided("count")) > 0, "the decision")
    assert one.sql("SELECT marker FROM refold.workflow_partition") == [(1,)]
    one.sql("UPDATE refold.workflow_definition SET fingerprint = %s", fixed.latest.fingerprint)
    with one.working(fixed) as worker:
        one.until_codes(worker, {0: ""}, "count")
        one.until_saved("count")
    assert one.run_status("c") == "parked"
    assert one.sent("count") == ["c/open"]


def test_a_fence_that_is_looked_at_again_and_again_is_no_crash_loop(one: Stage) -> None:
    """P12, O6: it is free while it is fenced, so nobody is fenced for it; the cure is seen soon."""
    one.place(*one.names(0, 2))
    one.fold()
    one.place(*one.names(0, 4)[2:])
    one.move_offset(3)

    def epoch() -> int:
        return int(one.sql("SELECT epoch FROM refold.workflow_partition")[0][0])

    before = epoch()
    with one.working(fence_retry_s=0.05) as worker:
        one.until(lambda: epoch() > before + 5, "several looks")
        one.until_codes(worker, {0: Code.OFFSETS_MOVED})
        one.choose(Code.OFFSETS_MOVED, "silent")
        one.until_saved()
        one.until_codes(worker, {0: ""})
    assert one.sql("SELECT takeovers FROM refold.workflow_partition") == [(0,)]
    assert len(one.sent()) == 3


def test_a_fenced_partition_that_goes_to_another_worker_costs_the_first_one_nothing(
    one: Stage,
) -> None:
    """O6: its row bears the id of a producer that others are folded with."""
    one.place(*one.names(0, 2))
    one.fold()
    one.place(*one.names(0, 4)[2:])
    one.move_offset(3)
    with one.working() as worker:
        one.until_codes(worker, {0: Code.OFFSETS_MOVED})
        one.until(
            lambda: one.sql("SELECT released FROM refold.workflow_partition") == [(True,)],
            "the row to be free",
        )
