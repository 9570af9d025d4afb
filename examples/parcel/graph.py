"""A parcel: picked line by line, paid for in three tries, shipped. Every part of a graph once."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from refold import (
    ANY,
    Bits,
    Command,
    Context,
    Digits,
    Event,
    Late,
    Limits,
    RunStatus,
    StateGraph,
    StepInfo,
    WasNamed,
    replace,
)

Money = Annotated[Decimal, Digits(12, 2)]


class Line(Context):  # a part of events and contexts: a frozen struct like them
    number: Annotated[int, Bits(32)]
    article: str


class Ordered(Event):
    lines: tuple[Line, ...]
    total: Money
    address: Annotated[str, WasNamed("street")]


class Picked(Event):
    line: int


class AddressCorrected(Event):
    address: str


class Paid(Event):
    receipt: str


class Declined(Event):
    reason: str


class Pick(Command):
    line: int
    article: str


class Pay(Command):
    amount: Money
    reference: str
    attempt: int


class Ship(Command):
    address: str
    gift: bool


class Parcel(Context):
    lines: tuple[Line, ...] = ()
    picked: tuple[int, ...] = ()
    total: Money = Decimal(0)
    address: str = ""
    reference: str = ""
    ordered_at: datetime | None = None
    gift: bool = False
    attempts: int = 0


parcel = StateGraph(
    "parcel",
    version=1,
    context=Parcel,
    initial="new",
    tenant="shop",
    dedup=256,
    limits=Limits(transitions=1_000, over="given_up"),
)


@parcel.on("new", Ordered, to="picking")
def ordered(_: Parcel, event: Ordered, step: StepInfo) -> Parcel:
    return Parcel(
        lines=event.lines,
        total=event.total,
        address=event.address,
        reference=step.new_id(),
        ordered_at=step.time,
        gift=step.random() < 0.1,
    )


def pick_all(ctx: Parcel, _: Event) -> list[Pick]:
    return [Pick(line=line.number, article=line.article) for line in ctx.lines]


parcel.enter("picking", send=pick_all)
parcel.command(Pick, target="warehouse", each="line")  # several of one type from one step


def is_new(ctx: Parcel, event: Picked) -> bool:
    return event.line not in ctx.picked


def is_last(ctx: Parcel, event: Picked) -> bool:
    return is_new(ctx, event) and len(ctx.picked) + 1 == len(ctx.lines)


def picked(ctx: Parcel, event: Picked) -> Parcel:
    return replace(ctx, picked=(*ctx.picked, event.line))


def pay_again(ctx: Parcel, _: Event) -> Parcel:
    return replace(ctx, attempts=ctx.attempts + 1)


parcel.on("picking", Picked, to="paying", guard=is_last)(picked)
parcel.on("picking", Picked, guard=is_new)(picked)  # stays: no `to`, nothing is entered
parcel.on("picking", Picked)  # known by now: the context stays as well
parcel.defer("picking", AddressCorrected)  # kept until the parcel has left this state


@parcel.on("paying", AddressCorrected)
def corrected(ctx: Parcel, event: AddressCorrected) -> Parcel:
    return replace(ctx, address=event.address)


def may_try(ctx: Parcel, _: Declined) -> bool:
    return ctx.attempts < 2


parcel.enter("paying", send=lambda ctx, _: Pay(ctx.total, ctx.reference, ctx.attempts + 1))
parcel.command(Pay, target="payments", action="pay")
parcel.on("paying", Declined, to="paying", guard=may_try)(pay_again)  # a loop: enters again
parcel.on("paying", Declined, to="given_up")
parcel.on("paying", Paid, to="shipped")
parcel.already("paying", Picked)

parcel.enter("shipped", send=lambda ctx, _: Ship(address=ctx.address, gift=ctx.gift))
parcel.final("shipped", late={Paid: Late.ALREADY, AddressCorrected: Late.REFUSE, ANY: Late.RECORD})
parcel.final("given_up", late={ANY: Late.RECORD}, status=RunStatus.FAILED)

parcel.waits("picking", RunStatus.WAITING_CALLBACK)
parcel.waits("paying", RunStatus.WAITING_CALLBACK)
parcel.invariant(
    "nothing is shipped before all is picked",
    lambda state, ctx: len(ctx.picked) == len(ctx.lines),
    states=("paying", "shipped"),
)
