"""The limit of a rebuild: W1 read and folded in a dict, nothing sent, nothing committed.

Law of this module: no import of refold; plain code, fastavro, Python's default collector.
"""

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from bench.limits import clients, wire


def loop(options: Any) -> None:
    """Consume, read the headers, decode, fold in a dict, until `count` are folded."""
    source = clients.consumer(options)
    partitions = source.list_topics(options.events).topics[options.events].partitions
    source.assign([TopicPartition(options.events, p, OFFSET_BEGINNING) for p in partitions])
    states: dict[str, tuple[str, dict[str, Any]]] = {}
    meter = clients.Meter()
    done = 0
    while done < options.count:
        batch = clients.next_batch(source, options.batch)
        if not batch:
            continue
        meter.batch()
        for message in batch:
            headers = dict(message.headers())
            name = message.key().decode()
            if headers["ce_type"] == b"OrderPlaced":
                event = wire.decode(wire.PLACED, message.value())
                states[name] = ("reserving", {**event, "receipt": ""})
            else:
                event = wire.decode(wire.PAID, message.value())
                _, before = states[name]
                states[name] = ("shipping", {**before, "receipt": event["receipt"]})
        done += len(batch)
    meter.report(done, ((name, *state) for name, state in states.items()))
    source.close()


if __name__ == "__main__":
    loop(clients.arguments("plain bare replay loop"))
