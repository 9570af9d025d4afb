"""P12 and P11: records that end the process, a reducer that never returns, hand-overs that hang."""

from functools import partial
from subprocess import Popen

import pytest
from tests.kafka.worker.graphs import Counted, count, newer
from tests.kafka.worker.ports import Away, Held, before, changed
from tests.kafka.worker.stage import Stage, stage

from refold.schemas.errors import Code, ServerError
from refold.testing.servers import Kafka, OwnPostgres

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

COUNT = "tests.kafka.worker.graphs:count"


def has_ended(worker: Popen[bytes]) -> bool:
    return worker.poll() is not None


def suspicious(stage: Stage) -> None:
    """As if three owners had ended without progress: the next claim is a careful one."""
    stage.sql("UPDATE refold.workflow_partition SET takeovers = 3, released = false")


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(("number", "sign"), [(9, ""), (666, "Timeout")], ids=["kills", "hangs"])
def test_p12_a_record_that_ends_its_worker_twice_is_parked_and_the_others_go_on(
    one: Stage, number: int, sign: str
) -> None:
    """P12: marked before it is folded alone; the third worker decides instead of folding it.

    A reducer that never returns is ended by the watchdog, with its traceback in the log.
    """
    one.add_count()
    one.put(("first", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    suspicious(one)
    one.put(
        ("a", "1", Counted(number=1)),
        ("killer", "1", Counted(number=1)),
        ("killer", "2", Counted(number=number)),
        ("b", "1", Counted(number=2)),
        workflow="count",
    )
    for _ in range(2):
        ended = one.process(COUNT, watchdog_s=3.0, retry_s=0.1)
        one.until(partial(has_ended, ended), "the worker's end")
    last = one.process(COUNT, watchdog_s=3.0, retry_s=0.1)
    one.until_saved("count")
    one.stop(last)
    assert one.decided("count") == [(3, "parked", Code.SUSPECT)]
    assert one.states("count") == dict.fromkeys(("first", "a", "b", "killer"), "open")
    assert one.run_status("killer") == "parked"
    assert one.sent("count") == ["first/open", "a/open", "killer/open", "b/open"]
    assert one.sql("SELECT * FROM refold.workflow_suspect") == []
    if sign:
        first = (one.log / "worker-0.log").read_text()
        assert sign in first
        assert "in counted" in first, "the traceback names the reducer"


def test_p12_a_suspect_that_does_no_harm_is_cleared_and_folded(one: Stage) -> None:
    """P12: careful mode is left after good records; nothing is parked for having been there."""
    one.add_count()
    one.put(("first", "1", Counted(number=1)), workflow="count")
    one.fold(count)
    suspicious(one)
    one.put(*((f"n-{n}", "1", Counted(number=1)) for n in range(6)), workflow="count")
    one.fold(count)
    assert one.counts("count") == {"applied": 7}
    assert one.sql("SELECT * FROM refold.workflow_suspect") == []
    assert one.sql("SELECT takeovers FROM refold.workflow_partition") == [(0,)]


def test_p11_a_suspect_that_is_not_marked_yet_holds_up_its_own_partition_alone(two: Stage) -> None:
    """P11, P12: PostgreSQL hangs; the loop polls on, and the record waits until it is marked."""
    (name, other) = two.names(0, 2), two.names(1, 2)
    two.place(name[0], other[0])
    two.fold()
    two.sql("UPDATE refold.workflow_partition SET takeovers = 3, released = false"
            " WHERE partition = 0")  # fmt: skip
    two.place(name[1])
    held = Held()
    wrap = changed(store={"suspect": before(held)})
    with two.working(wrap=wrap, watchdog_s=300.0) as worker:
        two.until(held.reached.is_set, "a mark that hangs")
        two.place(other[1])
        two.until(lambda: two.marks() == {"p0": 1, "p1": 2}, "the other partition")
        since_s = worker.health.status.at_s
        two.until(lambda: worker.health.status.at_s > since_s + 2.0, "two seconds of polls")
        assert f"{name[1]}/reserving" not in two.sent()
        held.let_go()
        two.until_saved()
    assert len(two.sent()) == 4
    assert two.sql("SELECT * FROM refold.workflow_suspect") == []


def test_p11_a_fence_that_postgresql_does_not_note_holds_up_its_own_partition_alone(
    two: Stage,
) -> None:
    """P11, O6: what is found while folding is noted when PostgreSQL answers."""
    two.add_count()
    (first,), (other,) = two.names(0, 1), two.names(1, 1)
    two.put((first, "1", Counted(number=1)), workflow="count")
    two.fold(count)
    two.put((first, "2", Counted(number=2)), (other, "1", Counted(number=1)), workflow="count")
    held = Held()
    wrap = changed(store={"fence": before(held)})
    with two.working(newer, wrap=wrap, watchdog_s=300.0) as worker:
        two.until(held.reached.is_set, "a note that hangs")
        two.until(lambda: two.sent("count").count(f"{other}/open") == 1, "the other partition")
        since_s = worker.health.status.at_s
        two.until(lambda: worker.health.status.at_s > since_s + 2.0, "two seconds of polls")
        held.let_go()
        two.until_codes(worker, {0: Code.DEFINITION_MISSING, 1: ""}, "count")
        two.until(
            lambda: any(
                str(Code.DEFINITION_MISSING) in fence
                for (fence,) in two.sql("SELECT fence FROM refold.workflow_partition")
            ),
            "the note",
        )


@pytest.mark.crash
@pytest.mark.slow
def test_p11_a_stop_while_postgresql_is_frozen_comes_to_an_end(
    kafka: Kafka, own_postgres: OwnPostgres
) -> None:
    """P11: threads that a server never answers do not keep a worker that was told to stop."""
    server = own_postgres()
    with stage(kafka.bootstrap, server.dsn, 1) as here:
        here.add_count()
        worker = here.process(COUNT, watchdog_s=3.0, preflight_s=0.1)
        here.put(("a", "1", Counted(number=1)), workflow="count")
        here.until_saved("count")
        server.pause()
        try:
            for number in range(2, 5):
                here.put(("a", f"{number}", Counted(number=1)), workflow="count")
                here.until(lambda: len(here.sent("count")) == number, "a fold without it")  # noqa: B023
            worker.terminate()
            here.until(partial(has_ended, worker), "the end")
        finally:
            server.resume()
        here.fold(count)
        assert here.counts("count") == {"applied": 4}
        assert len(here.sent("count")) == 4


def test_p11_a_hand_over_does_not_wait_for_a_save_that_hangs(two: Stage) -> None:
    """P11: the successor gets its partition and replays; the late save is refused by its epoch."""
    names = [*two.names(0, 3), *two.names(1, 3)]
    held = Held()
    with two.working(wrap=changed(store={"save": before(held)}), snapshot_max_age_s=0.02) as first:
        two.place(*names)
        two.until(held.reached.is_set, "a save that hangs")
        two.until(
            lambda: sum(each.position for each in first.health.status.partitions) == 6,
            "all folded",
        )
        with two.working() as second:
            two.until(
                lambda: [each.position for each in second.health.status.partitions] == [3],
                "the successor's partition, folded",
            )
            held.let_go()
            two.until_saved()
    assert sorted(two.sent()) == sorted(f"{each}/reserving" for each in names)
    assert two.counts() == {"applied": 6}
    assert [row[1] for row in two.saved()["index"]] == [0, 1, 2, 0, 1, 2]


def test_checks_that_get_no_answer_are_made_again_and_end_nothing(one: Stage) -> None:
    """O6, O7: a broker that does not answer a periodic check is no reason to stop folding."""
    away = Away(3, TimeoutError("no answer"))
    made: list[int] = []

    def listed(*_: object, **__: object) -> None:
        if made:
            away()

    with one.working(wrap=changed(admin={"list_offsets": before(listed)}), preflight_s=0.1):
        one.place("o-1")
        one.until_saved()
        made.append(1)
        one.until(lambda: away.left == 0, "three checks without an answer")
        one.place("o-2")
        one.until_saved()
    assert len(one.sent()) == 2


def test_a_partition_is_taken_when_postgresql_has_come_back(one: Stage) -> None:
    """P6: without PostgreSQL no partition is taken: paused, polled, red with its code."""
    away = Away(10**6, ServerError(Code.POSTGRES_AWAY, "PostgreSQL is away.", "Wait."))
    one.place("o-1")
    with one.working(wrap=changed(store={"claim": before(away)})) as worker:
        one.until_codes(worker, {0: Code.POSTGRES_AWAY})
        assert one.sent() == []
        away.left = 0
        one.until_saved()
        one.until_codes(worker, {0: ""})
    assert one.sent() == ["o-1/reserving"]
