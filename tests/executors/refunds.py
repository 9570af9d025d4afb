"""A refund, and an executor that may die between the bank's answer and its own record of it."""

import os
import signal
from typing import Any

from psycopg import Connection

from refold import ANY, Command, Context, Event, Late, StateGraph, replace, unknown
from refold.executors.executor import Call, Executor
from refold.executors.outcome import Answer
from refold.executors.truth import ByKey, Local, Neither, Queryable, Then, Truth
from refold.processors.definition import Workflow
from refold.testing.world_server import RemoteWorld

WORLD, TRUTH, DIES = "REFUND_WORLD", "REFUND_TRUTH", "REFUND_DIES"
"""Variables: the world's address, how its truth is learned, and whether the process dies."""


class Returned(Event):
    amount: int


class Refunded(Event):
    receipt: str


class Refund(Command):
    amount: int


class Return(Context):
    amount: int = 0
    receipt: str = ""
    doubts: int = 0


goods = StateGraph("goods", version=1, context=Return, initial="new", tenant="acme")
goods.command(Refund, target="payments", answers=(Refunded,))


@goods.on("new", Returned, to="refunding")
def returned(_: Return, event: Returned) -> Return:
    return Return(event.amount)


@goods.on("refunding", unknown(Refund))
def doubted(ctx: Return, _: Event) -> Return:
    return replace(ctx, doubts=ctx.doubts + 1)


@goods.on("refunding", Refunded, to="refunded")
def refunded(ctx: Return, event: Refunded) -> Return:
    return replace(ctx, receipt=event.receipt)


goods.enter("refunding", send=lambda ctx, _: Refund(ctx.amount))
goods.final("refunded", late={ANY: Late.RECORD})

GOODS = Workflow("goods", [goods])

bank = RemoteWorld(os.environ.get(WORLD, "http://127.0.0.1:1")).system("bank")


def asked(_: Refund, call: Call) -> Answer:
    return bank.ask(call.key).answer(Refunded)


TRUTHS: dict[str, Truth] = {
    "by_key": ByKey(remembers_s=86_400.0),
    "by_key, forgotten": ByKey(remembers_s=60.0),
    "queryable": Queryable(asked, visible_after_s=1.0),
    "local": Local(),
    "neither": Neither(),
    "neither, repeat": Neither(Then.REPEAT),
    "neither, assume done": Neither(Then.ASSUME_DONE),
}

payments = Executor("payments")
truth = TRUTHS[os.environ.get(TRUTH, "queryable")]


def die_if_asked() -> None:
    """The answer has come, and nobody has written it down."""
    if os.environ.get(DIES):
        os.kill(os.getpid(), signal.SIGKILL)


def refund(command: Refund, call: Call) -> Refunded:
    reply = bank.call("refund", call.key, timeout_s=call.left_s, amount=command.amount)
    die_if_asked()
    return Refunded(reply.reference)


def refund_here(command: Refund, call: Call, connection: Connection[Any]) -> Refunded:
    connection.execute("INSERT INTO refunds VALUES (%s, %s)", (call.key, command.amount))
    die_if_asked()
    return Refunded("here")


payments.action(Refund, truth=truth, system="bank", deadline_s=2.0)(
    refund_here if isinstance(truth, Local) else refund
)
