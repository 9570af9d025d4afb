"""A workflow that forks into branches and joins them, and its executor, which does nothing."""

from bench.limits import wire
from refold.executors.executor import Call, Executor
from refold.executors.truth import ByKey
from refold.processors.graph import ALL, ANY, Late, StateGraph
from refold.schemas.types import Command, Context, Event

CONCURRENCY = 200
DAY_S = 86_400.0


class Asked(Event):
    branches: int


class Did(Event):
    number: int


class Do(Command):
    number: int


class Ended(Command):
    branches: int


class Fan(Context):
    branches: int = 0


fan = StateGraph("fan", version=1, context=Fan, initial="new", tenant=wire.TENANT)
fan.command(Do, target="fan", each="number", answers=(Did,))
fan.command(Ended, target="ends")


@fan.on("new", Asked, to="forked")
def asked(_: Fan, event: Asked) -> Fan:
    return Fan(event.branches)


fan.enter("forked", send=lambda ctx, _: [Do(number) for number in range(ctx.branches)])
fan.join("forked", Do, to="joined", need=ALL)
fan.enter("joined", send=lambda ctx, _: Ended(ctx.branches))
fan.final("joined", late={ANY: Late.RECORD})

executor = Executor("fan")


@executor.action(Do, truth=ByKey(DAY_S), concurrency=CONCURRENCY, independent=True)
async def do(command: Do, _: Call) -> Did:
    return Did(command.number)
