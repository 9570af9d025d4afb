"""What the client gives from before the position was folded: it is dropped, what follows is not."""

from types import SimpleNamespace
from typing import Any

from confluent_kafka import Message

from refold.processors.batch import Pair, past
from refold.schemas.errors import Code
from refold.schemas.verdicts import Reason, Verdict
from refold.topics.records import Fault

FAULT = Fault(Verdict.REFUSED, Reason(Code.BAD_KEY, "-"))


def run(*offsets: int) -> list[Pair]:
    return [(Message(topic="t", partition=0, offset=offset), FAULT) for offset in offsets]


def held(position: int) -> Any:
    return SimpleNamespace(position=position, number=0)


def test_records_before_the_position_are_dropped() -> None:
    assert past(held(3), run(0, 1, 2)) == []
    assert [pair[0].offset() for pair in past(held(2), run(0, 1, 2, 4))] == [2, 4]


def test_records_at_or_past_the_position_are_the_very_run() -> None:
    pairs = run(2, 3)

    assert past(held(2), pairs) is pairs
