"""Every option of a Kafka client, once, with its reason; what the protocol fixes stays fixed.

Law of this module: pure functions from `Settings` to the dict that a client is built from.
A user's own option replaces a default and is refused where the protocol depends on ours.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from refold.schemas.errors import Code, UsageError, nearest
from refold.topics.client_logs import client_logger
from refold.topics.settings import Option, Settings, place_of
from refold.topics.specs import EVENT_BYTES, REJECTED_SPARE_BYTES

Config: TypeAlias = dict[str, Option]
Client = TypeVar("Client")

_ALIASES: Final = {
    "acks": "request.required.acks",
    "retries": "message.send.max.retries",
    "metadata.broker.list": "bootstrap.servers",
    "delivery.timeout.ms": "message.timeout.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
}
"""librdkafka knows some options under two names; a ban must not be passed by the other name."""

_FIXED_ALWAYS: Final = {
    "bootstrap.servers": "it is kafka.bootstrap",
    "allow.auto.create.topics": "a topic made by accident has the wrong partition count",
}
_FIXED_PRODUCER: Final = {
    "enable.idempotence": "without it a broker's restart reorders and doubles records",
    "request.required.acks": "a record counts only when all replicas in sync have it",
    "max.in.flight.requests.per.connection": "more than 5 breaks the order that idempotence keeps",
    "message.send.max.retries": "records are given up by time, never by count",
    "partitioner": "all producers must agree with f(key), murmur2",
    "transactional.id": "it belongs to one producer object and names a partition's owner (P4)",
    "transaction.timeout.ms": "it is worker.transaction_timeout_ms",
    "enable.gapless.guarantee": "an abortable error must stay abortable",
}
_FIXED_CONSUMER: Final = {
    "group.id": "it is worker.group",
    "group.protocol": "it is worker.group_protocol",
    "session.timeout.ms": "it is worker.session_timeout_ms",
    "enable.auto.commit": "offsets are committed inside the transaction of their records",
    "enable.auto.offset.store": "offsets are committed inside the transaction of their records",
    "auto.offset.reset": "a moved or lost offset is a fence, never a silent jump",
    "isolation.level": "an aborted record must not be folded",
    "partition.assignment.strategy": "ownership changes one partition at a time (P2)",
    "enable.partition.eof": "readers need it and members of a group must not have it",
    "message.max.bytes": "it is the producer's",
}


_UNKNOWN_OPTION: Final = re.compile(r'No such configuration property: "([^"]+)"')


def worker_consumer_config(settings: Settings, name: str = "refold") -> Config:
    """The one consumer of a worker.

    Args:
        settings: Settings of this process.
        name: The worker's: the group's members are known by it.
    """
    session_ms = settings.worker.session_timeout_ms
    group: Config = {"group.id": settings.group, "group.protocol": settings.worker.group_protocol}
    if settings.worker.group_protocol == "classic":
        group |= {
            "partition.assignment.strategy": "cooperative-sticky",  # never eager (P2)
            "session.timeout.ms": session_ms,  # the greater part of a takeover
            "heartbeat.interval.ms": max(1, session_ms // 4),  # three may be lost
        }
    # A fetch that waits for idle partitions holds back a partition that was just taken.
    group |= {"fetch.wait.max.ms": 50, "queued.min.messages": 50_000}
    ours = {**group, **_READING, "client.id": name}
    return _built(settings, settings.kafka.consumer, _FIXED_CONSUMER, ours)


def reader_config(settings: Settings, name: str = "reader") -> Config:
    """A consumer that joins no group: replay, tools, the schema topic.

    Args:
        settings: Settings of this process.
        name: Stands in the group id that the client demands and never uses.
    """
    group: Config = {
        "group.id": f"{settings.namespace}.{name}.none",
        "enable.partition.eof": True,  # the last stable offset tells that it is reached
        "fetch.wait.max.ms": 10,  # the end is told by an empty answer; the default waits 500 ms
    }
    return _built(settings, settings.kafka.consumer, _FIXED_CONSUMER, group | _READING)


def executor_consumer_config(settings: Settings, group: str, name: str = "refold") -> Config:
    """The consumer of a command topic: read committed, from the first command on, by hand.

    Args:
        settings: Settings of this process.
        group: Consumer group.
        name: The process's: the group's members are known by it.
    """
    session_ms = settings.executor.session_timeout_ms
    fixed: Config = {
        **_READING,
        "group.id": group,
        "client.id": name,
        "auto.offset.reset": "earliest",  # a new group begins with the first command
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": max(1, session_ms // 4),  # three may be lost
        "fetch.wait.max.ms": 50,  # a fetch that waits for idle partitions holds back a new one
    }
    return _built(settings, settings.kafka.consumer, _FIXED_CONSUMER, fixed)


def transactional_producer_config(settings: Settings, transactional_id: str) -> Config:
    """The one producer of a worker.

    Args:
        settings: Settings of this process.
        transactional_id: Never used before by any producer object (P4).
    """
    config: Config = {
        **_WRITING,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.worker.transaction_timeout_ms,
        # AddOffsetsToTxn meets CONCURRENT_TRANSACTIONS while the last markers are in work; the
        # default back-off of 100 ms makes a small transaction take 97 ms instead of 4.
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 5,
        "linger.ms": 5,  # fills batches while a batch is folded; the commit flushes at once
    }
    return _built(settings, settings.kafka.producer, _FIXED_PRODUCER, config)


def publisher_config(settings: Settings, delivery_timeout_ms: int = 30_000) -> Config:
    """A producer of events.

    Args:
        settings: Settings of this process.
        delivery_timeout_ms: After it an undelivered record is given up, outcome unknown.
    """
    config: Config = {
        **_WRITING,
        "message.timeout.ms": delivery_timeout_ms,
        "linger.ms": 1,  # a caller waits for each send; a burst still fills batches
    }
    return _built(settings, settings.kafka.producer, _FIXED_PRODUCER, config)


def admin_config(settings: Settings) -> Config:
    """The admin client: addresses and security alone."""
    return _built(settings, {}, {}, {"client.id": "refold"})


_READING: Final[Config] = {
    "client.id": "refold",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,  # a flipped bit is an error here, not a wrong state
    "fetch.error.backoff.ms": 50,  # the default of 500 ms would be seen in a takeover
    "topic.metadata.refresh.interval.ms": 30_000,  # a raised partition count is noticed by then
}
_WRITING: Final[Config] = {
    "client.id": "refold",
    "enable.idempotence": True,  # order and no doubles within a session
    "acks": "all",
    "partitioner": "murmur2_random",  # what Java's default partitioner does with a key
    "message.max.bytes": EVENT_BYTES + REJECTED_SPARE_BYTES,  # what the rejected topic takes
    "topic.metadata.propagation.max.ms": 5_000,  # a missing topic is an answer, not a time-out
}
_SECURITY: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
_KNOWN: Final = (
    "bootstrap",
    "producer",
    "consumer",
    *_SECURITY,
    *_READING,
    *_WRITING,
    *_FIXED_PRODUCER,
    *_FIXED_CONSUMER,
)
"""Names that a misspelt option may have meant."""


def opened(kind: Callable[..., Client], config: Config) -> Client:
    """Make a client, as in `opened(Producer, config)`; what it logs is told seldom.

    Raises:
        UsageError: BAD_SETTING, the client does not know an option or refuses its value.
    """
    try:
        return kind(config, logger=client_logger())
    except (KafkaException, ValueError, TypeError) as failure:
        cause = failure.args[0] if failure.args else failure
        said = cause.str() if isinstance(cause, KafkaError) else str(cause)
        raise _refused(said) from failure


def _refused(said: str) -> UsageError:
    """The client's own words; for an option that it does not know, where it stands."""
    unknown = _UNKNOWN_OPTION.search(said)
    if unknown is None:
        return UsageError(
            Code.BAD_SETTING, f"the Kafka client refuses its options: {said}.", "Correct [kafka]."
        )
    name = unknown[1]
    place = place_of("kafka", name)
    return UsageError(
        Code.BAD_SETTING,
        f"neither refold nor the Kafka client knows [kafka] {name} ({place}).",
        f"{nearest(name, _KNOWN)}Correct or remove it.",
    )


def reader(settings: Settings, name: str = "reader") -> Consumer:
    """A new group-less reader, as `reader_config` describes it."""
    return opened(Consumer, reader_config(settings, name))


def _built(
    settings: Settings, own: Mapping[str, Option], fixed: Mapping[str, str], ours: Config
) -> Config:
    config: Config = dict(ours)
    for section, given, banned in (
        ("kafka", settings.kafka.options, {**_FIXED_ALWAYS, **_FIXED_PRODUCER, **_FIXED_CONSUMER}),
        ("kafka.role", own, {**_FIXED_ALWAYS, **fixed}),
    ):
        for name, value in given.items():
            _check_free(section, name, value, banned)
            config.pop(_ALIASES.get(name, name), None)
            config[name] = value
    config["bootstrap.servers"] = settings.kafka.bootstrap
    return config


def _check_free(section: str, name: str, value: Option, banned: Mapping[str, str]) -> None:
    reason = banned.get(_ALIASES.get(name, name))
    if reason is not None:
        raise UsageError(
            Code.BAD_SETTING,
            f"[{section}] {name} = {value!r} cannot be set: {reason}.",
            "Remove it.",
        )
