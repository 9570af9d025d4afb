"""Results go back as events: read from the ledger, published, forgotten when Kafka has them.

Law of this module: a result is published at least once and folded once, for its id is derived from
the action's key (P30).
"""

from collections.abc import Callable
from threading import Event
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from refold.executors.ledger import Ledger
from refold.executors.model import Result
from refold.schemas.errors import ServerError
from refold.topics.clients import opened, publisher_config
from refold.topics.records import event_headers
from refold.topics.settings import Settings

_LOG = structlog.get_logger("refold.answers")
IDLE_S: Final = 1.0
"""What other processes wrote is looked for at least that often."""
DELIVERY_S: Final = 30.0


class Answers:
    """Publishes the results of a ledger.

    Args:
        settings: Where Kafka is.
        target: Names the source of the events, `/<namespace>/<target>`.
        ledger: Where they are.
        stopping: Ends `run`.

    Contract: `run` on one thread; `wake` from any.
    """

    def __init__(self, settings: Settings, target: str, ledger: Ledger, stopping: Event) -> None:
        self._source = f"/{settings.namespace}/{target}"
        self._ledger = ledger
        self._stopping = stopping
        self._woken = Event()
        self._producer = opened(Producer, publisher_config(settings))

    def wake(self) -> None:
        """There is something to publish."""
        self._woken.set()

    def run(self) -> None:
        """Publish until stopping, and then what is left."""
        while not self._stopping.is_set():
            self._woken.wait(IDLE_S)
            self._woken.clear()
            self.once()
        self.once()

    def once(self) -> int:
        """Publish what is there; gives how many results Kafka has taken."""
        try:
            found = self._ledger.results()
            taken: list[int] = []
            for result in found:
                self._produce(result, taken)
            self._producer.flush(DELIVERY_S)
            if taken:
                self._ledger.published(taken)
        except (ServerError, KafkaException) as away:
            _LOG.warning("results are not published yet", error=str(away))
            return 0
        return len(taken)

    def _produce(self, result: Result, taken: list[int]) -> None:
        headers = event_headers(
            result.event_id,
            self._source,
            result.type,
            result.tenant,
            traceparent=result.trace or None,
        )
        done = _told(result.id, taken)
        while True:
            try:
                self._producer.produce(
                    result.topic, result.value, result.instance.encode(), headers=headers,
                    on_delivery=done,
                )  # fmt: skip
            except BufferError:
                self._producer.poll(0.05)
            else:
                return


def _told(number: int, taken: list[int]) -> Callable[[KafkaError | None, Message], None]:
    def told(error: KafkaError | None, _: Message) -> None:
        if error is None:
            taken.append(number)
        else:
            _LOG.warning("a result is not delivered", error=error.str())

    return told
