"""`Local` actions in a rehearsal: their writes are there when they are done, and only then."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.unit.processors.trips import BookHotel, HotelBooked, HotelFull, Ordered, driver

from refold.executors.executor import Call, Executor
from refold.executors.outcome import Declined
from refold.executors.truth import Local
from refold.testing.rehearsal import Rehearsal

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(("free", "state"), [(1, "paying"), (0, "undone")])
def test_a_room_is_taken_with_its_booking_or_not_at_all(
    free: int, state: str, database: str
) -> None:
    executor = Executor("world")

    @executor.action(BookHotel, truth=Local())
    def book(_: BookHotel, call: Call, connection: psycopg.Connection[Any]) -> HotelBooked:
        connection.execute("INSERT INTO booking VALUES (%s)", (call.key,))
        taken = connection.execute("UPDATE room SET free = free - 1 WHERE free > 0")
        if not taken.rowcount:
            raise Declined(HotelFull())
        return HotelBooked("12")

    made = driver()
    made.send("t", Ordered(300))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE room (free int)")
        connection.execute("CREATE TABLE booking (key text PRIMARY KEY)")
        connection.execute("INSERT INTO room VALUES (%s)", (free,))
        acting = Rehearsal(made, executor, local=connection)
        acting.run(timedelta(minutes=1))
        assert made.state("t") == state
        assert connection.execute("SELECT count(*) FROM booking").fetchone() == (free,)
        assert connection.execute("SELECT free FROM room").fetchone() == (0,)
