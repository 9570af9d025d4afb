"""`Rehearsal`: an executor's own handlers in memory, for a driver. No Kafka, no ledger, no wait.

    world = World(seed=7, now_s=lambda: driver.now_ms / 1000)
    Rehearsal(driver, executor_of(world)).run()

Law of this module: what a handler's end means is asked of `refold.executors.calls`, as a running
executor asks it; the rows here know of states what the ledger knows (P30, P33), and nothing of
processes, leases and crashes.
"""

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Final

from refold.executors.calls import (
    asked,
    assumed,
    call_of,
    perform,
    perform_async,
    perform_local,
    succeeded,
    unknown,
)
from refold.executors.executor import Action, Call, Executor
from refold.executors.lanes import SHUT_FIRST_S
from refold.executors.model import Claimed, Ended, Status
from refold.executors.outcome import Done
from refold.executors.truth import Local, Neither, Queryable, Then, repeatable
from refold.processors.effects import Send
from refold.processors.keys import COMPENSATE, FORWARD, forward_key
from refold.schemas.envelope import Answer, Outcome
from refold.schemas.errors import Code, UsageError
from refold.snapshots.sessions import Connection
from refold.testing.driver import Driver

_MS: Final = timedelta(milliseconds=1)


@dataclass(slots=True)
class Row:
    """What is known of an action."""

    send: Send
    status: Status = Status.PLANNED
    reason: str = ""
    result: tuple[str, bytes] | None = None
    """Type and value of the event that told that it was done."""
    first_ms: int = -1
    """When it was first called; below 0: never."""
    last_ms: int = -1
    until_ms: int = 0
    """Accepted: after this it counts as unknown."""
    ask_ms: int = 0
    """Accepted: the other side is asked no sooner."""
    stuck: bool = False
    """Nobody can be asked: it waits for a person."""


@dataclass(order=True, slots=True)
class _Due:
    at_ms: int
    number: int
    key: str = field(compare=False)


