"""An order and its parcels, one workflow each: the graphs of the tests about children."""

from datetime import timedelta

from refold import (
    ANY,
    Command,
    Context,
    Event,
    Late,
    RunStatus,
    Start,
    StateGraph,
    failed,
    start,
)
from refold.testing.driver import Driver
from refold.testing.exchanging import exchange


class Placed(Event):
    parcels: tuple[str, ...]


class Cancelled(Event):
    pass


class Packed(Event):
    weight: int


class ParcelOrdered(Event):
    article: str


class ParcelCancelled(Event):
    pass


class Delivered(Event):
    weight: int


class Lost(Event):
    pass


class Pack(Command):
    article: str


class Unpack(Command):
    pass


class Order(Context):
    parcels: tuple[str, ...] = ()
    weight: int = 0


class Parcel(Context):
    article: str = ""
    weight: int = 0


def cancel(_: Order, __: ParcelOrdered) -> ParcelCancelled:
    return ParcelCancelled()


def parcels(ctx: Order, _: Event) -> list[Start]:
    return [start("parcel", one, ParcelOrdered(f"article {one}")) for one in ctx.parcels]


def order(**given: object) -> StateGraph[Order]:
    """Orders its parcels, one workflow each, and waits for all of them."""
    graph = StateGraph("order", version=1, context=Order, initial="new", tenant="acme")
    settings = {"answers": (Delivered,), "cancel": cancel} | given
    graph.child("parcel", ParcelOrdered, **settings)  # type: ignore[arg-type]

    @graph.on("new", Placed, to="sending")
    def placed(_: Order, event: Placed) -> Order:
        return Order(event.parcels)

    @graph.on("sending", Delivered)
    def delivered(ctx: Order, event: Delivered) -> Order:
        return Order(ctx.parcels, ctx.weight + event.weight)

    graph.enter("sending", parcels)
    graph.join(
        "sending", "parcel", to="done", otherwise="undoing", cancel_rest=bool(settings["cancel"])
    )
    graph.on("sending", Cancelled, to="undoing" if settings["cancel"] else "undone")
    if settings["cancel"]:
        graph.undo("undoing", to="undone")
    else:
        graph.on("undoing", Cancelled, to="undone")
    graph.after("sending", timedelta(days=9), to="expired")
    graph.final("done", late={ANY: Late.RECORD})
    graph.final("expired", late={ANY: Late.RECORD}, status=RunStatus.FAILED)
    graph.final("undone", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
    return graph


def unpack(_: Parcel, __: Pack) -> Unpack:
    return Unpack()


def arrived(ctx: Parcel) -> Delivered:
    if ctx.weight == 13:
        raise ValueError("thirteen")
    return Delivered(ctx.weight)


def parcel(late: object = Late.RECORD) -> StateGraph[Parcel]:
    """Packed and delivered; what is packed can be unpacked."""
    graph = StateGraph("parcel", version=1, context=Parcel, initial="new", tenant="acme")
    graph.command(Pack, target="world", answers=(Packed,), compensate=unpack)
    graph.command(Unpack, target="world")

    @graph.on("new", ParcelOrdered, to="packing")
    def ordered(_: Parcel, event: ParcelOrdered) -> Parcel:
        if event.article == "article broken":
            raise ValueError("broken")
        return Parcel(event.article)

    @graph.on("packing", Packed, to="delivered")
    def packed(ctx: Parcel, event: Packed) -> Parcel:
        return Parcel(ctx.article, event.weight)

    graph.enter("packing", lambda ctx, _: Pack(ctx.article))
    graph.on("packing", failed(Pack), to="lost")
    graph.on("packing", Lost, to="lost")
    graph.on("packing", ParcelCancelled, to="unpacking")
    graph.undo("unpacking", to="given_back")
    named = {ParcelCancelled: late, ANY: Late.RECORD}
    graph.final("delivered", late=named, answer=arrived)  # type: ignore[arg-type]
    graph.final("lost", late={ANY: Late.RECORD}, status=RunStatus.FAILED)
    graph.final("given_back", late={ANY: Late.RECORD}, status=RunStatus.COMPENSATED)
    return graph


Pair = tuple[Driver, Driver]


def pair(*parcels: str, late: object = Late.RECORD, **given: object) -> Pair:
    top, low = Driver(order(**given), tenant="acme"), Driver(parcel(late), tenant="acme")
    top.send("o", Placed(parcels))
    exchange(top, low)
    return top, low


def checked(*drivers: Driver) -> None:
    for made in drivers:
        made.check_counts()
        made.check_replay()
        assert made.replay().published == made.published
        made.kill_and_recover()
        made.check_replay()


def packs(low: Driver, instance: str, weight: int = 5) -> None:
    done = next(one for one in low.sent if one.key.split(":")[3] == instance)
    low.done(done, Packed(weight))


def strange(_: Order, __: ParcelOrdered) -> Placed:
    """A `cancel` that no parcel takes."""
    return Placed(())


def one_parcel(_: Order, __: Placed) -> Start:
    """A `send` that starts one parcel, `only`."""
    return start("parcel", "only", ParcelOrdered("x"))
