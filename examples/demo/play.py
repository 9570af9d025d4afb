"""The play: the log is replayed, halfway the busier worker is killed, the other one finishes.

Law of this module: it watches from outside, through what Kafka says (how far the group has come)
and what the workers log, and times what a user would see.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from threading import Thread
from time import time
from typing import Final, Protocol

import msgspec
from confluent_kafka import Consumer, TopicPartition

from refold.examples.demo.executor import Journal
from refold.examples.demo.stage import PARTITIONS, Process, Stage, until
from refold.examples.demo.upstream import stream
from refold.examples.incident.log import rows
from refold.schemas.errors import Code, ServerError
from refold.snapshots.queries import Queries
from refold.topics.clients import opened, reader_config
from refold.topics.publisher import Delivered, Draft, Publisher
from refold.topics.specs import events_topic

CHUNK: Final = 1_000
AHEAD: Final = 12_000
"""Records that the senders may be ahead of the fold: a day's work comes in a day, not at once."""
START_S: Final = 60.0
TAKEOVER_S: Final = 120.0
FOLD_S: Final = 600.0
SAVE_S: Final = 60.0
ANSWER_S: Final = 30.0


class Takeover(msgspec.Struct, kw_only=True):
    """How one worker took over from the other; times in seconds since the epoch."""

    dead: str
    survivor: str
    partitions: tuple[int, ...]
    folded: int
    """Records that had been folded in these partitions."""
    killed_s: float = 0.0
    detected_s: float = 0.0
    """The group gave the partitions to the survivor."""
    recovered_s: float = 0.0
    """The survivor's first transaction in each of them was committed."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the play tells while it runs."""

    folded: int
    ended: int
    done: int
    """Effects outside."""


class Audience(Protocol):
    """Who looks on."""

    def phase(self, text: str) -> None:
        """A new phase begins."""
        ...

    def progress(self, told: Told) -> None:
        """Something moved; called many times a second."""
        ...


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, for the proof."""

    sent: int
    """Events that the desks' systems delivered, repeats included."""
    ended: int
    """Records on the event topic."""
    takeover: Takeover
    seconds: float


class Watch:
    """How far the log reaches and how far the group has folded it.

    Args:
        stage: Of the run.
    """

    def __init__(self, stage: Stage) -> None:
        config = {
            **reader_config(stage.settings),
            "group.id": stage.settings.group,  # asked, never joined
            # offsets of an open transaction are not waited for: the last committed ones are told
            "isolation.level": "read_uncommitted",
        }
        self._consumer = opened(Consumer, config)
        topic = events_topic(stage.namespace, "incident")
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def folded(self) -> list[int]:
        """Committed offset of each partition."""
        found = self._consumer.committed(self._places, ANSWER_S)
        return [max(0, each.offset) for each in found]

    def ends(self) -> list[int]:
        """Next offset of each partition's log."""
        return [self._consumer.get_watermark_offsets(each, ANSWER_S)[1] for each in self._places]

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


