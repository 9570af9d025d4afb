"""Rows, cuts and memory: P16, P20, freshness as watermarks, eviction, back-pressure."""

from functools import reduce

import pytest
from tests.kafka.worker.ports import Around, Away, Held, after, before, changed
from tests.kafka.worker.stage import Stage

from refold.examples.order.graph import Charged, OrderPlaced, Reserved
from refold.processors import rounds
from refold.schemas.errors import Code, ServerError

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def watcher(stage: Stage, seen: list[tuple[int, int]]) -> None:
    """Note a marker that passed the rows."""
    seen += [
        (int(marker), int(rows_to))
        for marker, rows_to in stage.sql("SELECT marker, rows_to FROM refold.workflow_partition")
        if marker > rows_to
    ]


def chained(changes: list[Around]) -> Around:
    """One change after the other."""
    return lambda call: reduce(lambda made, each: each(made), changes, call)


def test_p20_a_flush_that_fails_holds_back_the_cut_behind_it(one: Stage) -> None:
    """P20: S ≤ rows_to always, or a worker that dies now leaves a hole in the index."""
    passed: list[tuple[int, int]] = []
    away = Away(2)
    wrap = changed(store={"flush": before(away), "save": after(lambda: watcher(one, passed))})
    with one.working(wrap=wrap, freshness_s=0.02, snapshot_max_age_s=0.02):
        one.place(*(f"o-{n}" for n in range(5)))
        one.until(lambda: away.left == 0, "the refused flushes")
        one.until_saved()
    assert passed == []
    assert len(one.saved()["index"]) == 5


def test_p20_a_cut_does_not_overtake_a_slow_flush(one: Stage) -> None:
    """P20: a cut that falls due while an older flush is on its way waits for the next flush."""
    passed: list[tuple[int, int]] = []
    held = Held()
    wrap = changed(store={"flush": before(held), "save": after(lambda: watcher(one, passed))})
    with one.working(wrap=wrap, freshness_s=0.02, snapshot_max_age_s=1.5) as worker:
        one.place("o-1")
        one.until(held.reached.is_set, "the first flush")
        one.place("o-2")
        one.until(lambda: worker.health.status.partitions[0].position == 2, "the second record")
        since_s = worker.health.status.at_s
        one.until(lambda: worker.health.status.at_s > since_s + 2.0, "a cut that is due")
        held.let_go()
        one.until_saved()
    assert passed == []


@pytest.mark.parametrize("call", ["flush", "save"])
def test_p20_what_was_committed_without_an_answer_leaves_no_hole(one: Stage, call: str) -> None:
    """P7, P20: PostgreSQL is gone before it can be read back, and the log goes on meanwhile.

    The next flush is refused, for the rows stand further than the worker knows; a cut behind it
    must not be taken, or the rows between are missed by this owner and by every later one.
    """
    passed: list[tuple[int, int]] = []
    held = Held()
    unanswered = [True]

    def lost() -> None:
        if unanswered:
            held()
            unanswered.clear()
            raise ServerError(Code.POSTGRES_AWAY, "PostgreSQL is away.", "Wait.")

    changes = {"save": [after(lambda: watcher(one, passed))], "flush": []}
    changes[call].append(after(lost))
    wrap = changed(store={name: chained(each) for name, each in changes.items()})
    with one.working(wrap=wrap, freshness_s=0.02, snapshot_max_age_s=0.02) as worker:
        one.place("o-1")
        one.until(held.reached.is_set, "what is committed without an answer")
        one.place("o-2")
        one.until(lambda: worker.health.status.partitions[0].position == 2, "the next record")
        held.let_go()
        one.until_saved()
    assert passed == []
    assert [row[1] for row in one.saved()["index"]] == [0, 1]
    assert [row[2] for row in one.saved()["instances"]] == ["o-1", "o-2"]
    assert one.states() == dict.fromkeys(("o-1", "o-2"), "reserving")


def test_freshness_is_a_watermark_that_follows_without_any_cut(one: Stage) -> None:
    """P20: rows_to moves apart from S; the rows stand there while the marker has not moved."""
    with one.working(freshness_s=0.02, snapshot_max_age_s=3600, takeover_budget_s=3600):
        one.place("o-1", "o-2")
        one.until(
            lambda: one.sql("SELECT marker, rows_to FROM refold.workflow_partition") == [(0, 2)],
            "rows before the cut",
        )
        assert one.run_status("o-2") == "waiting_callback"
        assert one.states() == {}
    assert one.marks() == {"p0": 2}, "the last cut"


