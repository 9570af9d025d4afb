"""Owned partitions looked at again while they are folded: checks, choices, parked instances.

Law of this module: reads only, in a thread that is not the loop's; what it finds is data for the
loop. That the checks themselves are refused is written down too, since nothing else would tell.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from confluent_kafka import TopicPartition

from refold.processors.clients import Admin
from refold.processors.cluster import ANSWER_S, asking, ends
from refold.processors.definition import Workflow
from refold.processors.options import Options
from refold.processors.partition import Name
from refold.schemas.errors import Code, FenceError, ServerError
from refold.snapshots.ports import Store
from refold.topics.facts import TopicFacts, topic_facts
from refold.topics.preflight import Stored, judge_partition

Preflight = Callable[[TopicFacts], None]
"""Raises FenceError where a check of an event topic or of PostgreSQL forbids to go on."""


class Examined(msgspec.Struct, frozen=True):
    """What a check of owned partitions found."""

    fences: dict[Name, FenceError]
    wanted: dict[str, int]
    """Version that a person chose for new instances, by event topic."""
    parked: dict[Name, int]
    """Parked instances of each partition; empty where no instance rows are written."""


class Held(Stored, Protocol):
    """An owned partition, as far as a check of it needs to know it."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def workflow(self) -> Workflow:
        """What is folded there."""
        ...

    @property
    def number(self) -> int:
        """Its number."""
        ...

    @property
    def epoch(self) -> int:
        """Fencing number of its owner."""
        ...


class Examination:
    """Looks at what a worker owns.

    Args:
        options: The worker's settings.
        store: PostgreSQL.
        admin: Admin client.
        preflight: Called with the event topic's facts; raises FenceError where a check fails.
    """

    def __init__(self, options: Options, store: Store, admin: Admin, preflight: Preflight) -> None:
        self._options = options
        self._store = store
        self._admin = admin
        self._preflight = preflight
        self._refused: set[Name] = set()
        """Partitions whose rows say that PostgreSQL refuses their checks."""

    def __call__(self, owned: Sequence[Held]) -> Examined:
        """Check owned partitions.

        Raises:
            ServerError: Kafka or PostgreSQL is away or refuses; nothing was judged.
        """
        try:
            found = self._examined(owned)
        except ServerError as error:
            if error.code == Code.POSTGRES_REFUSED:
                self._alarm(owned, f"{error.code} {error.what}")
            raise
        if self._refused:
            self._alarm([each for each in owned if (each.topic, each.number) in self._refused], "")
        return found

    def _examined(self, owned: Sequence[Held]) -> Examined:
        by_topic: dict[str, list[Held]] = {}
        for each in owned:
            by_topic.setdefault(each.topic, []).append(each)
        fences = {
            (topic, number): fence
            for topic, held in by_topic.items()
            for number, fence in self._fences(topic, held).items()
        }
        wanted: dict[str, int] = {}
        parked: dict[Name, int] = {}
        for topic, held in by_topic.items():
            workflow = held[0].workflow.name
            chosen = self._store.wanted(workflow) if self._options.activate_manually else None
            if chosen is not None:
                wanted[topic] = chosen
            if self._options.rows:
                counts = self._store.parked(workflow)
                parked |= {(topic, each.number): counts.get(each.number, 0) for each in held}
        return Examined(fences, wanted, parked)

    def _alarm(self, owned: Sequence[Held], text: str) -> None:
        for each in owned:
            with suppress(ServerError):  # without any right it cannot be noted either
                self._store.alarm(each.topic, each.number, each.epoch, text)
        names = {(each.topic, each.number) for each in owned}
        self._refused = self._refused | names if text else set()

    def _fences(self, topic: str, owned: Sequence[Held]) -> dict[int, FenceError]:
        """Check a topic and owned partitions of it again, while they are folded.

        Args:
            topic: Event topic.
            owned: Partitions of it as their worker holds them.

        Returns:
            The fence of each partition that must stop.

        Raises:
            ServerError: Kafka or PostgreSQL is away; nothing was judged.
        """
        try:
            facts = topic_facts(self._admin.client, topic, ANSWER_S)
            self._preflight(facts)
        except FenceError as fence:
            return {each.number: fence for each in owned}
        except ServerError as error:
            if error.code != Code.TOPIC_MISSING:
                raise
            # Fenced at once: what is made under its name next is another log (LOG_REPLACED), and
            # the client would read on there from the old position.
            gone = FenceError(error.code, error.what, error.cure, **error.where)
            return {each.number: gone for each in owned}
        found: dict[int, FenceError] = {}
        for each in owned:
            with asking(topic, each.number):
                low, high = ends(self._admin.client, TopicPartition(topic, each.number))
            for finding in judge_partition(facts, each.number, each, low, high):
                found.setdefault(each.number, finding.fence())
        return found
