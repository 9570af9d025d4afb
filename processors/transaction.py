"""The worker's transactional producer: one transaction at a time, its end always known.

Law of this module: an error is one of three. Retriable: the same call again, until its answer
is definite (P8). Abortable: the transaction is aborted, the producer goes on. Fatal: this
producer is finished, whatever it says about fencing (P6).

Source: KIP-98, KIP-447, KIP-360; librdkafka's INTRODUCTION.md, "Transactional producer".
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from refold.schemas.errors import Code, ServerError

_LOG = structlog.get_logger("refold.transaction")
CALL_TIMEOUT_S = 10.0
"""One blocking call; a retriable time-out only repeats it."""


class Aborted(Exception):  # noqa: N818
    """The transaction is aborted, the producer is good; `error` says why."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


class Finished(Exception):  # noqa: N818
    """The producer is finished; what became of the transaction only the group's offset tells."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error


class Transactor:
    """One transactional producer under an id that nobody used before (P4).

    Args:
        producer: Not yet initialised.
        transactional_id: Its id: what a successor fences.
        deadline_s: Longest time in seconds that `start` keeps trying.
        alive: Called whenever a call is repeated: the loop waits, it does not hang.
    """

    def __init__(
        self,
        producer: Producer,
        transactional_id: str,
        deadline_s: float = 60.0,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.producer = producer
        self.id = transactional_id
        self.ended_s = 0.0
        """Monotonic time at which the last transaction ended (P10)."""
        self._deadline_s = deadline_s
        self._alive = alive

    def start(self) -> None:
        """`init_transactions`, repeated while the broker is away.

        Raises:
            ServerError: KAFKA_AWAY when the deadline passed; KAFKA_REFUSED when it may not.
        """
        initialise(self.producer, self._deadline_s)

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            Finished: The producer is fatal.
        """
        try:
            self._repeat(self.producer.begin_transaction)
        except KafkaException as failure:  # there is nothing to abort: a state we do not know
            raise Finished(failure.args[0]) from failure

    def commit(self, offsets: Sequence[TopicPartition], member: Any) -> None:
        """Add the offsets and commit; returns only when the commit is known.

        Args:
            offsets: Next offset and metadata of every partition written for (P3).
            member: Group metadata read after the consume that closed the batch (P2).

        Raises:
            Aborted: Nothing of the transaction is visible.
            Finished: Unknown; read the group's offset.
        """
        try:
            self.producer.send_offsets_to_transaction(list(offsets), member, CALL_TIMEOUT_S)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.retriable():  # nothing can be committed yet: a new producer is quicker
                raise Finished(error) from failure
            self.judge(failure)
        self._call(lambda: self.producer.commit_transaction(CALL_TIMEOUT_S))
        self.ended_s = monotonic()

    def abort(self) -> None:
        """Abort the open transaction.

        Raises:
            Finished: The producer is fatal.
        """
        self._repeat(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S))
        self.ended_s = monotonic()

    def judge(self, failure: KafkaException) -> None:
        """Turn an error of `produce` or of a call into Aborted or Finished; always raises."""
        error: KafkaError = failure.args[0]
        if error.fatal():
            raise Finished(error) from failure
        self.abort()
        raise Aborted(error) from failure

    def _call(self, call: Callable[[], object]) -> None:
        try:
            self._repeat(call)
        except KafkaException as failure:
            self.judge(failure)

    def _repeat(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                if error.fatal():
                    raise Finished(error) from failure
                if not error.retriable():
                    raise
                _LOG.info("tried again", error=error.str())
                self._alive()
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
