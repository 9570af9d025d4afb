"""The worker: one loop, one consumer, one transactional producer, many partitions.

Law of this module: only this loop's thread touches the consumer (P1); ownership changes only in
the callbacks that run inside its `consume` (P2); everything slow happens on other threads and
comes back as data between two batches.
"""

import faulthandler
import os
import socket
from collections.abc import Callable, Mapping
from threading import Event
from time import monotonic, time
from uuid import uuid4

import structlog
from confluent_kafka import Consumer, KafkaException, Message

from refold.processors.assignment import Assignment
from refold.processors.clients import Admin, Clients
from refold.processors.definition import Workflow
from refold.processors.examination import Preflight
from refold.processors.health import Health
from refold.processors.horizon import Horizon
from refold.processors.keeping import Keeper, evict
from refold.processors.loading import Loader
from refold.processors.options import Options
from refold.processors.ownership import Taker
from refold.processors.payloads import Payloads
from refold.processors.ringing import Ringing
from refold.processors.rounds import Rounds
from refold.processors.saver import Saver
from refold.processors.transaction import Finished, Transactor
from refold.processors.vocabulary import LOOP_SILENT_S, Vocabulary
from refold.schemas.errors import InvariantViolation, ServerError
from refold.snapshots.ports import Store

_LOG = structlog.get_logger("refold.worker")
BUSY_S = 0.02
"""Wait of a loop that expects an answer from another thread."""


class Worker:
    """Folds the partitions that the group assigns to it, until it is stopped.

    Args:
        options: Settings.
        workflows: What it folds, by workflow name; every member of a group folds the same.
        clients: Kafka.
        store: PostgreSQL.
        preflight: Checks a topic before a partition of it is taken.
        clock: Monotonic seconds.
        wall: Seconds since the epoch: tells when timers are due, and nothing else.
    """

    def __init__(
        self,
        options: Options,
        workflows: Mapping[str, Workflow],
        clients: Clients,
        store: Store,
        preflight: Preflight,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self.options = options
        self.name = options.name or f"{socket.gethostname()}-{os.getpid()}"
        self.health = Health(self.name)
        self._clients = clients
        self._store = store
        self._clock = clock
        self._stop = Event()
        self._topics = {
            f"{options.namespace}.{name}.events": each for name, each in workflows.items()
        }
        self._saver = Saver(store)
        self._keeper = Keeper(options, self._saver, clock)
        self._vocabulary = Vocabulary(options.namespace, workflows.values(), clients, LOOP_SILENT_S)
        self._loader = Loader(options.namespace, clients, store)
        self._taker = Taker(options, clients, store, Admin(clients), preflight)
        self._assignment = Assignment(
            options, self._topics, self._taker, self._keeper, self._saver, clock
        )
        horizon = Horizon(store, options.horizon_s, options.retry_s, clock, self._assignment.drop)
        timed = any(each.timed for each in workflows.values())
        self._ringing = Ringing(options, self._assignment, horizon, clock, wall, timed=timed)
        self._rounds = Rounds(
            options,
            self._assignment,
            self._loader,
            self._keeper,
            store,
            Payloads(clients),
            self._vocabulary,
            self._ringing,
            clock,
        )
        self._transactor: Transactor | None = None
        self._produce_at_s = 0.0
        """When a producer may be asked for again that Kafka refused."""

    def stop(self) -> None:
        """Ask the loop to finish: last cut, partitions given back, group left. Any thread."""
        self._stop.set()

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            ServerError: Kafka refuses this client for good (rights, missing topics at start).
            InvariantViolation: A bug; the process should end with it.
        """
        self._announce()
        self._saver.start()
        consumer = self._clients.consumer()
        assignment = self._assignment
        try:
            consumer.subscribe(
                list(self._topics),
                on_assign=assignment.assigned,
                on_revoke=assignment.revoked,
                on_lost=assignment.lost,
            )
            assignment.consumer = consumer
            while not self._stop.is_set():
                self._watch()
                self._turn(consumer)
        finally:
            self._watch()  # a take that a frozen server never answers must not keep the process
            self._close(consumer)
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        """Arm the watchdog again: a loop that hangs ends the process with its traceback (P12)."""
        faulthandler.dump_traceback_later(self.options.watchdog_s, exit=True)

    def _announce(self) -> None:
        """Put the schemas on the log before anything is written with them."""
        while not self._stop.is_set():
            try:
                self._vocabulary.publish()
            except ServerError as error:
                _LOG.warning("the schemas are not published yet", error=str(error))
                self._stop.wait(self.options.retry_s)
            else:
                return

    def _turn(self, consumer: Consumer) -> None:
        """One turn of the loop: settle what other threads did, then one batch."""
        assignment = self._assignment
        finished = assignment.retired or self._transactor is None
        if finished and self._clock() >= self._produce_at_s:
            self._new_producer()
        self._settle()
        messages = self._gather(consumer)
        if (messages or self._ringing.due(self._rounds.held_back)) and self._transactor is not None:
            try:
                self._rounds.run(consumer, messages, self._transactor)
            except Finished as end:
                _LOG.warning("the producer is finished", error=str(end))
                assignment.retire()
        owned = list(assignment.partitions.values())
        self._keeper.due(owned)
        if not messages:  # under load they are encoded while commits are under way
            self._keeper.idle()
        evict(owned, self.options.instances, self._rounds.awaited)
        self.health.publish(assignment, self._keeper, self._rounds, self._ringing)

    def _settle(self) -> None:
        for done in self._saver.done():
            name = (done.job.topic, done.job.partition)
            partition = self._assignment.partitions.get(name)
            if partition is not None and isinstance(done.error, InvariantViolation):
                self._assignment.fence(name, done.error)
            elif not self._keeper.settle(done, partition):
                self._assignment.drop(name, "another owner has claimed it")
        if self._transactor is not None:
            self._assignment.advance(self._transactor.id)
        self._assignment.examine()
        self._ringing.settle()
        self._rounds.settle()

    def _gather(self, consumer: Consumer) -> list[Message]:
        """Take what is there: wait for the first record, then close on an empty queue (P10)."""
        wait_s = BUSY_S if self._assignment.busy or self._rounds.busy else self.options.gather_s
        messages = consumer.consume(1, self._ringing.wait_s(wait_s, self._rounds.held_back))
        if not messages:
            return []
        gap_s = 0.0
        if self._transactor is not None:
            gap_s = self._transactor.ended_s + self.options.transaction_gap_s - monotonic()
        messages += consumer.consume(self.options.batch_records - 1, max(0.0, gap_s))
        return messages

    def _new_producer(self) -> None:
        """A producer under an id that nobody used before (P4, P6)."""
        identity = f"{self.options.namespace[:24]}-{uuid4().hex[:16]}"
        if self._transactor is not None:
            self._transactor.leave()
            self._transactor = None
        transactor = Transactor(self._clients.producer(identity), identity, deadline_s=5.0)
        try:
            transactor.start()
        except ServerError as error:
            _LOG.warning("no producer yet", error=str(error))
            transactor.leave()
            self._produce_at_s = self._clock() + self.options.retry_s
            return
        self._transactor = transactor
        self._assignment.restart()

    def _close(self, consumer: Consumer) -> None:
        self._assignment.give_back()
        try:
            consumer.close()
        except KafkaException as failure:
            _LOG.warning("the consumer did not close cleanly", error=str(failure))
        self._taker.close()
        self._loader.close()
        self._ringing.close()
        self._rounds.close()
        self._saver.close()
        self._vocabulary.close()
        self._store.close()
