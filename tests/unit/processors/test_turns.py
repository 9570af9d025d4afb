"""Recovering partitions are folded one after another, and none holds the others up."""

from tests.unit.processors.test_keeping import partition_at

from refold.processors.partition import Name, Partition
from refold.processors.turns import STUCK_S, Turns

BATCH = 10


class Tails:
    """Partitions with tails of given lengths, all waiting for their turn."""

    def __init__(self, *tails: int) -> None:
        self.now_s = 100.0
        self.turns = Turns(BATCH, lambda: self.now_s)
        self.partitions: dict[Name, Partition] = {}
        for number, tail in enumerate(tails):
            partition = partition_at(5)
            partition.number, partition.silent_to = number, 5 + tail
            self.partitions[partition.name] = partition
            self.turns.waiting.add(partition.name)

    def due(self, *held_back: int) -> list[int]:
        names = [self.partitions["shop.order.events", each].name for each in held_back]
        return [each.number for each in self.turns.due(self.partitions, names)]

    def fold(self, number: int, left: int) -> None:
        partition = self.partitions["shop.order.events", number]
        partition.position = partition.silent_to - left


def test_the_shortest_tail_is_folded_first_and_alone() -> None:
    tails = Tails(300, 100, 200)
    assert tails.due() == [1]
    assert tails.due() == []
    tails.fold(1, left=BATCH)
    assert tails.due() == []


def test_the_next_begins_when_less_than_a_batch_is_left() -> None:
    tails = Tails(300, 100, 200)
    tails.due()
    tails.fold(1, left=BATCH - 1)
    assert tails.due() == [2]
    tails.fold(1, left=0)
    tails.fold(2, left=0)
    assert tails.due() == [0]
    assert tails.turns.waiting == set()


def test_short_tails_share_a_batch() -> None:
    assert Tails(3, 4, 5, 100).due() == [0, 1, 2]


def test_equal_tails_go_by_number() -> None:
    assert Tails(50, 50, 50).due() == [0]


def test_a_partition_that_waits_for_its_load_holds_up_no_other_one() -> None:
    """O6: it keeps its turn, and the next has one beside it."""
    tails = Tails(100, 200, 300)
    assert tails.due() == [0]
    assert tails.due(0) == [1]
    assert tails.due() == []


def test_a_partition_that_brings_no_records_holds_up_no_other_one() -> None:
    """O6: its broker may be away."""
    tails = Tails(100, 200, 300)
    assert tails.due() == [0]
    tails.now_s += STUCK_S - 0.1
    assert tails.due() == []
    tails.now_s += 0.1
    assert tails.due() == [1]
    assert tails.due() == []


def test_a_tail_that_moves_is_not_stuck() -> None:
    tails = Tails(100, 200)
    tails.due()
    for left in (80, 60, 40):
        tails.now_s += STUCK_S - 0.1
        tails.fold(0, left)
        assert tails.due() == []


def test_the_fold_of_a_partition_begins_with_its_turn() -> None:
    """P19: what it makes is held back for so long from then on, not from its take."""
    tails = Tails(100, 200)
    tails.due()
    tails.now_s += 50.0
    tails.fold(0, left=0)
    tails.due()
    assert tails.partitions["shop.order.events", 1].taken_s == 150.0
