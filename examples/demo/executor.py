"""The outside: a paging and a mail service in one process, with a journal of what they did.

Law of this module: it does every command that it is handed, and its journal counts how often for
each key: it forgives nothing, so that a double would be seen. It answers with events whose ids
come from the keys.
"""

import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from refold.examples.incident.graph import (
    AskCaller,
    Mailed,
    Page,
    Paged,
    Surveyed,
    TellCaller,
)
from refold.schemas.envelope import CommandRecord
from refold.topics.clients import executor_consumer_config, opened, reader
from refold.topics.publisher import Delivered, Draft, Publisher
from refold.topics.reading import batches
from refold.topics.records import read_command
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import commands_topic

TARGETS: Final = ("paging", "mail")
BATCH: Final = 1_000
WAIT_S: Final = 0.1


class Journal:
    """What was done outside, by idempotency key, kept in a file.

    Args:
        path: An SQLite file; made when it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=OFF")  # it outlives processes, not the machine
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS effects"
            " (key TEXT PRIMARY KEY, times INTEGER, action TEXT) WITHOUT ROWID"
        )

    def record(self, done: Sequence[tuple[str, str]]) -> None:
        """Note (key, action) of effects, one more time each."""
        with self._file:
            self._file.executemany(
                "INSERT INTO effects VALUES (?, 1, ?)"
                " ON CONFLICT (key) DO UPDATE SET times = times + 1",
                done,
            )

    def effects(self) -> dict[str, tuple[int, str]]:
        """Key → how often it was done, and the action."""
        found = self._file.execute("SELECT key, times, action FROM effects")
        return {key: (times, action) for key, times, action in found}

    def count(self) -> int:
        """Effects so far."""
        (found,) = self._file.execute("SELECT coalesce(sum(times), 0) FROM effects").fetchone()
        return int(found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Outside:
    """Consumes commands, does them, answers.

    Args:
        settings: Where Kafka is.
        journal: Notes each effect.
    """

    def __init__(self, settings: Settings, journal: Journal) -> None:
        self._settings = settings
        self._journal = journal
        self._answers = Publisher(settings, "incident", "/outside")
        group = f"{settings.namespace}.outside"
        self._consumer = opened(Consumer, executor_consumer_config(settings, group))
        self._topics = [commands_topic(settings.namespace, target) for target in TARGETS]
        self._consumer.subscribe(self._topics)
        self._next: dict[tuple[str, int], int] = {}
        self._stopping = False

    def stop(self) -> None:
        """Do what is there and end."""
        self._stopping = True

    def run(self) -> None:
        """Work until `stop`."""
        while not self._stopping:
            self._do(self._consumer.consume(BATCH, WAIT_S))
        for topic, partition in self._owned():
            rest = reader(self._settings, "outside")
            start = self._next.get((topic, partition), 0)
            for messages in batches(rest, topic, partition, start):
                self._do(messages)
            rest.close()
        self._consumer.close()
        self._answers.close()

    def _owned(self) -> Iterator[tuple[str, int]]:
        for each in self._consumer.assignment():
            yield each.topic, each.partition

    def _do(self, messages: Sequence[Message]) -> None:
        commands = [read_command(each) for each in messages if each.error() is None]
        if not commands:
            return
        self._journal.record([(each.key, each.type) for each in commands])
        for outcome in self._answers.send_many(map(_answer, commands)):
            if not isinstance(outcome, Delivered):
                raise SystemExit(f"an answer was not delivered: {outcome}")
        for message in messages:
            if message.error() is None:
                name = (str(message.topic()), int(message.partition() or 0))
                self._next[name] = int(message.offset() or 0) + 1
        self._consumer.commit(
            offsets=[TopicPartition(*name, offset) for name, offset in self._next.items()],
            asynchronous=True,
        )


ANSWERS: Final[dict[str, Any]] = {
    Page.__name__: Paged(),
    AskCaller.__name__: Mailed(),
    TellCaller.__name__: Mailed(),
}


def _answer(command: CommandRecord) -> Draft:
    event = ANSWERS.get(command.type)
    if event is None:
        event = Surveyed(score=1 + len(command.instance + command.tenant) % 5)
    return Draft(instance=command.instance, tenant=command.tenant, key=command.key, event=event)


def main() -> None:
    """Work until SIGTERM: the journal's path is the argument."""
    journal = Journal(Path(sys.argv[1]))
    outside = Outside(load_settings(), journal)

    def stop(number: int, frame: FrameType | None) -> None:
        outside.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    outside.run()
    journal.close()


if __name__ == "__main__":
    main()
