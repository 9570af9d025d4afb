"""Answers by rules: every way in which an action may end, in every order, without waiting."""

from datetime import timedelta
from itertools import product

import pytest
from tests.unit.processors.trips import (
    BookHotel,
    CancelHotel,
    Cancelled,
    HotelBooked,
    Ordered,
    Paid,
    Pay,
    Refund,
    driver,
    types,
)

from refold.processors.effects import Send
from refold.testing.answering import Answering, End, Ending, Rule

BOOKED = Ending(End.DONE, HotelBooked("12"))
ENDINGS = {
    "done": [Ending(End.DONE, Paid("r"))],
    "twice": [Ending(End.DONE, Paid("r"), times=2)],
    "late": [Ending(End.DONE, Paid("r"), after=timedelta(hours=2))],
    "failed": [Ending(End.FAILED)],
    "incurable": [Ending(End.FAILED, retry=False)],
    "unknown, then done": [
        Ending(End.UNKNOWN), Ending(End.DONE, Paid("r"), after=timedelta(minutes=5)),
    ],
    "unknown, then late": [
        Ending(End.UNKNOWN), Ending(End.DONE, Paid("r"), after=timedelta(hours=5)),
    ],
    "unknown, then not": [
        Ending(End.UNKNOWN), Ending(End.FAILED, retry=False, after=timedelta(minutes=5)),
    ],
    "unknown for ever": [Ending(End.UNKNOWN)],
    "silent": [Ending(End.SILENT)],
}  # fmt: skip


def test_a_trip_runs_to_its_end_by_rules() -> None:
    made = driver()
    made.send("t", Ordered(300))
    Answering(made, {BookHotel: BOOKED, Pay: Ending(End.DONE, Paid("r"))}).run()
    assert made.state("t") == "done"
    made.check_replay()


def test_a_rule_may_look_at_the_command_and_its_attempt() -> None:
    made = driver()
    made.send("t", Ordered(300))

    def second(_: Pay, send: Send) -> Ending:
        return Ending(End.DONE, Paid("r")) if send.attempt == 2 else Ending(End.FAILED)

    Answering(made, {BookHotel: BOOKED, Pay: second}).run()
    assert made.state("t") == "done"
    assert types(made).count("Pay") == 2


@pytest.mark.parametrize(("how", "cancelled"), [*product(ENDINGS, [None, 0, 90])])
def test_however_a_payment_ends_the_trip_is_done_or_everything_is_undone(
    how: str, cancelled: int | None
) -> None:
    """What the world has done is what the state says, whatever is late, twice or never said."""
    made = driver()
    made.send("t", Ordered(300))
    effects: dict[type, set[str]] = {
        Pay: set(),
        BookHotel: set(),
        Refund: set(),
        CancelHotel: set(),
    }

    def world(kind: type, endings: list[Ending]) -> Rule:
        def rule(_: object, send: Send) -> list[Ending]:
            if any(one.end is End.DONE for one in endings):
                effects[kind].add(send.key.rpartition(":")[0])
            return endings

        return rule

    done = [Ending(End.DONE)]
    answering = Answering(
        made,
        {
            BookHotel: world(BookHotel, [BOOKED]),
            Pay: world(Pay, ENDINGS[how]),
            Refund: world(Refund, done),
            CancelHotel: world(CancelHotel, done),
        },
    )
    if cancelled is not None:
        answering.run(timedelta(minutes=cancelled))
        made.send("t", Cancelled())
    answering.run()
    assert made.state("t") in ("done", "undone")
    if made.state("t") == "undone":
        assert effects[Pay] <= effects[Refund]
        assert effects[BookHotel] == effects[CancelHotel]
    else:
        assert effects[Pay]
        assert not effects[Refund]
    made.check_counts()
    made.check_replay()
