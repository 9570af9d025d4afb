"""The horizon: it moves first and asks then, in pages, and believes no answer of another epoch."""

from collections.abc import Sequence
from concurrent.futures import wait
from typing import Any, cast

import pytest
from tests.unit.processors.test_dues import record, timer
from tests.unit.processors.test_keeping import partition_at

from refold.processors import horizon as module
from refold.processors.dues import Dues, Place
from refold.processors.horizon import Horizon
from refold.processors.partition import Name, Partition
from refold.schemas.errors import Code, ServerError
from refold.snapshots.model import Due, DueRow

NOW_MS = 1_000_000


class Index:
    """The due index of one partition."""

    def __init__(self, *rows: tuple[int, str]) -> None:
        self.rows = sorted((NOW_MS + due_ms, "acme", name) for due_ms, name in rows)
        self.epoch, self.rows_to = 1, 10
        self.asked: list[tuple[Place, int]] = []
        self.away = False

    def due(
        self, topic: str, partition: int, workflow: str, after: Place, until_ms: int, limit: int
    ) -> Due:
        self.asked.append((after, until_ms))
        if self.away:
            self.away = False
            raise ServerError(Code.POSTGRES_AWAY, "PostgreSQL did not answer.")
        found = [each for each in self.rows if each > after and each[0] <= until_ms][:limit]
        return Due(self.epoch, self.rows_to, [row_of(*each) for each in found])


def row_of(due_ms: int, tenant: str, name: str) -> DueRow:
    text = f'[{{"id":"timer-{name}","name":"{name}","due_ms":{due_ms},"attempt":1}}]'
    return DueRow(due_ms, tenant, name, text if name != "bad" else "{}")


class World:
    """A partition and its horizon of 100 seconds; time is what a test says."""

    def __init__(self, index: Index, *, position: int = 10) -> None:
        self.partition: Partition = partition_at(position)
        self.partition.rows_to, self.partition.epoch = 10, 1
        self.partition.dues = Dues(0)
        self.dropped: list[Name] = []
        self.now_s = 0.0
        self.horizon = Horizon(cast(Any, index), 100.0, 5.0, lambda: self.now_s, self._drop)

    def _drop(self, name: Name, why: str) -> None:
        self.dropped.append(name)

    @property
    def dues(self) -> Dues:
        assert self.partition.dues is not None
        return self.partition.dues

    def turn(self, times: int = 4) -> None:
        """Turns of the loop, each with the answer that the last one asked for."""
        for _ in range(times):
            now_ms = NOW_MS + int(self.now_s * 1000)
            self.horizon.settle({self.partition.name: self.partition}, now_ms)
            pages = [each.page for each in self.horizon._extensions.values() if each.page]
            wait(pages, 5)

    def rung(self, now_ms: int) -> Sequence[str]:
        volley = self.dues.choose(NOW_MS + now_ms, 100, self.partition.held.get)
        self.partition.merge(self.partition.overlay(), 0.0, rows=True)
        return [one.name for _, one in volley.rung]


def test_at_takeover_everything_up_to_the_horizon_is_listed() -> None:
    world = World(Index((-5_000, "past"), (50_000, "soon"), (100_001, "far")))
    world.turn()
    assert len(world.dues) == 2
    assert world.rung(60_000) == ["past", "soon"]


def test_it_is_extended_when_half_of_it_is_left_and_asks_for_the_new_part_only() -> None:
    index = Index((60_000, "a"), (120_000, "b"), (160_000, "c"))
    world = World(index)
    world.turn()
    world.now_s = 49.0
    world.turn()
    assert len(index.asked) == 1
    world.now_s = 51.0
    world.turn()
    assert len(index.asked) == 2
    assert index.asked[1][0][0] == NOW_MS + 100_000
    assert world.rung(200_000) == ["a", "b"]


def test_the_index_is_asked_only_when_rows_stand_behind_the_position_of_the_move() -> None:
    """What is folded after the move is listed by the fold, whatever the rows say."""
    index = Index((60_000, "a"))
    world = World(index, position=12)
    world.turn()
    assert index.asked == []
    overlay = world.partition.overlay()
    overlay.position = 13
    overlay.instances["acme", "new"] = record("new", timer("new", NOW_MS + 1_000))
    world.partition.merge(overlay, 0.0, rows=True)
    world.partition.rows_to = index.rows_to = 12
    world.turn()
    assert world.rung(60_000) == ["new", "a"]


def test_an_answer_that_did_not_come_is_asked_for_again_after_a_pause() -> None:
    index = Index((1_000, "a"))
    index.away = True
    world = World(index)
    world.turn()
    assert len(index.asked) == 1
    world.now_s = 5.0
    world.turn()
    assert world.rung(6_000) == ["a"]
    assert world.dropped == []


@pytest.mark.parametrize(("epoch", "rows_to"), [(2, 10), (1, 9)])
def test_a_page_of_another_epoch_or_of_lost_commits_drops_the_partition(
    epoch: int, rows_to: int
) -> None:
    index = Index((1_000, "a"))
    index.epoch, index.rows_to = epoch, rows_to
    world = World(index)
    world.turn(3)
    assert world.dropped == [world.partition.name]
    assert len(world.dues) == 0


def test_a_herd_is_listed_in_parts_and_rings_whole_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B044: memory is bounded whatever is due at once."""
    monkeypatch.setattr(module, "PAGE_ROWS", 3)
    monkeypatch.setattr(module, "LISTED_MOST", 6)
    names = [f"{number:02}" for number in range(20)]
    world = World(Index(*((5, name) for name in names)))
    found: list[str] = []
    for _ in range(9):
        world.turn(8)
        assert len(world.dues) <= 8
        found += world.rung(1_000)
    assert found == names


def test_a_row_whose_timers_do_not_load_hides_no_other() -> None:
    world = World(Index((1, "bad"), (2, "good")))
    world.turn()
    assert world.rung(10) == ["good"]


def test_a_partition_that_was_taken_anew_begins_with_a_horizon_of_its_own() -> None:
    index = Index((1_000, "a"))
    world = World(index)
    world.turn(1)
    world.partition = World(index).partition
    world.turn()
    assert world.rung(2_000) == ["a"]
