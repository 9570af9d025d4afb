"""Keeps so many instances of W2 in flight, and says how many have ended: a plain Kafka client.

Law of this module: no import of refold. The same starter serves the bare loop and the product.
It counts between two moments, while the number in flight stands; then it begins no more and waits
for those that are under way. With `--watch` it also notes when each command is seen by a separate
`read_committed` reader, which is how long a step takes with one in flight.
"""

import argparse
import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.limits import w2_wire, wire

PATIENCE_S = 60.0
"""Longest time in which nothing ends before the run counts as stuck."""


class Starter:
    """One run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._ends = w2_wire.commands_topic(options.namespace, w2_wire.ENDS)
        self._commands = w2_wire.commands_topic(options.namespace)
        self._events = w2_wire.events_topic(options.namespace)
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 0,
            }
        )
        watched = [self._ends, self._commands] if options.watch else [self._ends]
        self._reader = _reader(options.bootstrap, watched)
        self._began: dict[str, float] = {}
        """When each instance in flight began."""
        self._seen: dict[str, float] = {}
        """When the last command of each instance in flight was seen."""
        self.started = 0
        self.twice = 0
        self.lives_s: list[float] = []
        self.steps_s: list[float] = []

    def begin(self) -> None:
        """Begins one instance."""
        instance = f"w2-{self.started:07d}"
        headers = w2_wire.event_headers(
            f"{instance}-begun", w2_wire.SOURCE, "Begun", time.time_ns() // 1_000_000
        )
        value = wire.encode(w2_wire.BEGUN, w2_wire.begun(self.started))
        self._began[instance] = time.monotonic()
        self._producer.produce(self._events, value, instance, headers=headers)
        self.started += 1

    def turn(self) -> int:
        """Takes what is there, waits 0.1 s if nothing is; returns how many instances ended."""
        self._producer.poll(0)
        ended = 0
        for message in self._batch():
            now = time.monotonic()
            instance = message.key().decode()
            if message.topic() == self._commands:
                self._step(instance, now)
            elif instance in self._began:
                self._step(instance, now)
                self._seen.pop(instance, None)
                self.lives_s.append(now - self._began.pop(instance))
                ended += 1
            else:
                self.twice += 1
        return ended

    def keep(self, seconds: float, *, first: bool = False) -> None:
        """Keeps the number in flight for so long, or until the first one has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ended = self.turn()
            for _ in range(ended):
                self.begin()
            if first and ended:
                return

    def _batch(self) -> list[Any]:
        first: list[Any] = self._reader.consume(1, 0.1)
        batch = first + self._reader.consume(1000, 0) if first else []
        for message in batch:
            if message.error():
                sys.exit(f"starter: {message.error()}")
        return batch

    def _step(self, instance: str, now: float) -> None:
        if not self._options.watch:
            return
        if instance in self._seen:
            self.steps_s.append(now - self._seen[instance])
        self._seen[instance] = now

    def run(self) -> dict[str, Any]:
        """Begins, goes on, counts, ends; returns the line of JSON."""
        options = self._options
        for _ in range(options.in_flight):
            self.begin()
        self.keep(PATIENCE_S, first=True)
        self.keep(options.warm)
        self.lives_s.clear()
        self.steps_s.clear()
        since_ms = time.time_ns() // 1_000_000
        self.keep(options.seconds)
        until_ms = time.time_ns() // 1_000_000
        lives, steps = sorted(self.lives_s), sorted(self.steps_s)
        patience = time.monotonic() + PATIENCE_S
        while self._began and time.monotonic() < patience:
            self.turn()
        self._producer.flush(10)
        return {
            "since_ms": since_ms,
            "until_ms": until_ms,
            "started": self.started,
            "left": len(self._began),
            "twice": self.twice,
            "ended": len(lives),
            "life_p50_ms": _percentile(lives, 0.50),
            "life_p99_ms": _percentile(lives, 0.99),
            "step_p50_ms": _percentile(steps, 0.50),
            "step_p99_ms": _percentile(steps, 0.99),
        }


def _reader(bootstrap: str, topics: list[str]) -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench.starter",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    known = reader.list_topics(timeout=10).topics
    ends = []
    for topic in topics:
        for number in known[topic].partitions:
            _, high = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
            ends.append(TopicPartition(topic, number, high))
    reader.assign(ends)
    reader.poll(0)
    return reader


def _percentile(ranked: list[float], part: float) -> float:
    return 1000 * ranked[min(len(ranked) - 1, int(part * len(ranked)))] if ranked else 0.0


def main() -> None:
    """Runs as the command line says, and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--in-flight", type=int, required=True)
    parser.add_argument("--warm", type=float, default=2.0, help="seconds after the first end")
    parser.add_argument("--seconds", type=float, default=10.0, help="that count")
    parser.add_argument("--watch", action="store_true", help="measure the steps")
    print(json.dumps(Starter(parser.parse_args()).run()), flush=True)


if __name__ == "__main__":
    main()
