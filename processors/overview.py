"""How everything stands: owners, markers, lag, fences and their cure, from Kafka and PostgreSQL.

Law of this module: reads only, and answers with what it can reach: without PostgreSQL fences are
not known and it says so, without Kafka owners and lag are not known and it says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from refold.processors.cluster import ANSWER_S, EARLIEST, LATEST
from refold.processors.judgement import CHOICES, Choice
from refold.processors.lag import lags
from refold.schemas.errors import Code, RefoldError, ServerError, UsageError
from refold.snapshots.queries import PartitionView, Queries
from refold.topics.failures import words
from refold.topics.specs import events_topic

_EVENTS: Final = ".events"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One live member of the worker group."""

    member: str
    worker: str
    """Its name, which is the client id: `<machine>-<process>-<random>` unless that is set."""
    host: str
    """Address that it comes from, as the broker sees it."""
    partitions: tuple[tuple[str, int], ...]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the group and the log stand for one partition."""

    low: int
    end: int
    """Last stable offset (P29)."""
    committed: int | None
    worker: str
    """Name of the member that holds it, empty where nobody does."""
    host: str


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of an event topic; None where the server that knows did not answer."""

    topic: str
    partition: int
    workflow: str
    worker: str | None
    """Name of the group's member that holds it; empty: nobody does."""
    host: str | None
    """Address of that member."""
    low: int | None
    end: int | None
    committed: int | None
    lag: int | None
    """Records that are not folded yet; far behind, offsets, which count control records too."""
    epoch: int | None
    released: bool | None
    marker: int | None
    rows_to: int | None
    fence: str
    """Code of the fence that its owner met, empty where there is none or it is not known."""
    fence_text: str = ""
    cure: str = ""
    alarm: str = ""
    """What its owner goes on with and a person should see: code and sentence."""
    parked: int | None = None
    """Instances that wait for a person."""
    choices: Mapping[str, str] = {}
    """What a person may choose, and what it does."""
    chosen: str = ""
    counts: Mapping[str, int] = {}


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one namespace."""

    namespace: str
    group: str
    kafka: str
    """Empty, or why owners and lag are not known."""
    postgres: str
    """Empty, or why markers and fences are not known."""
    members: Sequence[Member]
    partitions: Sequence[PartitionState]

    @property
    def good(self) -> bool:
        """True when both servers answered, nothing is fenced and everything has an owner."""
        fenced = any(each.fence for each in self.partitions)
        return not (self.kafka or self.postgres or fenced) and all(
            each.worker for each in self.partitions
        )


def overview(
    admin: AdminClient,
    reader: Callable[[], Consumer],
    queries: Queries,
    namespace: str,
    group: str,
    topic: str = "",
) -> Overview:
    """Ask both servers.

    Args:
        admin: Kafka.
        reader: Makes a group-less consumer, for the lag of partitions that are nearly there.
        queries: PostgreSQL.
        namespace: Whose topics.
        group: Consumer group of the workers.
        topic: Only this event topic.
    """
    places: Mapping[tuple[str, int], Place] = {}
    members: Sequence[Member] = ()
    rows: Mapping[tuple[str, int], PartitionView] = {}
    parked: Mapping[tuple[str, int], int] = {}
    behind: Mapping[tuple[str, int], int] = {}
    kafka = postgres = ""
    try:
        members = group_members(admin, group)
        places = _places(admin, group, members, _topics(admin, namespace, topic))
        rest = {name: (_next(place), place.end) for name, place in places.items()}
        behind = lags(rest, reader)
    except ServerError as away:
        kafka = f"{away.what} {away.cure} Owners and lag are not known."
    try:
        rows = {
            (each.topic, each.partition): each
            for each in queries.partitions()
            if each.topic == topic or (not topic and _is_ours(each.topic, namespace))
        }
        parked = queries.parked_counts()
    except RefoldError as away:
        # A cure that a person must do is told; a server that is away needs none.
        cure = "" if away.code == Code.POSTGRES_AWAY else f" {away.cure}"
        postgres = f"{away.what}{cure} Markers and fences are not known."
    names = sorted({*places, *rows})
    return Overview(
        namespace=namespace,
        group=group,
        kafka=kafka,
        postgres=postgres,
        members=members,
        partitions=[
            _state(name, places.get(name), rows.get(name), behind.get(name), parked)
            for name in names
        ],
    )


def group_members(admin: AdminClient, group: str) -> list[Member]:
    """The live members of a group and what they hold.

    Raises:
        ServerError: KAFKA_AWAY.
    """
    try:
        found = admin.describe_consumer_groups([group], request_timeout=ANSWER_S)
        described = found[group].result(ANSWER_S)
    except (KafkaException, TimeoutError) as failure:
        raise _away(f"describe the group {group}", failure) from failure
    return [
        Member(
            member=each.member_id,
            worker=each.client_id,
            host=each.host,
            partitions=tuple(
                sorted(
                    (held.topic, held.partition)
                    for held in (each.assignment.topic_partitions if each.assignment else ())
                )
            ),
        )
        for each in described.members
    ]


def choose(state: PartitionState, choice: str, who: str, reason: str, group: str = "") -> Choice:
    """What a person chooses for a fenced partition, checked.

    Args:
        state: Of the partition, PostgreSQL having answered.
        choice: One of the fence's choices.
        who: Name of the operator.
        reason: For the record.
        group: Group that folded the partition until now.

    Raises:
        UsageError: NOT_FOUND, the partition is not fenced or the choice is not one of its;
            BAD_COMMAND_LINE, who or reason is empty.
    """
    name = f"{state.topic}[{state.partition}]"
    if not state.fence:
        raise UsageError(
            Code.NOT_FOUND, f"{name} is not fenced.", "Look with `refold partitions list`."
        )
    if choice not in state.choices:
        listed = ", ".join(state.choices) or "none: see the page of the fence"
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{choice!r} is no choice for {state.fence} of {name}.",
            f"Its choices: {listed} (`refold explain {state.fence}`).",
        )
    if not who.strip() or not reason.strip():
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "A choice names who made it and why, for ever.",
            "Give --who and --why.",
        )
    return Choice(
        code=state.fence,
        choice=choice,
        who=who,
        reason=reason,
        epoch=state.epoch or 0,
        group=group,
    )


def _topics(admin: AdminClient, namespace: str, topic: str) -> dict[str, list[int]]:
    try:
        # Asking for one topic by name could make a broker create it: all are listed.
        found = admin.list_topics(timeout=ANSWER_S).topics
    except KafkaException as failure:
        raise _away("list topics", failure) from failure
    return {
        name: sorted(found[name].partitions)
        for name in found
        if name == topic or (not topic and _is_ours(name, namespace))
    }


def _places(
    admin: AdminClient, group: str, members: Sequence[Member], topics: Mapping[str, list[int]]
) -> dict[tuple[str, int], Place]:
    every = [TopicPartition(name, number) for name in topics for number in topics[name]]
    if not every:
        return {}
    owners = {name: each for each in members for name in each.partitions}
    stable = IsolationLevel.READ_COMMITTED
    request = ConsumerGroupTopicPartitions(group, every)
    try:
        lows = admin.list_offsets(dict.fromkeys(every, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(every, LATEST), isolation_level=stable)
        answered = admin.list_consumer_group_offsets([request])[group].result(ANSWER_S)
        offsets = {
            (each.topic, each.partition): each.offset if each.offset >= 0 else None
            for each in answered.topic_partitions
        }
        return {
            (each.topic, each.partition): Place(
                low=lows[each].result(ANSWER_S).offset,
                end=ends[each].result(ANSWER_S).offset,
                committed=offsets.get((each.topic, each.partition)),
                worker=held.worker if held else "",
                host=held.host if held else "",
            )
            for each in every
            for held in [owners.get((each.topic, each.partition))]
        }
    except (KafkaException, TimeoutError) as failure:
        raise _away("say where the partitions end", failure) from failure


def _next(place: Place) -> int:
    """Offset that the group folds next."""
    return max(place.committed or 0, place.low)


def _state(
    name: tuple[str, int],
    place: Place | None,
    row: PartitionView | None,
    lag: int | None,
    parked: Mapping[tuple[str, int], int],
) -> PartitionState:
    topic, number = name
    code, _, text = ("" if row is None else row.fence).partition(" ")
    return PartitionState(
        topic=topic,
        partition=number,
        workflow=topic.removesuffix(_EVENTS).rpartition(".")[2],
        worker=None if place is None else place.worker,
        host=None if place is None else place.host,
        low=None if place is None else place.low,
        end=None if place is None else place.end,
        committed=None if place is None else place.committed,
        lag=lag,
        epoch=None if row is None else row.epoch,
        released=None if row is None else row.released,
        marker=None if row is None else row.marker,
        rows_to=None if row is None else row.rows_to,
        fence=code,
        fence_text=text,
        cure=_cure(code, topic, number),
        choices=_choices(code),
        chosen="" if row is None else row.choice,
        alarm="" if row is None else row.alarm,
        parked=None if row is None else parked.get((row.workflow, number), 0),
        counts={} if row is None else row.counts,
    )


def _choices(code: str) -> Mapping[str, str]:
    return CHOICES[Code(code)] if code in {str(each) for each in CHOICES} else {}


def _cure(code: str, topic: str, partition: int) -> str:
    if not code:
        return ""
    page = f"refold explain {code}"
    choices = "|".join(_choices(code))
    if not choices:
        return f"see {page}"
    return f"see {page}, then refold partitions resolve {topic} {partition} --choose {choices}"


def _is_ours(topic: str, namespace: str) -> bool:
    middle = topic.removeprefix(f"{namespace}.").removesuffix(_EVENTS)
    return topic == events_topic(namespace, middle) and "." not in middle


def _away(doing: str, failure: BaseException) -> ServerError:
    return ServerError(
        Code.KAFKA_AWAY,
        f"Kafka did not {doing}: {words(failure)}.",
        "Check that the brokers are reachable and what this client may describe.",
    )
