"""An executor whose other side loses its answers, then says nothing, and later answers again.

While the file that `BENCH_OUTSIDE` names is not there, the other side is away: a call ends in a
dead line, after the effect for every second instance and before it for the others; a question
ends in one too. When the file is there it says what it did. It is W2's executor otherwise.
"""

import asyncio
import os
from pathlib import Path

from bench.w2 import CONCURRENCY, Did, Do
from refold.executors.executor import Call, Executor
from refold.executors.outcome import Answer, Done, Undone
from refold.executors.truth import Queryable

DEADLINE_S = 2.0
VISIBLE_AFTER_S = 1.0
CALL_S = 0.5
_up = Path(os.environ.get("BENCH_OUTSIDE", "/nonexistent"))

executor = Executor("w2")


def _line() -> None:
    if not _up.exists():
        raise ConnectionResetError("the line is dead")


async def reconcile(command: Do, call: Call) -> Answer:
    _line()
    number = int(call.instance.rpartition("-")[2])
    return Done(Did(f"receipt-{command.item}", command.step)) if number % 2 else Undone()


@executor.action(
    Do,
    truth=Queryable(reconcile, visible_after_s=VISIBLE_AFTER_S),
    deadline_s=DEADLINE_S,
    concurrency=CONCURRENCY,
)
async def do(command: Do, _: Call) -> Did:
    await asyncio.sleep(CALL_S)  # all of them begin before the first one fails
    _line()
    return Did(f"receipt-{command.item}", command.step)