def test_a_kill_between_rows_and_cut_leaves_no_hole_and_no_double(one: Stage) -> None:
    """P20: silent replay from S compares what stands and writes from rows_to on."""
    one.place(*(f"o-{n}" for n in range(20)))
    with one.working(freshness_s=0.02, snapshot_max_age_s=3600, takeover_budget_s=3600):
        one.until(
            lambda: one.sql("SELECT rows_to FROM refold.workflow_partition") == [(20,)], "the rows"
        )
        one.keep()
        one.put(*((f"o-{n}", f"r-{n}", Reserved()) for n in range(20)))
    one.put_back()  # as the kill left it: rows of 20, marker 0, offsets behind all
    one.fold()
    assert [row[1] for row in one.saved()["index"]] == list(range(40))
    assert not any(row[11] for row in one.saved()["index"]), "a row is marked as doubled"
    assert len(one.sent()) == 40


def test_p16_few_instances_in_memory_give_the_same_as_many(one: Stage) -> None:
    """P16: clean instances are evicted and loaded again, dirty ones stay."""
    names = [f"o-{n}" for n in range(12)]
    with one.working(instances=2, worker={"batch_records": 5}) as worker:
        one.put(*((each, f"p{each}", OrderPlaced((), 1)) for each in names))
        one.until_saved()
        one.until(lambda: worker.health.status.partitions[0].instances <= 2, "the eviction")
        one.put(*((each, f"r{each}", Reserved()) for each in names))
        one.put(*((each, f"c{each}", Charged(receipt="r")) for each in reversed(names)))
        one.until_saved()
    small = one.saved()
    assert one.states() == dict.fromkeys(names, "done")
    assert len(one.sent()) == 24
    one.lose_everything()
    one.fold()
    assert one.saved() == small


def test_p16_what_a_slow_load_brought_is_folded_before_it_is_evicted(
    one: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P11, P16: a batch that needs more instances than memory shall hold is not loaded for ever."""
    monkeypatch.setattr(rounds, "LOAD_S", 0.0)  # every load is too slow to be waited for
    names = [f"o-{n}" for n in range(30)]
    one.place(*names)
    one.fold()
    loads: list[int] = []
    wrap = changed(store={"load": before(lambda *_: loads.append(1))})
    one.put(*((each, f"r{each}", Reserved()) for each in names))
    with one.working(wrap=wrap, instances=3, gather_s=0.0005) as worker:
        one.until_saved()
        one.until(lambda: worker.health.status.partitions[0].instances <= 3, "the eviction")
    assert one.states() == dict.fromkeys(names, "charging")
    assert len(loads) < len(names), "loaded again and again"


def test_p16_an_instance_whose_save_is_not_confirmed_is_not_evicted(one: Stage) -> None:
    """P16: while no cut comes through, memory holds everything, whatever the bound."""
    held = Held()
    with one.working(
        wrap=changed(store={"save": before(held)}), instances=1, snapshot_max_age_s=0.02
    ) as worker:
        one.place(*(f"o-{n}" for n in range(6)))
        one.until(held.reached.is_set, "the cut")
        one.put(("o-0", "r", Reserved()))
        one.until(lambda: worker.health.status.partitions[0].position == 7, "the next record")
        kept = worker.health.status.partitions[0].instances
        held.let_go()
        one.until_saved()
    assert kept == 6
    assert one.states()["o-0"] == "charging"


def test_a_partition_with_too_much_unsaved_waits_for_postgresql_and_goes_on(one: Stage) -> None:
    """Design 6: folded up to a bound while PostgreSQL takes nothing, then paused, then resumed."""
    held = Held()
    names = [f"o-{n}" for n in range(60)]
    with one.working(
        wrap=changed(store={"save": before(held), "flush": before(held)}),
        worker={"batch_records": 5},
        held_records=10,
        snapshot_max_age_s=0.02,
    ) as worker:
        one.place(*names)
        one.until(lambda: worker.health.status.partitions != (), "a status")
        one.until(lambda: worker.health.status.partitions[0].unsaved > 10, "the bound")
        one.until(lambda: worker._rounds.throttled != set(), "the pause")
        assert worker.health.status.partitions[0].position < 60
        held.let_go()
        one.until_saved()
    assert sorted(one.sent()) == sorted(f"{each}/reserving" for each in names)


def test_rows_that_were_switched_off_for_a_while_are_missed_aloud(
    one: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    """P20, O7: the marker went on without them; what is missing is said, with the cure."""
    one.place("o-1")
    one.fold()
    one.place("o-2")
    with one.working(rows=False):
        one.until(
            lambda: one.sql("SELECT marker FROM refold.workflow_partition") == [(2,)], "the marker"
        )
    one.place("o-3")
    capfd.readouterr()
    one.fold()
    told = "".join(capfd.readouterr())
    assert "rows are missing" in told
    assert [row[1] for row in one.saved()["index"]] == [0, 2]
