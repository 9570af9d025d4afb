"""A separate `read_committed` reader: notes when each command is seen.

Run as a process of its own: `python -m bench.watch --bootstrap … --topic … --count N`. It prints
`ready` when it stands at the end of the topic, and one line of JSON at its end: a list of
[instance, partition, monotonic nanoseconds]. It ends after N commands or on SIGTERM.
"""

import argparse
import json
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition


def watch(bootstrap: str, topic: str, count: int) -> list[tuple[str, int, int]]:
    """Notes commands that appear from now on."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench.watch",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    ends = []
    for partition in reader.list_topics(topic).topics[topic].partitions:
        _, high = reader.get_watermark_offsets(TopicPartition(topic, partition))
        ends.append(TopicPartition(topic, partition, high))
    reader.assign(ends)
    reader.poll(0)
    print("ready", flush=True)
    seen: list[tuple[str, int, int]] = []
    while len(seen) < count and not stopped:
        message: Any = reader.poll(0.05)
        if message is None:
            continue
        now = time.monotonic_ns()
        if message.error():
            raise RuntimeError(f"watching {topic}: {message.error()}")
        seen.append((message.key().decode(), message.partition(), now))
    reader.close()
    return seen


def main() -> None:
    """Watches as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=sys.maxsize)
    options = parser.parse_args()
    print(json.dumps(watch(options.bootstrap, options.topic, options.count)), flush=True)


if __name__ == "__main__":
    main()
