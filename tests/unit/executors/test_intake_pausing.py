"""When the intake reads, and when it does not: whatever the group does meanwhile."""

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import TopicPartition

from refold.executors.executor import Executor
from refold.executors.intake import WAITING_MOST, Intake
from refold.executors.model import Place
from refold.schemas.errors import Code, ServerError


class Line:
    """A consumer that gives nothing and remembers which partitions are paused."""

    def __init__(self) -> None:
        self.ours: set[int] = {0}
        self.paused: set[int] = set()
        self.next: Callable[[], None] = lambda: None

    def poll(self, _: float) -> None:
        happens, self.next = self.next, lambda: None
        happens()

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", each) for each in self.ours]

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self.paused |= {each.partition for each in places}

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self.paused -= {each.partition for each in places}


class Places:
    """The group."""

    topic = "t"

    def place(self, partition: int, position: int) -> Place:
        return Place(self.topic, partition, "", position)


class Waiting:
    """The claimer."""

    waiting = 0


class Away:
    """A ledger that takes nothing."""

    def plan(self, *_: Any, **__: Any) -> None:
        raise ServerError(Code.POSTGRES_AWAY, "away", "wait")


def test_a_rebalance_while_reading_stands_still_leaves_no_partition_paused() -> None:
    line, claimer = Line(), Waiting()
    intake = made(line, claimer)

    def another_comes() -> None:
        line.ours.add(1)
        intake._dropped([])

    claimer.waiting = WAITING_MOST + 1
    intake._turn()
    assert line.paused == {0}
    line.next = another_comes
    intake._turn()
    claimer.waiting = 0
    intake._turn()
    assert line.paused == set()


def test_what_is_held_of_a_partition_that_goes_is_left_to_who_gets_it() -> None:
    line = Line()
    intake = made(line, Waiting())
    held: Any = [Held(0), Held(1)]
    intake._held = held
    line.next = lambda: intake._dropped([0])
    intake._turn()
    assert [each.partition() for each in intake._held] == [1]


class Held:
    """A record that is no command."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return 7

    def topic(self) -> str:
        return "t"

    def key(self) -> None:
        return None

    def value(self) -> None:
        return None

    def headers(self) -> list[tuple[str, bytes]]:
        return []


def made(line: Line, claimer: Waiting) -> Intake:
    nothing: Any = None
    parts: tuple[Any, ...] = (line, Places(), Away(), nothing, nothing, nothing, claimer)
    intake = Intake(Executor("bank"), *parts)
    intake._stopping.wait = lambda timeout=None: True  # type: ignore[method-assign]  # no pause
    return intake