class Play:
    """One run.

    Args:
        stage: Made and empty.
        desks: How many desks.
        seed: Of the repeats.
        audience: Told what happens.
    """

    def __init__(self, stage: Stage, desks: int, seed: int, audience: Audience) -> None:
        self._stage = stage
        self._desks = desks
        self._seed = seed
        self._audience = audience
        self._watch = Watch(stage)
        self._journal = Journal(stage.journal)
        self._workers: list[Process] = []
        self._takeover: Takeover | None = None
        self._taking: Thread | None = None
        self._alive: list[Process] = []
        """Whose end fails the wait that is going on."""
        self._failure: ServerError | None = None

    def run(self) -> Played:
        """Play it to the end.

        Raises:
            ServerError: A process failed, or something took far too long.
        """
        self._audience.phase("starting two workers, and the outside: a paging and a mail service")
        outside = self._stage.start("outside", "executor", str(self._stage.journal))
        self._workers = [self._stage.start(f"worker-{number}", "worker") for number in (1, 2)]
        for _ in self._until(START_S, "both workers to get their partitions", outside):
            if all(each.assigned() for each in self._workers):
                break
        self._audience.phase(f"replaying the log of {self._desks} desks; both workers fold it")
        began_s = time()
        sent = self._publish(outside)
        self._audience.phase("the last events are folded, the last commands done")
        self._finish(outside)
        takeover = self._taken()
        played = Played(
            sent=sent, ended=sum(self._watch.ends()), takeover=takeover, seconds=time() - began_s
        )
        self._watch.close()
        self._journal.close()
        return played

    def _publish(self, outside: Process) -> int:
        sent, half = 0, self._desks * len(rows()) // 2
        drafts = stream(self._desks, self._seed)
        with Publisher(self._stage.settings, "incident", "/servicedesk") as publisher:
            while chunk := list(islice(drafts, CHUNK)):
                sent += _delivered(publisher, chunk)
                for _ in self._until(FOLD_S, "the workers to fold", outside):
                    told = self._look()
                    if self._taking is None and told.folded >= half:
                        self._strike()
                    if told.ended - told.folded < AHEAD:
                        break
        return sent

    def _finish(self, outside: Process) -> None:
        for _ in self._until(FOLD_S, "the workers to fold the log", outside):
            if self._taking is None:
                self._strike()
            told = self._look()
            if told.folded >= told.ended and self._taking is not None:
                break
        outside.stop()
        for _ in self._until(FOLD_S, "the workers to fold the answers"):
            told = self._look()
            if told.folded >= told.ended:
                break
        if self._taking is not None:
            self._taking.join(TAKEOVER_S)
        self._until_saved()
        for each in self._workers:
            if each.is_running():
                each.stop()

    def _until_saved(self) -> None:
        """Wait until what was folded stands in PostgreSQL."""
        queries = Queries(self._stage.dsn)
        try:
            for _ in self._until(SAVE_S, "the workers to save"):
                found = {each.partition: each for each in queries.partitions("incident")}
                ends = dict(enumerate(self._watch.ends()))
                if all(found[n].marker == found[n].rows_to == end for n, end in ends.items()):
                    return
        finally:
            queries.close()

    def _until(self, limit_s: float, what: str, *more: Process) -> Iterator[None]:
        workers = (each for each in self._workers if not each.trigger.exists())
        self._alive = [*more, *workers]
        return until(self._alive, limit_s, what)

    def _look(self) -> Told:
        told = Told(
            folded=sum(self._watch.folded()),
            ended=sum(self._watch.ends()),
            done=self._journal.count(),
        )
        self._audience.progress(told)
        return told

    # the kill

    def _strike(self) -> None:
        """Have the busier worker killed at its next commit, and time what follows."""
        folded = self._watch.folded()
        done = {
            each.name: sum(folded[number] for number in each.assigned()) for each in self._workers
        }
        dead, survivor = sorted(self._workers, key=lambda each: done[each.name], reverse=True)
        takeover = Takeover(
            dead=dead.name,
            survivor=survivor.name,
            partitions=tuple(sorted(dead.assigned())),
            folded=done[dead.name],
        )
        self._takeover = takeover
        self._audience.phase(
            f"SIGKILL for {dead.name} in the middle of a transaction ({done[dead.name]:,} records"
            f" folded); {survivor.name} takes over"
        )
        self._alive.remove(dead)  # a wait that goes on must not take its end for a failure
        dead.trigger.touch()
        self._taking = Thread(target=self._time, args=(takeover, dead, survivor), daemon=True)
        self._taking.start()

    def _time(self, takeover: Takeover, dead: Process, survivor: Process) -> None:
        dead.process.wait()
        takeover.killed_s = time()
        watch = Watch(self._stage)
        try:
            _follow(watch, takeover, survivor)
        except ServerError as error:
            self._failure = error
        finally:
            watch.close()

    def _taken(self) -> Takeover:
        if self._failure is not None:
            raise self._failure
        if self._takeover is None or not self._takeover.recovered_s:
            raise ServerError(
                Code.DEMO_FAILED,
                "the survivor did not take over.",
                "Run it with --keep: see the logs.",
            )
        return self._takeover


def _delivered(publisher: Publisher, chunk: Sequence[Draft]) -> int:
    outcomes = list(publisher.send_many(chunk))
    for outcome in outcomes:
        if not isinstance(outcome, Delivered):
            raise ServerError(
                Code.DEMO_FAILED, f"an event was not delivered: {outcome}.", "Is Kafka well?"
            )
    return len(outcomes)


def _follow(watch: Watch, takeover: Takeover, survivor: Process) -> None:
    """Note when the survivor owns the dead worker's partitions, and when it has gone on in all."""
    before, wanted = watch.folded(), takeover.partitions
    for _ in until([survivor], TAKEOVER_S, "the group to notice"):
        owned = survivor.assigned()
        if all(number in owned for number in wanted):
            takeover.detected_s = max(owned[number] for number in wanted)
            break
    for _ in until([survivor], TAKEOVER_S, "the survivor to recover"):
        folded, ends = watch.folded(), watch.ends()
        if all(folded[each] > before[each] or folded[each] >= ends[each] for each in wanted):
            takeover.recovered_s = time()
            break
