"""A trip that is booked, paid, and undone: the graph of the tests about actions and timers."""

from datetime import timedelta

from refold import (
    ANY,
    Command,
    Context,
    Event,
    Late,
    Retry,
    RunStatus,
    StateGraph,
    failed,
    replace,
    unknown,
)
from refold.processors.effects import Send
from refold.testing.driver import Driver


class Ordered(Event):
    price: int


class HotelBooked(Event):
    room: str


class HotelFull(Event):
    pass


class Paid(Event):
    receipt: str


class Cancelled(Event):
    pass


class BookHotel(Command):
    nights: int


class CancelHotel(Command):
    room: str


class Pay(Command):
    amount: int


class Refund(Command):
    amount: int


class Trip(Context):
    price: int = 0
    room: str = ""
    receipt: str = ""
    doubts: int = 0


def cancel_hotel(trip: Trip, _: BookHotel) -> CancelHotel:
    return CancelHotel(trip.room)


def refund(_: Trip, pay: Pay) -> Refund:
    return Refund(pay.amount)


def graph(version: int = 1, retry: Retry | None = None) -> StateGraph[Trip]:
    """Hotel, then payment; whatever goes wrong, all is undone."""
    trip = StateGraph("trip", version=version, context=Trip, initial="new", tenant="acme")
    trip.command(
        BookHotel, target="world", answers=(HotelBooked, HotelFull), compensate=cancel_hotel
    )
    trip.command(
        Pay,
        target="world",
        answers=(Paid,),
        retry=retry or Retry(attempts=3, first_s=10, jitter=0),
        compensate=refund,
    )
    trip.command(CancelHotel, target="world", retry=Retry(attempts=2, first_s=5, jitter=0))
    trip.command(Refund, target="world")

    @trip.on("new", Ordered, to="booking")
    def ordered(_: Trip, event: Ordered) -> Trip:
        return Trip(event.price)

    @trip.on("booking", HotelBooked, to="paying")
    def booked(trip: Trip, event: HotelBooked) -> Trip:
        return replace(trip, room=event.room)

    @trip.on("paying", Paid, to="confirming")
    def paid(trip: Trip, event: Paid) -> Trip:
        return replace(trip, receipt=event.receipt)

    @trip.on("paying", unknown(Pay))
    def doubted(trip: Trip, _: Event) -> Trip:
        return replace(trip, doubts=trip.doubts + 1)

    trip.enter("booking", lambda trip, _: BookHotel(trip.price // 100))
    trip.enter("paying", lambda trip, _: Pay(trip.price))
    trip.on("booking", HotelFull, to="undoing")
    trip.on("paying", failed(Pay), to="undoing")
    trip.on(("booking", "paying", "confirming"), Cancelled, to="undoing")
    trip.after("paying", timedelta(hours=1), to="undoing")
    trip.after("confirming", timedelta(days=1), to="done")
    trip.undo("undoing", to="undone")
    trip.final("done", late={ANY: Late.RECORD})
    trip.final("undone", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
    return trip


def driver(**given: object) -> Driver:
    """Over the graph; `given` as for `graph`."""
    return Driver(graph(**given), tenant="acme")  # type: ignore[arg-type]


def last(driver: Driver) -> Send:
    """The command that was sent last."""
    return driver.sent[-1]


def paying(driver: Driver) -> Send:
    """Brings trip `t` to where its payment is on its way; gives the payment."""
    driver.send("t", Ordered(300))
    driver.done(last(driver), HotelBooked("12"))
    return last(driver)


def types(driver: Driver) -> list[str]:
    """Types of every command so far, in order."""
    return [send.type for send in driver.sent]
