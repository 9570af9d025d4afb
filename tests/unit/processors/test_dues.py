"""What is due soon in a partition: due order, nothing written twice, nothing lost by an abort."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from refold.processors.dues import BEFORE_ALL, Dues, Key, Volley
from refold.processors.instance import Instance, More, Parked, Timer

END = (1_000, chr(0x10FFFF), "")


def timer(name: str, due_ms: int) -> Timer:
    return Timer(f"timer-{name}", name, due_ms)


def record(instance: str, *timers: Timer, **more: Any) -> Instance:
    return Instance(
        "acme", instance, 1, "open", None, 1, 1, 0, 0, 0, 0, "/s", "e", 0, b"", (),
        More(timers=timers, **more),
    )  # fmt: skip


class Memory:
    """A partition's memory and its list, as the loop keeps them."""

    def __init__(self) -> None:
        self.dues = Dues(0, end=END)
        self.held: dict[Key, Instance] = {}
        self.position = 0

    def fold(self, *records: Instance, position: int | None = None) -> None:
        changed = {(each.tenant, each.id): each for each in records}
        self.held |= changed
        self.position = self.position + 1 if position is None else position
        self.dues.merged(changed, self.position, self.held.get)

    def ring(self, now_ms: int, most: int = 100, fresh: Mapping[Key, Instance] = {}) -> list[str]:
        volley = self.dues.choose(now_ms, most, lambda key: fresh.get(key) or self.held.get(key))
        return names(volley)

    def commit(self, last: int) -> None:
        assert self.dues.open is not None
        self.dues.open.delivered(last)
        self.dues.merged({}, self.position, self.held.get)


def names(volley: Volley) -> list[str]:
    return [one.name for _, one in volley.rung]


def test_timers_ring_in_due_order_and_not_before_they_are_due() -> None:
    memory = Memory()
    memory.fold(record("a", timer("late", 300), timer("soon", 100)), record("b", timer("mid", 200)))
    assert memory.dues.next_ms == 100
    assert memory.ring(99) == []
    assert memory.ring(250) == ["soon", "mid"]
    assert memory.dues.next_ms == 300


def test_a_timer_on_its_way_is_not_written_again_before_its_event_is_folded() -> None:
    """B044: whatever else is folded meanwhile."""
    memory = Memory()
    memory.fold(record("a", timer("t", 100)))
    assert memory.ring(100) == ["t"]
    memory.commit(last=7)
    memory.fold(record("a", timer("t", 100)), position=7)
    assert memory.ring(500) == []
    assert memory.dues.on_the_way == 1
    memory.fold(record("a"), position=8)
    assert memory.dues.on_the_way == 0
    assert memory.ring(500) == []
    assert len(memory.dues) == 0


def test_an_aborted_transaction_loses_no_timer() -> None:
    memory = Memory()
    memory.fold(record("a", timer("t", 100), timer("u", 150)), record("b", timer("v", 120)))
    assert memory.ring(200, most=2) == ["t", "u"]
    memory.dues.forget()
    assert memory.dues.on_the_way == 0
    assert memory.ring(200) == ["t", "u", "v"]


def test_what_an_aborted_transaction_made_of_an_instance_is_forgotten_too() -> None:
    """A record of the batch killed the timer; the batch is aborted: it is armed as before."""
    memory = Memory()
    memory.fold(record("a", timer("t", 100)))
    assert memory.ring(100, fresh={("acme", "a"): record("a")}) == []
    memory.dues.forget()
    assert memory.ring(100) == ["t"]


def test_a_parked_instance_does_not_ring_until_it_is_released() -> None:
    memory = Memory()
    waits = Parked("SUSPECT", "", 0, (3,))
    memory.fold(record("a", timer("t", 100), parked=waits))
    assert memory.ring(500) == []
    memory.fold(record("a", timer("t", 100)))
    assert memory.ring(500) == ["t"]


def test_an_event_that_was_refused_and_left_its_timer_armed_is_written_again() -> None:
    memory = Memory()
    memory.fold(record("a", timer("t", 100)))
    assert memory.ring(100) == ["t"]
    memory.commit(last=7)
    memory.fold(position=8)
    assert memory.ring(100) == ["t"]


def test_what_is_due_behind_the_horizon_is_not_listed() -> None:
    memory = Memory()
    memory.fold(record("a", timer("t", 1_001)))
    assert len(memory.dues) == 0
    assert memory.dues.next_ms is None


def test_a_row_of_an_instance_that_is_not_in_memory_rings_without_a_load() -> None:
    memory = Memory()
    memory.dues.found([(("acme", "a"), (timer("t", 100), timer("u", 900)))], memory.held.get)
    assert memory.ring(100) == ["t"]
    memory.commit(last=7)
    assert memory.dues.next_ms == 900


def test_memory_is_newer_than_a_row() -> None:
    memory = Memory()
    memory.fold(record("a", timer("new", 400)), record("b"))
    old = (timer("old", 100),)
    memory.dues.found([(("acme", "a"), old), (("acme", "b"), old)], memory.held.get)
    assert memory.ring(500) == ["new"]


def test_a_timer_armed_anew_rings_at_its_new_time_only() -> None:
    memory = Memory()
    memory.fold(record("a", timer("t", 100)))
    memory.fold(record("a", timer("u", 300)))
    memory.fold(record("a", timer("v", 100)))
    assert memory.ring(299) == ["v"]
    assert memory.ring(400) == []


def test_a_bounded_volley_leaves_the_rest_in_due_order() -> None:
    memory = Memory()
    memory.fold(*(record(f"i-{n}", timer(str(n), 100 + n)) for n in range(10)))
    assert memory.dues.overdue(104, 100) == 5
    assert memory.dues.overdue(200, 3) == 3
    assert memory.ring(200, most=4) == ["0", "1", "2", "3"]
    memory.commit(last=5)
    assert memory.ring(200, most=100) == ["4", "5", "6", "7", "8", "9"]


def test_dead_entries_do_not_pile_up() -> None:
    memory = Memory()
    for due_ms in range(5_000):
        memory.fold(record("a", timer("t", 1_000 - due_ms % 900)))
    assert len(memory.dues._heap) <= 1_100


def test_a_partition_that_was_just_taken_lists_nothing() -> None:
    dues = Dues(0)
    held: dict[Key, Instance] = {}
    dues.merged({("acme", "a"): record("a", timer("t", 1))}, 1, held.get)
    assert dues.end == BEFORE_ALL
    assert dues.next_ms is None


def test_the_volley_of_an_instance_with_many_timers_is_bounded_too() -> None:
    memory = Memory()
    many = record("a", *(timer(str(n), 10 + n) for n in range(6)))
    memory.fold(replace(many))
    assert memory.ring(100, most=4) == ["0", "1", "2", "3"]
    memory.commit(last=9)
    assert memory.ring(100, most=4) == ["4", "5"]
