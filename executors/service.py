"""The executor process: intake, calls, records and answers around one ledger.

Law of this module: composes; each part has its thread and wakes the next one directly. A stop
claims nothing more, lets calls end within the grace, records and publishes what they gave, and
leaves the others in flight with their lease: a successor clears them up.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from math import inf
from threading import Event, Thread
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition

from refold.executors.answers import Answers, result_of
from refold.executors.calls import End
from refold.executors.claiming import Claimer
from refold.executors.dispatch import Dispatch
from refold.executors.executor import Executor
from refold.executors.health import Health
from refold.executors.intake import Intake
from refold.executors.lanes import Lanes
from refold.executors.ledger import Ledger
from refold.executors.model import Status
from refold.executors.placing import Placing
from refold.executors.reading import Schemas
from refold.executors.recorder import Recorder
from refold.executors.scanner import Scanner
from refold.schemas.errors import ServerError
from refold.topics.announcing import announce
from refold.topics.clients import executor_consumer_config, opened
from refold.topics.settings import Settings

_LOG = structlog.get_logger("refold.executor")
END_S: Final = 10.0
"""Longest wait for a thread that should have ended."""
TURN_S: Final = 0.02
ANNOUNCE_S: Final = 1.0
"""Pause between two tries to announce the types of answers."""


class Service:
    """One executor process.

    Args:
        settings: Where Kafka and the ledger are; grace and limits.
        executor: What it does.
        name: Of this process in the rows; made from host and process id unless given.

    Raises:
        ServerError: The ledger's tables are missing or of another release.
    """

    def __init__(self, settings: Settings, executor: Executor, *, name: str = "") -> None:
        own = settings.executor
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        target, actions = executor.target, executor.actions
        self._settings, self._target, self._actions = settings, target, actions
        self._grace_s = own.grace_s
        self._stop = Event()
        self._ledger = Ledger(settings.ledger_dsn, self.name)
        self._lanes = Lanes(actions)
        self._schemas = Schemas(settings)
        self._answers = Answers(settings, target, self._ledger)
        self._recorder = Recorder(self._ledger, self._answers, self._settled)
        self._dispatch = Dispatch(
            actions, self._lanes, self._ledger, self._schemas, self._recorder.put, self._recorded
        )
        self._claimer = Claimer(
            target, actions, self._ledger, self._lanes, self._schemas, self._answers.look,
            self._dispatch.start, self._recorder.put,
        )  # fmt: skip
        self._scanner = Scanner(
            target, actions, self._ledger, self._lanes, self._schemas, self._dispatch,
            self._claimer, self._answers, self._recorder.put, own.stuck_after_s,
            own.horizon_days * 86_400,
        )  # fmt: skip
        group = own.group or f"{settings.namespace}.{target}.executors"
        config: dict[str, Any] = dict(executor_consumer_config(settings, group, self.name))
        # The ledger says where it reads on; a place that the log has lost is told, never passed.
        config |= {"auto.offset.reset": "error", "on_commit": self._committed}
        consumer: Consumer = opened(Consumer, config)
        self._intake = Intake(
            executor, consumer, Placing(settings, target, self._ledger), self._ledger, self._lanes,
            self._schemas, self._dispatch, self._claimer,
        )  # fmt: skip
        self.health = Health(
            self.name, target, self._intake, self._recorder, self._answers, self._scanner,
            self._dispatch, self._lanes,
        )  # fmt: skip
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Begin no call any more, let those in flight end, publish what they gave. Any thread."""
        self._stop.set()

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            BaseException: What ended one of the threads: a bug, the process should end with it.
        """
        loop = asyncio.new_event_loop()
        try:
            loop.run_until_complete(self._work())
        finally:
            for each in (
                self._intake, self._claimer, self._scanner, self._recorder, self._answers,
            ):  # fmt: skip
                each.stop()  # whatever ended the loop, nothing goes on behind it
            loop.close()
            self._schemas.close()
            self._ledger.close()
        if self._failure is not None:
            raise self._failure

    async def _work(self) -> None:
        self._dispatch.bind(asyncio.get_running_loop())
        sweeping = asyncio.create_task(self._dispatch.sweep())
        sweeping.add_done_callback(self._swept)
        taking = [
            self._thread("intake", self._take),
            self._thread("claimer", self._claimer.run),
            self._thread("scanner", self._scanner.run),
        ]
        recorder = self._thread("recorder", self._recorder.run)
        answers = self._thread("answers", self._answers.run)
        await self._until(self._stop.is_set)
        _LOG.info("stopping", calls=self._dispatch.in_flight)
        self.health.stopping = True
        for each in (self._intake, self._claimer, self._scanner):
            each.stop()
        end_s = monotonic() + self._grace_s
        await self._until(lambda: not any(each.is_alive() for each in taking), END_S)
        await self._until(lambda: not self._dispatch.pending, max(0.0, end_s - monotonic()))
        self._recorder.stop()
        await self._until(lambda: not recorder.is_alive(), END_S)
        self._answers.stop()
        await self._until(lambda: not answers.is_alive(), END_S)
        left = self._dispatch.pending
        if left:
            _LOG.warning("calls are left in flight: a successor clears them up", calls=left)
        sweeping.cancel()
        await self._dispatch.abandon()

    def _take(self) -> None:
        """Take commands in, once the types of their answers can be read by everybody."""
        types = {each for action in self._actions.values() for each in action.answers}
        while types and not self._stop.is_set():
            self._intake.at_s = monotonic()
            try:
                announce(self._settings, self._target, types)
            except ServerError as away:
                _LOG.warning("no commands are taken yet: answers' types wait", error=str(away))
                self._stop.wait(ANNOUNCE_S)
            else:
                break
        self._intake.run()

    def _thread(self, name: str, run: Callable[[], None]) -> Thread:
        def guarded() -> None:
            try:
                run()
            except BaseException as failure:
                _LOG.exception("a thread failed: the process ends", thread=name)
                self._failure = failure
                self._stop.set()

        thread = Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    async def _until(self, true: Callable[[], bool], most_s: float = inf) -> None:
        end_s = monotonic() + most_s
        while not true() and monotonic() < end_s:
            await asyncio.sleep(TURN_S)

    def _swept(self, sweeping: asyncio.Task[None]) -> None:
        """Nobody looks any more for calls that do not end: the process ends with the failure."""
        if not sweeping.cancelled():
            self._failure = sweeping.exception()
            self._stop.set()

    def _committed(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._intake.offsets.told(error, places)

    def _settled(self, ends: Sequence[End]) -> None:
        """Ends were recorded: rows that waited for them may begin."""
        self._claimer.wake()
        if any(each.ended.status is Status.UNKNOWN for each in ends):
            self._scanner.wake()

    def _recorded(self, end: End, later: bool) -> None:
        """A local action was recorded with its effect."""
        if end.ended.event_id:
            result = result_of(end.claimed, end.ended)
            self._answers.publish([result], [result.key] if later else [])
        self._recorder.count(end)
        self._settled([end])
