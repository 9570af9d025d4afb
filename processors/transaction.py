"""The worker's transactional producer: one transaction at a time, its end always known.

Law of this module: an error is one of three. Retriable: the same call again, until its answer
is definite (P8). Abortable: the transaction is aborted, the producer goes on. Fatal, or no
answer at all: this producer is finished, whatever it says about fencing (P6), and what became of
its transaction is told by the group's offset after the successor has fenced it.

Source: KIP-98, KIP-447, KIP-360; librdkafka's INTRODUCTION.md, "Transactional producer".
"""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from refold.schemas.errors import Code, ServerError

_LOG = structlog.get_logger("refold.transaction")
CALL_TIMEOUT_S: Final = 10.0
"""One blocking call; a retriable time-out only repeats it."""
ANSWER_S: Final = 25.0
"""A call that has not come back after so long never will: its time-out is not always kept
(librdkafka 2.16, after its broker was killed in the middle of a transaction; seen in a run)."""


class Aborted(Exception):  # noqa: N818  # an outcome
    """The transaction is aborted, the producer is good; `error` says why."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


class Finished(Exception):  # noqa: N818  # an outcome
    """The producer is finished; what became of the transaction only the group's offset tells."""


class Transactor:
    """One transactional producer under an id that nobody used before (P4).

    Args:
        producer: Not yet initialised.
        transactional_id: Its id: what a successor fences.
        deadline_s: Longest time in seconds that `start` keeps trying.
    """

    def __init__(self, producer: Producer, transactional_id: str, deadline_s: float = 60.0) -> None:
        self.producer = producer
        self.id = transactional_id
        self.ended_s = 0.0
        """Monotonic time at which the last transaction ended (P10)."""
        self._deadline_s = deadline_s
        self._calls = _Calls()

    def start(self) -> None:
        """`init_transactions`, repeated while the broker is away.

        Raises:
            ServerError: KAFKA_AWAY when the deadline passed; KAFKA_REFUSED when it may not.
        """
        initialise(self.producer, self._deadline_s)

    def leave(self) -> None:
        """End the thread of its calls, as soon as the last one has come back."""
        self._calls.leave()

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            Finished: The producer is in a state that nobody knows.
        """
        try:
            self.producer.begin_transaction()
        except KafkaException as failure:
            raise Finished(str(failure)) from failure

    def commit(
        self,
        offsets: Sequence[TopicPartition],
        member: Any,
        meanwhile: Callable[[], bool] = lambda: False,
    ) -> None:
        """Add the offsets and commit; returns only when the commit is known.

        Args:
            offsets: Next offset and metadata of every partition written for (P3).
            member: Group metadata read after the consume that closed the batch (P2).
            meanwhile: A bit of other work, done again and again until the answer is there or it
                gives False. It touches neither client.

        Raises:
            Aborted: Nothing of the transaction is visible.
            Finished: Unknown; fence this producer, then read the group's offset.
        """

        def work() -> None:
            self.producer.send_offsets_to_transaction(list(offsets), member, CALL_TIMEOUT_S)
            _repeated(lambda: self.producer.commit_transaction(CALL_TIMEOUT_S))

        try:
            self._calls.run(work, meanwhile)
        except KafkaException as failure:
            self.judge(failure)
        self.ended_s = monotonic()

    def abort(self) -> None:
        """Abort the open transaction.

        Raises:
            Finished: The producer is fatal or does not answer.
        """
        try:
            self._calls.run(
                lambda: _repeated(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S))
            )
        except KafkaException as failure:
            raise Finished(str(failure)) from failure
        self.ended_s = monotonic()

    def judge(self, failure: KafkaException) -> None:
        """Turn an error of `produce` or of a call into Aborted or Finished; always raises."""
        error: KafkaError = failure.args[0]
        if error.fatal() or error.retriable():  # a retriable one was repeated, or may not be
            raise Finished(str(error)) from failure
        self.abort()
        raise Aborted(error) from failure


class _Calls:
    """Runs blocking calls on a thread of its own, so that one that hangs can be left behind."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ends: SimpleQueue[BaseException | None] = SimpleQueue()
        Thread(target=self._serve, name="transactions", daemon=True).start()

    def leave(self) -> None:
        """No call will follow."""
        self._work.put(None)

    def run(self, work: Callable[[], None], meanwhile: Callable[[], bool] | None = None) -> None:
        """Run a call and wait for its end.

        Raises:
            Finished: It did not come back; the thread is left behind.
            KafkaException: What the call raised.
        """
        self._work.put(work)
        while meanwhile is not None and self._ends.empty() and meanwhile():
            sleep(0)  # the calling thread needs the interpreter for a moment between two calls
        try:
            end = self._ends.get(timeout=ANSWER_S)
        except Empty:
            raise Finished(f"no answer for {ANSWER_S:.0f} s") from None
        if end is not None:
            raise end

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as end:  # carried to the caller, whatever it is
                self._ends.put(end)
            else:
                self._ends.put(None)


def _repeated(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.fatal() or not error.retriable():
                raise
            _LOG.info("tried again", error=error.str())
        else:
            return


def initialise(producer: Producer, deadline_s: float) -> None:
    """Run `init_transactions`, which aborts and fences whoever used the id before.

    Raises:
        ServerError: KAFKA_AWAY after the deadline; KAFKA_REFUSED for want of rights.
    """
    end_s = monotonic() + deadline_s
    while True:
        try:
            producer.init_transactions(min(CALL_TIMEOUT_S, deadline_s))
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if not error.retriable():
                raise ServerError(
                    Code.KAFKA_REFUSED,
                    f"Kafka refused to start a transactional producer: {error.str()}.",
                    "Check the worker's rights on its transactional ids (docs/security.md).",
                ) from failure
            if monotonic() > end_s:
                raise ServerError(
                    Code.KAFKA_AWAY,
                    f"Kafka did not start a transactional producer: {error.str()}.",
                    "Check that the brokers are reachable; refold goes on trying.",
                ) from failure
        else:
            return
