"""Clients, arguments and the closing check, the same for every bare loop.

Law of this module: no import of refold. It prints one line of JSON that `bench.harness` reads.
"""

import argparse
import gc
import hashlib
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

TRANSACTION: dict[str, Any] = {
    # The defaults of 100 ms and 1 s make one small transaction last 97 ms instead of 4.
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
}


def arguments(purpose: str) -> argparse.Namespace:
    """The arguments of every loop."""
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--events", required=True, help="topic to read")
    parser.add_argument("--commands", default="", help="topic to write")
    parser.add_argument("--name", required=True, help="group and transactional id of this run")
    parser.add_argument("--count", type=int, required=True, help="records to fold")
    parser.add_argument("--batch", type=int, default=5000, help="records a transaction at most")
    parser.add_argument("--raised", action="store_true", help="raise the collector's thresholds")
    options = parser.parse_args()
    if options.raised:
        raise_thresholds()
    return options


def raise_thresholds() -> None:
    """The product's collector settings: what lives long is not visited again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


def consumer(options: argparse.Namespace) -> Consumer:
    """A `read_committed` member of the run's group, from the beginning of the topic."""
    return Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )


def producer(options: argparse.Namespace) -> Producer:
    """A transactional producer, ready to begin."""
    made = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": options.name,
            "partitioner": "murmur2_random",
            **TRANSACTION,
        }
    )
    made.init_transactions()
    return made


def next_batch(source: Consumer, limit: int) -> list[Any]:
    """What is there, up to the limit; waits for a first record only (closes on an empty queue).

    Messages are `Any`: the client's stubs make every field optional, and a check a field would
    be a cost that the limit need not pay.
    """
    batch: list[Any] = source.consume(limit, 0)
    if not batch:
        batch = source.consume(1, 0.1)
        if batch and limit > 1:
            batch += source.consume(limit - 1, 0)
    for message in batch:
        if message.error():
            sys.exit(f"consumer: {message.error()}")
    return batch


def commit(source: Consumer, sink: Producer, topic: str, offsets: dict[int, int]) -> None:
    """Adds the offsets to the open transaction and commits it."""
    ends = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    sink.send_offsets_to_transaction(ends, source.consumer_group_metadata())
    sink.commit_transaction()


class Meter:
    """Clocks of one loop: starts when the first batch is in hand, stops after the last commit."""

    def __init__(self) -> None:
        self.started = 0.0
        self.thread = 0.0
        self.process = 0.0
        self.batches = 0

    def batch(self) -> None:
        """Counts a batch; the first one starts the clocks."""
        if not self.batches:
            self.started = time.perf_counter()
            self.thread = time.thread_time()
            self.process = time.process_time()
        self.batches += 1

    def report(self, count: int, states: Iterable[tuple[str, str, Any]]) -> None:
        """Stops the clocks, hashes the states and prints the line of JSON."""
        seconds = time.perf_counter() - self.started
        thread = time.thread_time() - self.thread
        process = time.process_time() - self.process
        line = {
            "events": count,
            "seconds": seconds,
            "rate": count / seconds,
            "thread_us": thread / count * 1e6,
            "process_us": process / count * 1e6,
            "batches": self.batches,
            "states": state_hash(states),
        }
        print(json.dumps(line), flush=True)


def state_hash(states: Iterable[tuple[str, str, Any]]) -> str:
    """SHA-256 over (instance, state, context as a dict), sorted by instance."""
    lines = sorted(json.dumps([*row], sort_keys=True) for row in states)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
