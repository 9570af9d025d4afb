"""Workload W2 as a workflow and its executor: ten steps, each carried out before the next begins.

A state is entered, sends a command, and is left by the executor's answer to it. What the handlers
do outside is nothing: what is measured is all the rest.
"""

from msgspec.structs import replace

from refold.executors.executor import Call, Executor
from refold.executors.truth import ByKey
from refold.processors.graph import ANY, Late, StateGraph
from refold.schemas.types import Command, Context, Event

STEPS = 10
CONCURRENCY = 1000
DAY_S = 86_400.0


class Begun(Event):
    customer: str
    item: str
    total: int


class Did(Event):
    receipt: str
    step: int


class Do(Command):
    customer: str
    item: str
    step: int


class Ended(Command):
    customer: str
    receipt: str


class Task(Context):
    customer: str = ""
    item: str = ""
    total: int = 0
    step: int = 0
    receipt: str = ""


w2 = StateGraph("w2", version=1, context=Task, initial="new")
w2.command(Do, target="w2", answers=(Did,))
w2.command(Ended, target="ends")


@w2.on("new", Begun, to="s1")
def begun(_: Task, event: Begun) -> Task:
    return Task(event.customer, event.item, event.total, 1)


def did(task: Task, event: Did) -> Task:
    return replace(task, step=task.step + 1, receipt=event.receipt)


for number in range(1, STEPS + 1):
    here, there = f"s{number}", f"s{number + 1}" if number < STEPS else "done"
    w2.enter(here, send=lambda task, _: Do(task.customer, task.item, task.step))
    w2.on(here, Did, to=there)(did)
w2.enter("done", send=lambda task, _: Ended(task.customer, task.receipt))
w2.final("done", late={ANY: Late.RECORD})

executor = Executor("w2")


@executor.action(Do, truth=ByKey(DAY_S), concurrency=CONCURRENCY)
async def do(command: Do, _: Call) -> Did:
    return Did(f"receipt-{command.item}", command.step)
