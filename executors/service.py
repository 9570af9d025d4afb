"""The executor process: intake, calls and answers around one ledger.

Law of this module: composes; a call begins when its row is in flight, ends when its end is
recorded, and a stop lets calls end. Rows whose worker died are found by every process.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Final

import structlog

from refold.executors.answers import Answers
from refold.executors.calls import askable, asked, called
from refold.executors.executor import Executor
from refold.executors.intake import Intake
from refold.executors.ledger import SCHEMA, Ledger
from refold.executors.model import Claimed, Ended
from refold.schemas.errors import ServerError
from refold.topics.settings import Settings

_LOG = structlog.get_logger("refold.executor")
IN_FLIGHT: Final = 256
"""Calls of one process at a time."""
LEASE_MARGIN_S: Final = 5.0
"""The lease outlives the deadline of the call by this (P31)."""
IDLE_S: Final = 0.2
SCAN_S: Final = 1.0
PAUSE_S: Final = 1.0


class Service:
    """One executor process.

    Args:
        settings: Where Kafka is.
        executor: What it does.
        dsn: Of the ledger's database.
        schema: Of the ledger's tables.
        name: Of this process in the rows; host and process id unless given.
    """

    def __init__(
        self,
        settings: Settings,
        executor: Executor,
        dsn: str,
        *,
        schema: str = SCHEMA,
        name: str = "",
    ) -> None:
        self._executor = executor
        self._stopping = Event()
        self._ledger = Ledger(dsn, name or f"{socket.gethostname()}-{os.getpid()}", schema)
        self._answers = Answers(settings, executor.target, self._ledger, self._stopping)
        self._intake = Intake(
            settings, executor.target, executor.actions, self._ledger, self._wake, self._stopping
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = asyncio.Event()
        self._ends: asyncio.Queue[Ended] = asyncio.Queue()
        self._calls: set[asyncio.Task[None]] = set()
        slots = {name: each.concurrency for name, each in executor.actions.items()}
        self._slots = {name: asyncio.Semaphore(count) for name, count in slots.items()}
        deadlines = [each.deadline_s for each in executor.actions.values()]
        self._lease_s = max(deadlines, default=0.0) + LEASE_MARGIN_S
        self._independent = [n for n, each in executor.actions.items() if each.independent]
        self._askable = [n for n, each in executor.actions.items() if askable(each)]

    def stop(self) -> None:
        """Begin no call any more, let those in flight end, publish what they gave. Any thread."""
        self._stopping.set()
        self._wake()

    def run(self) -> None:
        """Work until `stop` is called."""
        threads = [
            Thread(target=self._intake.run, name="intake", daemon=True),
            Thread(target=self._answers.run, name="answers", daemon=True),
        ]
        for each in threads:
            each.start()
        try:
            asyncio.run(self._work())
        finally:
            self._stopping.set()
            for each in threads:
                each.join()
            self._ledger.close()

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._due.set)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        recording = asyncio.create_task(self._record())
        scanned_s = 0.0
        while not self._stopping.is_set():
            self._due.clear()
            try:
                if monotonic() - scanned_s >= SCAN_S:
                    await self._scan()
                    scanned_s = monotonic()
                begun = await self._begin()
            except ServerError as away:
                _LOG.warning("the ledger cannot be read", error=str(away))
                await asyncio.sleep(PAUSE_S)
                continue
            if not begun:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._due.wait(), IDLE_S)
        await asyncio.gather(*self._calls)
        await self._ends.join()
        recording.cancel()

    async def _begin(self) -> int:
        free = IN_FLIGHT - len(self._calls)
        if free <= 0:
            return 0
        claimed = await asyncio.to_thread(
            self._ledger.claim, self._executor.target, free, self._lease_s, self._independent
        )
        self._start(claimed, unknown=False)
        return len(claimed)

    async def _scan(self) -> None:
        target = self._executor.target
        for key in await asyncio.to_thread(self._ledger.run_out, target):
            _LOG.error("unknown: its worker did not come back", key=key)
        free = IN_FLIGHT - len(self._calls)
        if self._askable and free > 0:
            found = await asyncio.to_thread(
                self._ledger.ask, target, self._askable, free, self._lease_s
            )
            self._start(found, unknown=True)

    def _start(self, claimed: Sequence[Claimed], *, unknown: bool) -> None:
        for each in claimed:
            task = asyncio.create_task(self._one(each, unknown=unknown))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _one(self, claimed: Claimed, *, unknown: bool) -> None:
        action = self._executor.actions[claimed.type]
        async with self._slots[claimed.type]:
            end = await (asked if unknown else called)(action, claimed)
        self._ends.put_nowait(end)

    async def _record(self) -> None:
        while True:
            ends = [await self._ends.get()]
            while not self._ends.empty():
                ends.append(self._ends.get_nowait())
            await self._settled(ends)
            for _ in ends:
                self._ends.task_done()

    async def _settled(self, ends: list[Ended]) -> None:
        while True:
            try:
                await asyncio.to_thread(self._ledger.settle, ends)
            except ServerError as away:
                _LOG.warning("results are not recorded yet", error=str(away))
                await asyncio.sleep(PAUSE_S)
                continue
            self._answers.wake()
            self._due.set()
            return
