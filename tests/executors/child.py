"""An executor in a process of its own, which stands still where its test wants it to be killed.

POINT names where: `before_send`, `after_effect`, `recorded` (before its answer is published).
"""

import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from time import sleep
from typing import Any

from tests.executors.desk import Paid, Pay

from refold.executors.answers import Answers
from refold.executors.executor import Call, Executor
from refold.executors.model import Result
from refold.executors.truth import ByKey, Local, Neither, Queryable, Then, Truth
from refold.snapshots.sessions import Connection
from refold.testing.world_server import RemoteWorld

FOLDER = Path(os.environ["DESK_FOLDER"])
POINT = os.environ.get("POINT", "")
TRUTH = os.environ.get("TRUTH", "queryable")
DEADLINE_S = float(os.environ.get("DEADLINE_S", "1.0"))
CONCURRENCY = int(os.environ.get("CONCURRENCY", "32"))
world = RemoteWorld(os.environ["WORLD"])
bank = Executor("bank")


def stand_at(point: str) -> None:
    """Stand still here for ever, if this is the point."""
    if point == POINT:
        (FOLDER / f"at-{point}").touch()
        threading.Event().wait()


def reconcile(command: Pay, call: Call) -> Any:
    return world.system("bank").ask(call.key).answer(lambda name: Paid(reference=name))


TRUTHS: dict[str, Truth] = {
    "by_key": ByKey(remembers_s=3600),
    "queryable": Queryable(reconcile, visible_after_s=0.2),
    "neither": Neither(),
    "repeat": Neither(Then.REPEAT),
}

if TRUTH == "local":

    @bank.action(Pay, truth=Local(), deadline_s=DEADLINE_S, concurrency=CONCURRENCY)
    def book(command: Pay, call: Call, connection: Connection) -> Paid:
        stand_at("before_send")
        connection.execute("INSERT INTO public.account VALUES (%s)", [call.key])
        stand_at("after_effect")
        return Paid(reference="booked")

else:

    @bank.action(Pay, truth=TRUTHS[TRUTH], deadline_s=DEADLINE_S, concurrency=CONCURRENCY)
    def pay(command: Pay, call: Call) -> Paid:
        stand_at("before_send")
        if POINT == "paused":
            stand_until_continued(call)
        reply = world.system("bank").call("pay", call.key, amount=command.amount)
        stand_at("after_effect")
        return Paid(reference=reply.reference)


def stand_until_continued(call: Call) -> None:
    """Be paused by SIGSTOP between the beginning of the handler and its effect."""
    os.kill(os.getpid(), signal.SIGSTOP)
    while call.left_s > 0:  # the signal may take effect a moment later
        sleep(0.01)
    call.before_send()


if POINT == "recorded":

    def publish(self: Answers, results: Iterable[Result], *_: object) -> None:
        if list(results):  # the scanner has none to give, and says so
            stand_at("recorded")

    Answers.publish = publish  # type: ignore[method-assign,assignment]