class Rehearsal:
    """Runs the commands of a driver through an executor.

    Args:
        driver: Whose commands.
        executor: Acts for those of its target; others are not answered.
        local: Where `Local` actions write: a connection of psycopg, outside of a transaction. Each
            of their effects is a transaction of its own.
    """

    def __init__(
        self, driver: Driver, executor: Executor, *, local: Connection | None = None
    ) -> None:
        self.driver = driver
        self.executor = executor
        self._local = local
        self.rows: dict[str, Row] = {}
        """By idempotency key."""
        self._seen = 0
        self._numbers = count()
        self._due: list[_Due] = []

    @property
    def statuses(self) -> Mapping[str, Status]:
        """Key → status of its action."""
        return {key: row.status for key, row in self.rows.items()}

    def run(self, most: timedelta = timedelta(days=366), steps: int = 10_000) -> None:
        """Act, and let time pass, until nothing is to be done and no timer is armed.

        Args:
            most: Time that may pass.
            steps: Calls, questions and rings that may come.

        Raises:
            AssertionError: It did not come to an end.
            UsageError: BAD_SETTING, a `Local` action without `local`.
        """
        driver, until_ms = self.driver, self.driver.now_ms + most // _MS
        for _ in range(steps):
            self._take()
            rings_ms = min(self._rings(), default=until_ms + 1)
            due_ms = self._due[0].at_ms if self._due else until_ms + 1
            if min(rings_ms, due_ms) > until_ms:
                return
            at_ms = max(min(rings_ms, due_ms), driver.now_ms)
            if rings_ms <= due_ms:
                driver.pass_time((at_ms - driver.now_ms) * _MS)
                continue
            driver.now_ms = at_ms
            self._turn(heapq.heappop(self._due).key)
        raise AssertionError(f"after {steps} calls, questions and rings it still goes on")

    def answer(self, key: str, done: Done) -> bool:
        """What the other side says by itself, later: whether it settled the action of a key."""
        row = self.rows[key]
        if row.status not in (Status.IN_FLIGHT, Status.UNKNOWN):
            return False
        self._end(row, succeeded(self._claimed(row), done))
        return True

    def _take(self) -> None:
        fresh, self._seen = self.driver.sent[self._seen :], len(self.driver.sent)
        for send in fresh:
            if send.target != self.executor.target or send.type not in self.executor.actions:
                continue
            row = self.rows.setdefault(send.key, Row(send))
            if row.status is Status.FAILED and send.attempt > row.send.attempt:
                row.send, row.status = send, Status.PLANNED
            if row.status is Status.PLANNED:
                self._later(send.key, 0.0)

    def _rings(self) -> list[int]:
        records = self.driver.instances.values()
        dues = [one.more.due_ms for one in records if one.more.parked is None]
        return [due for due in dues if due is not None]

    def _later(self, key: str, after_s: float) -> None:
        at_ms = self.driver.now_ms + round(after_s * 1000)
        heapq.heappush(self._due, _Due(at_ms, next(self._numbers), key))

    def _turn(self, key: str) -> None:
        """What happens to an action next."""
        row = self.rows[key]
        action = self.executor.actions[row.send.type]
        if row.status is Status.PLANNED:
            self._begin(row, action)
        elif row.status is Status.IN_FLIGHT:
            self._poll(row, action)
        elif row.status is Status.UNKNOWN:
            self._clear_up(row, action)

    def _begin(self, row: Row, action: Action) -> None:
        """Call it; an undoing settles what it undoes first (P33)."""
        body, _, direction = row.send.key.rpartition(":")
        if direction == COMPENSATE:
            forward = self.rows.get(f"{body}:{FORWARD}")
            status = Status.CANCELLED if forward is None else forward.status
            if forward is not None and status is Status.PLANNED:
                forward.status = status = Status.CANCELLED
            if status in (Status.UNKNOWN, Status.IN_FLIGHT):
                self._later(row.send.key, 1.0)
                return
            if status is not Status.SUCCEEDED:
                self._end(row, succeeded(self._claimed(row), Done()))
                return
        self._call(row, action)

    def _call(self, row: Row, action: Action) -> None:
        claimed = self._claimed(row)
        row.last_ms = self.driver.now_ms
        if row.first_ms < 0:
            row.first_ms = row.last_ms
        call, command = call_of(claimed, action), self.driver.command(row.send)
        if isinstance(action.truth, Local):
            ended = self._write(claimed, action, call, command)
        elif action.asynchronous:
            ended = asyncio.run(perform_async(claimed, action, call, command)).ended
        else:
            ended = perform(claimed, action, call, command).ended
        self._end(row, ended)

    def _write(self, claimed: Claimed, action: Action, call: Call, command: Any) -> Ended:
        if self._local is None:
            raise UsageError(
                Code.BAD_SETTING,
                f"the action for {claimed.type} is Local, and there is no database in memory.",
                "Give Rehearsal a connection: local=….",
            )
        with self._local.transaction():
            return perform_local(claimed, action, call, command, self._local)

    def _poll(self, row: Row, action: Action) -> None:
        """Ask about what was accepted, or wait for it no longer."""
        if self.driver.now_ms >= row.until_ms:
            self._end(row, unknown(self._claimed(row), "accepted, and not answered in time", 0.0))
        elif isinstance(action.truth, Queryable) and self.driver.now_ms >= row.ask_ms:
            self._end(row, self._asked(row, action, action.truth))

    def _asked(self, row: Row, action: Action, truth: Queryable) -> Ended:
        claimed = self._claimed(row)
        asking = _asking(truth, self.driver.command(row.send), call_of(claimed, action))
        return asyncio.run(asked(claimed, action, asking)).ended

    def _clear_up(self, row: Row, action: Action) -> None:
        claimed, truth = self._claimed(row), action.truth
        if isinstance(truth, Queryable):
            self._end(row, self._asked(row, action, truth))
        elif repeatable(truth, claimed.first_s):
            self._call(row, action)
        elif isinstance(truth, Neither) and truth.then is Then.ASSUME_DONE:
            self._end(row, assumed(claimed))
        else:
            row.stuck = True

    def _end(self, row: Row, ended: Ended) -> None:
        row.status, row.reason = ended.status, ended.reason
        if row.status is Status.SUCCEEDED:
            row.result = (ended.type, ended.value)
        if ended.event_id:
            tenant, instance = self.driver.whose(row.send.key)
            self.driver.send(
                instance,
                (ended.type, ended.value),
                id=ended.event_id,
                source=f"/refold/executor/{self.executor.target}",
                tenant=tenant,
                answer=Answer(ended.key, ended.attempt, Outcome(ended.outcome)),
            )
        if row.status is Status.IN_FLIGHT:  # accepted: answered until then, or its truth is asked
            self._accepted(row, ended)
        if row.status is Status.UNKNOWN:
            self._later(row.send.key, max(ended.retry_after_s, 0.001))
        if row.status is Status.PLANNED:  # not let in: somebody may have mended it by then
            self._later(row.send.key, max(ended.retry_after_s, SHUT_FIRST_S))

    def _accepted(self, row: Row, ended: Ended) -> None:
        """It is answered until its deadline; asked about meanwhile where that is declared."""
        now_ms, truth = self.driver.now_ms, self.executor.actions[row.send.type].truth
        if ended.until_s:
            row.until_ms = now_ms + round(ended.until_s * 1000)
            self._later(row.send.key, ended.until_s)
        if isinstance(truth, Queryable) and truth.poll_s is not None:
            pause_s = ended.retry_after_s or truth.poll_s
            row.ask_ms = now_ms + round(pause_s * 1000)
            self._later(row.send.key, pause_s)

    def _claimed(self, row: Row) -> Claimed:
        send, now_ms = row.send, self.driver.now_ms
        tenant, instance = self.driver.whose(send.key)
        called = row.first_ms >= 0
        forward = self.rows.get(forward_key(send.key))
        told = ("", None) if forward is None or forward.result is None else forward.result
        return Claimed(
            key=send.key,
            tenant=tenant,
            workflow=self.driver.workflow.name,
            instance=instance,
            state=send.state,
            action=send.action,
            direction=send.key.rpartition(":")[2],
            type=send.type,
            request=send.value,
            attempt=send.attempt,
            epoch=1,
            reply_to="",
            trace="",
            known=row.status,
            since_s=(now_ms - row.last_ms) / 1000 if called else 0.0,
            first_s=(now_ms - row.first_ms) / 1000 if called else 0.0,
            forward_type=told[0],
            forward_result=told[1],
        )


async def _asking(truth: Queryable, command: Any, call: Any) -> Any:
    answer = truth.reconcile(command, call)
    return await answer if asyncio.iscoroutine(answer) else answer
