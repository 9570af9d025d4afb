"""Results go back as events: published when they are recorded, forgotten when Kafka has them.

Law of this module: a result is published at least once and folded once, for its id is derived
from the action's key (P30). Events of one instance go out in the order in which they were
recorded: one whose forerunner is not known to be on the log goes out behind it, by the relay,
which publishes both; the first of each in the log are in order.
"""

from collections.abc import Callable, Collection, Iterable
from threading import Event, Lock
from time import monotonic, time_ns
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Ended, Result
from refold.processors.health import BACK
from refold.schemas.envelope import Answer, Outcome
from refold.schemas.errors import RecordError, ServerError
from refold.topics.clients import opened, publisher_config
from refold.topics.failures import kafka_error
from refold.topics.records import event_headers
from refold.topics.settings import Settings
from refold.topics.times import rfc3339

_LOG = structlog.get_logger("refold.answers")
FORGET_S: Final = 0.05
"""What Kafka has is forgotten with the next ends that are recorded, or after this."""
FORGET_MOST: Final = 1000
LEFT_S: Final = 2.0
"""Results that are so old were left by somebody who died, or could not be delivered."""
RELAY_S: Final = 1.0
PAUSE_S: Final = 0.2
DELIVERY_S: Final = 30.0
POLL_S: Final = 0.05


def result_of(claimed: Claimed, ended: Ended) -> Result:
    """The event that tells how a call ended, as the ledger keeps it."""
    return Result(
        key=claimed.key,
        topic=claimed.reply_to,
        instance=claimed.instance,
        tenant=claimed.tenant,
        event_id=ended.event_id,
        type=ended.type,
        value=ended.value,
        attempt=ended.attempt,
        outcome=ended.outcome,
        trace=claimed.trace,
    )


