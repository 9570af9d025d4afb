"""The executor of trips: it books, pays and undoes through three systems, each with its truth.

Hotel and bank know nothing of keys but can be asked what became of one; the airline does a key
once and answers a repeated one as it did the first time.
"""

import os
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from refold import Event
from refold.examples.travel.graph import (
    BookFlight,
    BookHotel,
    CancelFlight,
    CancelHotel,
    FlightBooked,
    FlightFull,
    HotelBooked,
    HotelFull,
    Paid,
    Pay,
    PaymentDeclined,
    Refund,
)
from refold.executors.executor import Call, Executor
from refold.executors.outcome import Accepted, Answer, Declined
from refold.executors.truth import ByKey, Queryable
from refold.testing.world import Outside, Refused, System
from refold.testing.world_server import RemoteWorld

DEADLINE_S = 2.0
VISIBLE_AFTER_S = 1.0
DAY_S = 86_400.0
ACCEPTED_S, POLL_S = 60.0, 1.0
"""So long may a system take over what it has only accepted; meanwhile it is asked so often."""

Told = Callable[[str], Event | None]
"""The event that tells of a reference; None: that it is done is enough."""


def nothing(_: str) -> None:
    """That it is done is enough."""


def executor_of(world: Outside) -> Executor:
    """An executor whose outside is this world."""
    executor = Executor("travel")
    hotel, flight, bank = map(world.system, ("hotel", "flight", "bank"))

    def act(
        name: str, command: type, system: System, told: Told = nothing, no: Event | None = None,
        *, undoes: type[Event] | None = None,
    ) -> None:  # fmt: skip
        """One command type: what it is called out there, who does it, and what it answers.

        What undoes something names it as the other side does: by its reservation, ticket, receipt.
        """
        truth = ByKey(DAY_S) if system is flight else asking(system, told)
        where = {hotel: "hotel", flight: "flight", bank: "bank"}[system]

        @executor.action(command, truth=truth, system=where, deadline_s=DEADLINE_S)
        def handle(command: Any, call: Call) -> Event | Accepted | None:
            done = call.forward_event(undoes) if undoes is not None else None
            values = asdict(command) | (asdict(done) if done is not None else {})
            call.before_send()
            try:
                reply = system.call(name, call.key, timeout_s=call.left_s, **values)
            except Refused:
                if no is None:
                    raise
                raise Declined(no) from None
            if reply.accepted:
                return Accepted(reply.reference, ACCEPTED_S)
            return told(reply.reference)

    act("book", BookHotel, hotel, HotelBooked, HotelFull())
    act("book", BookFlight, flight, FlightBooked, FlightFull())
    act("pay", Pay, bank, Paid, PaymentDeclined())
    act("cancel", CancelHotel, hotel, undoes=HotelBooked)
    act("cancel", CancelFlight, flight, undoes=FlightBooked)
    act("refund", Refund, bank, undoes=Paid)
    return executor


def asking(system: System, told: Told) -> Queryable:
    """The truth of a system that can be asked what became of a key."""

    def reconcile(_: Any, call: Call) -> Answer:
        return system.ask(call.key).answer(told)

    return Queryable(reconcile, visible_after_s=VISIBLE_AFTER_S, poll_s=POLL_S)


travel = executor_of(RemoteWorld(os.environ.get("TRAVEL_WORLD", "http://127.0.0.1:8099")))
"""For `refold executor refold.examples.travel.executor:travel`."""
