"""Checks of topics and partitions before anything is folded, and again from time to time.

Law of this module: judgements are pure and return findings; nothing is reset, repaired or
skipped here. A finding fences its partition (all of them where it names none) until the cure is
applied; the others run (O6). `findings` fetches the facts for a list of topics.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec
from confluent_kafka.admin import AdminClient

from refold.schemas.errors import Code, FenceError, ServerError
from refold.topics.facts import TopicFacts, topic_facts
from refold.topics.specs import TopicSpec

ANSWER_S: Final = 10.0


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it must be."""

    code: Code
    topic: str
    partition: int | None
    """None: all partitions of the topic."""
    what: str
    cure: str

    def fence(self) -> FenceError:
        """The finding as the error that a fenced partition carries."""
        where = {} if self.partition is None else {"partition": self.partition}
        return FenceError(self.code, self.what, self.cure, topic=self.topic, **where)


class Stored(Protocol):
    """What was written down about a partition; `refold.snapshots.model.PartitionRow` has it."""

    @property
    def topic_id(self) -> str:
        """Id of the topic that the snapshots belong to."""
        ...

    @property
    def partitions(self) -> int:
        """Partition count of that topic."""
        ...

    @property
    def marker(self) -> int:
        """Next offset to fold."""
        ...


def judge_topic(
    spec: TopicSpec, facts: TopicFacts, *, accept_finite_retention: bool = False
) -> list[Finding]:
    """Whether a topic's settings are those that refold relies on.

    Args:
        spec: What must be true.
        facts: What the cluster says.
        accept_finite_retention: True where the owner accepts that old events are deleted.
    """
    found = []
    for name, wanted in spec.config.items():
        is_ = facts.settings.get(name)
        judge = _JUDGES.get(name, _same)
        finite = name.startswith("retention.")
        if is_ is None or judge(is_, wanted) or (finite and accept_finite_retention):
            continue
        found.append(_setting(spec.name, name, is_, wanted, finite))
    return found


def judge_count(spec: TopicSpec, facts: TopicFacts) -> list[Finding]:
    """Whether a topic has the partitions that were asked for."""
    if facts.partitions == spec.partitions:
        return []
    return [
        Finding(
            Code.TOPIC_WRONG,
            spec.name,
            None,
            f"{spec.name} has {facts.partitions} partitions, {spec.partitions} were asked for.",
            "Ask for what is there, or make a new topic: a count cannot change in flight.",
        )
    ]


def judge_pair(events: TopicFacts, rejected: TopicFacts) -> list[Finding]:
    """Whether the decision log has one partition for each of the event topic's (P13)."""
    if events.partitions == rejected.partitions:
        return []
    return [
        Finding(
            Code.PARTITIONS_CHANGED,
            events.topic,
            None,
            f"{events.topic} has {events.partitions} partitions and {rejected.topic}"
            f" {rejected.partitions}: partition p of one belongs to p of the other.",
            "See `refold explain PARTITIONS_CHANGED`.",
        )
    ]


def judge_partition(
    facts: TopicFacts, partition: int, stored: Stored, low: int, high: int
) -> list[Finding]:
    """Whether a partition is still the log that its snapshots were folded from.

    Args:
        facts: The event topic as the cluster describes it.
        partition: Which of its partitions.
        stored: What was written down with the snapshots.
        low: First offset that is still there.
        high: Offset behind the last record.
    """

    def finding(code: Code, what: str) -> Finding:
        cure = (
            f"Nothing was folded or sent. See `refold explain {code}`, then"
            f" `refold partitions resolve {facts.topic} {partition}`."
        )
        return Finding(code, facts.topic, partition, what, cure)

    if stored.topic_id != facts.topic_id:
        what = (
            f"the snapshots are from another log: topic id {stored.topic_id}, now"
            f" {facts.topic_id}; {facts.topic} was deleted and made anew."
        )
        return [finding(Code.LOG_REPLACED, what)]
    found = []
    if stored.partitions != facts.partitions:
        what = (
            f"{facts.topic} has {facts.partitions} partitions, its state was written for"
            f" {stored.partitions}: instances would move away from their state."
        )
        found.append(finding(Code.PARTITIONS_CHANGED, what))
    if not low <= stored.marker <= high:
        gap = (
            f"records {stored.marker} to {low - 1} are gone"
            if stored.marker < low
            else "it is past the end"
        )
        what = f"the marker {stored.marker} is outside the log, {low} to {high}: {gap}."
        found.append(finding(Code.OFFSETS_OUT_OF_RANGE, what))
    return found


def findings(
    admin: AdminClient,
    specs: Iterable[TopicSpec],
    *,
    accept_finite_retention: bool = False,
    counts: bool = True,
    timeout_s: float = ANSWER_S,
) -> list[Finding]:
    """Fetch the facts of these topics and judge them; a missing topic is a finding.

    Args:
        admin: Admin client with DESCRIBE and DESCRIBE_CONFIGS on the topics.
        specs: Topics that must exist, as `refold.topics.specs.workflow_specs` gives them.
        accept_finite_retention: See `judge_topic`.
        counts: False where the partition count of the specs is only a wish.
        timeout_s: For each answer.

    Raises:
        ServerError: KAFKA_AWAY or KAFKA_REFUSED.
    """
    found: list[Finding] = []
    for spec in specs:
        try:
            facts = topic_facts(admin, spec.name, timeout_s)
        except ServerError as error:
            if error.code != Code.TOPIC_MISSING:
                raise
            found.append(Finding(error.code, spec.name, None, error.what, error.cure))
            continue
        found += judge_topic(spec, facts, accept_finite_retention=accept_finite_retention)
        if counts:
            found += judge_count(spec, facts)
    return found


def _same(is_: str, wanted: str) -> bool:
    return is_ == wanted


def _at_least(is_: str, wanted: str) -> bool:
    return int(is_) >= int(wanted)


_JUDGES: Final[Mapping[str, Callable[[str, str], bool]]] = {"max.message.bytes": _at_least}
_WHY: Final[Mapping[str, str]] = {
    "cleanup.policy": "compaction removes older events of a key, a schema topic needs it",
    "retention.ms": "events are the truth and are kept for ever",
    "retention.bytes": "events are the truth and are kept for ever",
    "message.timestamp.type": "fold time is fixed when the broker writes the record",
    "max.message.bytes": "the largest record that refold writes there must fit",
}


def _setting(topic: str, name: str, is_: str, wanted: str, finite: bool) -> Finding:
    code = Code.RETENTION_FINITE if finite else Code.TOPIC_WRONG
    cure = f"Set {name}={wanted} on the topic"
    if finite:
        cure += ", or accept it with worker.accept_finite_retention"
    what = f"{topic} has {name}={is_}, expected {wanted}: {_WHY.get(name, 'refold relies on it')}."
    return Finding(code, topic, None, what, cure + ".")
