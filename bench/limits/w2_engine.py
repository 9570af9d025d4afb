"""W2's engine as a bare loop: events in, a dict of states, commands out, exactly once.

Law of this module: no import of refold; plain code, fastavro both ways, Python's default garbage
collector. It keeps no dedup memory, no open actions, no snapshot and no row, and cannot recover.
"""

import argparse
from typing import Any

from bench.limits import clients, w2_wire, wire
from bench.limits.w2_executor import arguments, ended_by_signal

State = tuple[str, dict[str, Any]]


def loop(options: argparse.Namespace) -> None:
    """Consume, decode, fold in a dict, encode, produce, commit, until SIGTERM."""
    ended = ended_by_signal()
    source = clients.consumer(options)
    source.subscribe([w2_wire.events_topic(options.namespace)])
    sink = clients.producer(options)
    commands = w2_wire.commands_topic(options.namespace)
    ends = w2_wire.commands_topic(options.namespace, w2_wire.ENDS)
    states: dict[str, State] = {}
    while not ended:
        batch = clients.next_batch(source, options.batch)
        if not batch:
            continue
        sink.begin_transaction()
        offsets: dict[int, int] = {}
        for message in batch:
            headers = dict(message.headers())
            name = message.key().decode()
            if headers["ce_type"] == b"Begun":
                event = wire.decode(w2_wire.BEGUN, message.value())
                step, context = 1, {**event, "step": 1, "receipt": ""}
            else:
                event = wire.decode(w2_wire.DID, message.value())
                _, before = states[name]
                step = before["step"] + 1
                context = {**before, "step": step, "receipt": event["receipt"]}
            if step <= w2_wire.STEPS:
                state, topic, kind, codec = f"s{step}", commands, "Do", w2_wire.DO
                command = {"customer": context["customer"], "item": context["item"], "step": step}
            else:
                state, topic, kind, codec = "done", ends, "Ended", w2_wire.ENDED
                command = {"customer": context["customer"], "receipt": context["receipt"]}
            states[name] = (state, context)
            key = w2_wire.command_key(
                name, state, kind, headers["ce_source"].decode(), headers["ce_id"].decode()
            )
            sink.produce(
                topic,
                wire.encode(codec, command),
                name,
                headers=w2_wire.command_headers(
                    options.namespace, key, kind, state, message.timestamp()[1]
                ),
            )
            offsets[message.partition()] = message.offset() + 1
        clients.commit(source, sink, w2_wire.events_topic(options.namespace), offsets)
    source.close()


if __name__ == "__main__":
    loop(arguments("W2's engine"))