class Answers:
    """Publishes the results of a target.

    Args:
        settings: Where Kafka is.
        target: Whose: it names the source of the events, `/refold/executor/<target>`. Other
            targets of the same ledger have executors of their own.
        ledger: Where they are.

    Contract: `run` on one thread; `publish`, `acknowledged` and `keep` from any.
    """

    def __init__(self, settings: Settings, target: str, ledger: Ledger) -> None:
        self._target = target
        self._source = f"/refold/executor/{target}"
        self._bootstrap = settings.kafka.bootstrap
        self._ledger = ledger
        self._stopping = Event()
        self._woken = Event()
        self._lock = Lock()
        self._taken: list[str] = []
        """Ids of events that Kafka has, and the ledger has not forgotten yet."""
        self._out: set[str] = set()
        """Ids of events that wait for their acknowledgement."""
        self._relay_s = 0.0
        self._forget_s = 0.0
        """When what Kafka has is forgotten, unless ends are recorded before."""
        self._producer = opened(Producer, publisher_config(settings) | {"linger.ms": 0})
        self._troubles: dict[str, tuple[str, float]] = {}
        """Topic → code of what keeps its results here, and when that was last seen."""

    def publish(self, results: Iterable[Result], later: Collection[str] = ()) -> None:
        """Send events that were just recorded.

        Args:
            results: What was recorded, in order.
            later: Keys whose forerunners may not be on the log yet: left to the relay.
        """
        now = _now()
        for result in results:
            if result.key in later:
                self._relay_s = 0.0
            elif not self._produce(result, now):
                break  # what follows must not overtake it: the relay takes all of them
        self._woken.set()

    def look(self) -> None:
        """Somebody has left a result just now."""
        self._relay_s = 0.0
        self._woken.set()

    def acknowledged(self) -> list[str]:
        """Ids of events that Kafka has, to be forgotten; the caller sees to it."""
        self._forget_s = monotonic() + FORGET_S
        with self._lock:
            taken, self._taken = self._taken, []
        return taken

    def keep(self, ids: list[str]) -> None:
        """These were not forgotten after all."""
        with self._lock:
            self._taken = ids + self._taken

    @property
    def away(self) -> str:
        """Code of what keeps results here; empty where nothing does."""
        return next((code for code, _ in [*self._troubles.values()]), "")

    @property
    def outstanding(self) -> int:
        """Events that wait for Kafka's acknowledgement."""
        return len(self._out)

    def stop(self) -> None:
        """Wait a last time for what is on its way, then end."""
        self._stopping.set()
        self._woken.set()

    def run(self) -> None:
        """Take acknowledgements, forget, and relay what was left, until stopped."""
        while not self._stopping.is_set():
            if self._out:
                self._producer.poll(POLL_S)
            else:
                self._woken.wait(FORGET_S if self._taken else RELAY_S)
                self._woken.clear()
            now_s = monotonic()
            if self._taken and (now_s > self._forget_s or len(self._taken) > FORGET_MOST):
                self._forget()
            if now_s > self._relay_s:
                self._relay_s = now_s + RELAY_S
                self._relay()
        self._producer.flush(DELIVERY_S)
        self._forget()

    def _relay(self) -> None:
        """Publish what somebody left, instance by instance in order."""
        try:
            found = self._ledger.results(self._target, LEFT_S)
        except ServerError as away:
            _LOG.warning("results that were left cannot be read", error=str(away))
            return
        with self._lock:
            there = set(self._taken)
        now = _now()
        self._forget_troubles({each.topic for each in found}, monotonic())
        for result in found:
            if result.event_id not in there and not self._produce(result, now):
                return

    def _forget_troubles(self, topics: Collection[str], now_s: float) -> None:
        """Where nothing is left to be sent there is no trouble any more."""
        for topic, (_, told_s) in list(self._troubles.items()):
            if topic not in topics and now_s > told_s + 2 * LEFT_S and not self._out:
                self._troubles.pop(topic, None)

    def _forget(self) -> None:
        taken = self.acknowledged()
        try:
            if taken:
                self._ledger.published(taken)
        except ServerError as away:
            self.keep(taken)
            _LOG.warning("published results are not forgotten yet", error=str(away))
            self._stopping.wait(PAUSE_S)

    def _produce(self, result: Result, now: str) -> bool:
        """Give an event to the client; False where it takes none."""
        if result.event_id in self._out:
            return True
        try:
            headers = event_headers(
                result.event_id,
                self._source,
                result.type,
                result.tenant,
                time=now,
                traceparent=result.trace or None,
                answer=Answer(result.key, result.attempt, Outcome(result.outcome)),
            )
            with self._lock:
                self._out.add(result.event_id)
            self._producer.produce(
                result.topic, result.value, result.instance.encode(), headers=headers,
                on_delivery=self._reporter(result.event_id, result.topic),
            )  # fmt: skip
        except BufferError:  # Kafka is away for long: the ledger keeps it
            self._out.discard(result.event_id)
            return False
        except KafkaException as refused:  # of this topic: those of others go on
            self._out.discard(result.event_id)
            self._tell_away(result.topic, refused.args[0])
            return True
        except RecordError as refused:
            self._out.discard(result.event_id)
            _LOG.error("a result cannot be sent", key=result.key, error=str(refused))
            return True
        return True

    def _reporter(self, event_id: str, topic: str) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, _: Message) -> None:
            with self._lock:
                self._out.discard(event_id)
                if error is None:
                    self._taken.append(event_id)
            if error is not None:
                self._tell_away(topic, error)
            elif topic in self._troubles:
                self._troubles.pop(topic, None)
                _LOG.info(BACK, topic=topic)

        return report

    def _tell_away(self, topic: str, error: KafkaError) -> None:
        told = kafka_error(error, f"publishing results to {topic}", bootstrap=self._bootstrap)
        before = self._troubles.get(topic)
        self._troubles[topic] = (str(told.code), monotonic())
        if before is not None and before[0] == told.code:
            return  # as it was told
        _LOG.warning("a result is not delivered; it is tried again", error=str(told))


def _now() -> str:
    """The time that events carry, once a batch: to write it costs more than to send it."""
    return rfc3339(time_ns() // 1_000_000)
