"""The graph of a trip: a hotel and a flight are booked, then it is paid, or all of it is undone."""

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
    StepInfo,
    failed,
    replace,
)


class TripOrdered(Event):
    city: str
    nights: int
    price: int


class TripCancelled(Event):
    pass


class HotelBooked(Event):
    reservation: str


class HotelFull(Event):
    pass


class FlightBooked(Event):
    ticket: str


class FlightFull(Event):
    pass


class Paid(Event):
    receipt: str


class PaymentDeclined(Event):
    pass


class BookHotel(Command):
    trip: str  # our own number: what we may undo before we were told theirs
    city: str
    nights: int


class BookFlight(Command):
    trip: str
    city: str


class Pay(Command):
    trip: str
    amount: int


class CancelHotel(Command):
    trip: str


class CancelFlight(Command):
    trip: str


class Refund(Command):
    trip: str
    amount: int


class Trip(Context):
    number: str = ""
    city: str = ""
    nights: int = 0
    price: int = 0
    reservation: str = ""
    ticket: str = ""
    receipt: str = ""


def cancel_hotel(_: Trip, booked: BookHotel) -> CancelHotel:
    return CancelHotel(booked.trip)


def cancel_flight(_: Trip, booked: BookFlight) -> CancelFlight:
    return CancelFlight(booked.trip)


def refund(_: Trip, paid: Pay) -> Refund:
    return Refund(paid.trip, paid.amount)


trip = StateGraph("trip", version=1, context=Trip, initial="new", tenant="travel")

QUICK = Retry(attempts=3, first_s=0.5)
BOOKINGS = ("booking_hotel", "booking_flight", "paying")

trip.command(
    BookHotel, target="travel", answers=(HotelBooked, HotelFull), retry=QUICK,
    compensate=cancel_hotel,
)  # fmt: skip
trip.command(
    BookFlight, target="travel", answers=(FlightBooked, FlightFull), retry=QUICK,
    compensate=cancel_flight,
)  # fmt: skip
trip.command(
    Pay, target="travel", answers=(Paid, PaymentDeclined), retry=QUICK, compensate=refund
)  # fmt: skip


@trip.on("new", TripOrdered, to="booking_hotel")
def ordered(_: Trip, event: TripOrdered, step: StepInfo) -> Trip:
    return Trip(step.instance, event.city, event.nights, event.price)


@trip.on("booking_hotel", HotelBooked, to="booking_flight")
def hotel_booked(trip: Trip, event: HotelBooked) -> Trip:
    return replace(trip, reservation=event.reservation)


@trip.on("booking_flight", FlightBooked, to="paying")
def flight_booked(trip: Trip, event: FlightBooked) -> Trip:
    return replace(trip, ticket=event.ticket)


@trip.on("paying", Paid, to="booked")
def paid(trip: Trip, event: Paid) -> Trip:
    return replace(trip, receipt=event.receipt)


trip.enter("booking_hotel", send=lambda trip, _: BookHotel(trip.number, trip.city, trip.nights))
trip.enter("booking_flight", send=lambda trip, _: BookFlight(trip.number, trip.city))
trip.enter("paying", send=lambda trip, _: Pay(trip.number, trip.price))

trip.undo(
    "undoing", to="undone",
    when=(failed(ANY), HotelFull, FlightFull, PaymentDeclined, TripCancelled),
)  # fmt: skip
trip.after(BOOKINGS, timedelta(hours=1), to="undoing")
trip.waits(BOOKINGS, RunStatus.WAITING_CALLBACK)
trip.final("booked", late={TripCancelled: Late.REFUSE, ANY: Late.RECORD})
trip.final("undone", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
