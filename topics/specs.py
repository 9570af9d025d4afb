"""The topics of a workflow as data, made and described in one place.

Law of this module: a `TopicSpec` says what must be true of a topic; `create` makes what is
missing and changes nothing that exists; `refold.topics.preflight` judges what is there.

| topic | key | cleanup | why |
| --- | --- | --- | --- |
| `<ns>.<workflow>.events` | instance id | delete, no retention bound | the log is the truth |
| `<ns>.<workflow>.rejected` | original key | the same, same partitions | the decision log (P13) |
| `<ns>.<target>.commands` | instance id | delete, no retention bound | an executor may be away |
| `<ns>.schemas` | SHA-256 of the text | compact | one record a schema, for ever |
"""

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from refold.schemas.errors import Code, UsageError
from refold.schemas.limits import name_fault
from refold.topics.failures import kafka_error

EVENT_BYTES: Final = 1_048_588
"""Largest batch of an event topic: the broker's own default, so that moving a topic changes it
not."""
PARTITIONS_MOST: Final = 100_000
"""Far beyond what one topic has anywhere: more is a slip, which the client cannot even express."""
REJECTED_SPARE_BYTES: Final = 65_536
"""What a rejected record may add to the largest event: reason, coordinates, header names."""
VISIBLE_PAUSE_S: Final = 0.05
BROKER_DEFAULT: Final = -1
"""Replication factor as the cluster's owner set it (`default.replication.factor`)."""


class TopicSpec(msgspec.Struct, frozen=True):
    """One topic: its name, how many partitions, and the settings that refold relies on."""

    name: str
    partitions: int
    config: Mapping[str, str]
    replication: int = BROKER_DEFAULT


_LOG: Final = {
    "cleanup.policy": "delete",  # never compact: an older event of a key is still an event
    "retention.ms": "-1",  # events are the truth; archiving moves the base, not this
    "retention.bytes": "-1",
}


def events_topic(namespace: str, workflow: str) -> str:
    """`<ns>.<workflow>.events`."""
    return f"{namespace}.{workflow}.events"


def rejected_topic(namespace: str, workflow: str) -> str:
    """`<ns>.<workflow>.rejected`: the decision log."""
    return f"{namespace}.{workflow}.rejected"


def commands_topic(namespace: str, target: str) -> str:
    """`<ns>.<target>.commands`."""
    return f"{namespace}.{target}.commands"


def schemas_topic(namespace: str) -> str:
    """`<ns>.schemas`."""
    return f"{namespace}.schemas"


def workflow_specs(
    namespace: str,
    workflow: str,
    targets: Iterable[str],
    partitions: int,
    replication: int = BROKER_DEFAULT,
) -> tuple[TopicSpec, ...]:
    """The topics that one workflow needs.

    Args:
        namespace: First part of the names.
        workflow: Name of the definition.
        targets: Targets of its command types; each has one topic, shared between workflows.
        partitions: Partitions of the event topic, 1 or more; fixed for the topic's life, since
            `f(key)` uses it. Command topics get as many.
        replication: Replicas of each partition; -1 leaves it to the broker.

    Raises:
        UsageError: BAD_SETTING, a name or the partition count cannot be.
    """
    if not 1 <= partitions <= PARTITIONS_MOST:
        raise UsageError(
            Code.BAD_SETTING, f"{partitions} partitions: 1 to {PARTITIONS_MOST:,} can be made."
        )
    for name in (namespace, workflow, *targets):
        fault = name_fault(name)
        if fault:
            raise UsageError(Code.BAD_SETTING, f"the name {name!r} {fault}.")
    events = {
        **_LOG,
        "message.timestamp.type": "LogAppendTime",  # fold time: fixed when the record was written
        "max.message.bytes": str(EVENT_BYTES),
    }
    rejected = {**events, "max.message.bytes": str(EVENT_BYTES + REJECTED_SPARE_BYTES)}
    return (
        TopicSpec(events_topic(namespace, workflow), partitions, events, replication),
        TopicSpec(rejected_topic(namespace, workflow), partitions, rejected, replication),
        *(
            TopicSpec(commands_topic(namespace, target), partitions, dict(_LOG), replication)
            for target in sorted(set(targets))
        ),
        TopicSpec(schemas_topic(namespace), 1, {"cleanup.policy": "compact"}, replication),
    )


class Made(msgspec.Struct, frozen=True):
    """What `create` did about one topic."""

    name: str
    created: bool


def create(
    admin: AdminClient, specs: Sequence[TopicSpec], timeout_s: float = 30.0
) -> tuple[Made, ...]:
    """Create the topics that do not exist; an existing one is left as it is.

    Raises:
        ServerError: KAFKA_REFUSED or KAFKA_AWAY, with the broker's own words.
    """
    wanted = [
        NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=spec.replication,
            config=dict(spec.config),
        )
        for spec in specs
    ]
    futures = admin.create_topics(wanted, request_timeout=timeout_s)
    made = []
    for name, future in futures.items():
        try:
            future.result(timeout_s + 5.0)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise kafka_error(error, f"creating topic {name}") from error
            made.append(Made(name, created=False))
        else:
            made.append(Made(name, created=True))
    _await_visible(admin, [spec.name for spec in specs], timeout_s)
    return tuple(made)


def _await_visible(admin: AdminClient, names: Sequence[str], timeout_s: float) -> None:
    """Wait until the broker that is asked knows the topics: the controller tells it a bit later."""
    deadline_s = monotonic() + timeout_s
    while True:
        described = admin.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        failures = [each.exception(timeout_s + 5.0) for each in described.values()]
        failed = next((each for each in failures if isinstance(each, KafkaException)), None)
        if failed is None:
            return
        unknown = failed.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if not unknown or monotonic() > deadline_s:
            raise kafka_error(failed, "describing the new topics") from failed
        sleep(VISIBLE_PAUSE_S)
