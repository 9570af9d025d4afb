"""The divisor: W1 as a bare loop with the product's bytes, headers and transactions.

Law of this module: no import of refold; plain code, fastavro both ways, Python's default
garbage collector. It keeps no dedup memory, checks no key and no schema evolution, and cannot
recover: it is what the broker, the client and the format cost by themselves. An instance is a
pair (state, context); `--raised` shows how much of its time is the collector's visits to them.
One long function on purpose: a call for each event would make the limit slower.
"""

from typing import Any

from bench.limits import clients, wire

State = tuple[str, dict[str, Any]]


def loop(options: Any) -> None:
    """Consume, decode, fold in a dict, encode, produce, commit, until `count` are folded."""
    source = clients.consumer(options)
    source.subscribe([options.events])
    sink = clients.producer(options)
    states: dict[str, State] = {}
    meter = clients.Meter()
    done = 0
    while done < options.count:
        batch = clients.next_batch(source, options.batch)
        if not batch:
            continue
        meter.batch()
        sink.begin_transaction()
        offsets: dict[int, int] = {}
        for message in batch:
            headers = dict(message.headers())
            name = message.key().decode()
            kind = headers["ce_type"].decode()
            if kind == "OrderPlaced":
                event = wire.decode(wire.PLACED, message.value())
                states[name] = ("reserving", {**event, "receipt": ""})
                state, action, codec = "reserving", "ReserveItem", wire.RESERVE
                command = {
                    "customer": event["customer"],
                    "item": event["item"],
                    "quantity": event["quantity"],
                }
            else:
                event = wire.decode(wire.PAID, message.value())
                _, before = states[name]
                context = {**before, "receipt": event["receipt"]}
                states[name] = ("shipping", context)
                state, action, codec = "shipping", "ShipOrder", wire.SHIP
                command = {
                    "customer": context["customer"],
                    "item": context["item"],
                    "receipt": context["receipt"],
                }
            key = wire.command_key(name, state, action, headers["ce_id"].decode())
            sink.produce(
                options.commands,
                wire.encode(codec, command),
                name,
                headers=[
                    ("ce_specversion", b"1.0"),
                    ("ce_id", f"{key}/1"),
                    ("ce_source", wire.COMMAND_SOURCE),
                    ("ce_type", action),
                    ("ce_tenant", headers["ce_tenant"]),
                    ("content-type", wire.CONTENT_TYPE),
                    ("ce_time", wire.time_text(message.timestamp()[1])),
                    ("ce_state", state),
                    ("ce_attempt", b"1"),
                    ("ce_replyto", wire.REPLY_TO),
                    ("idempotency-key", key),
                ],
            )
            offsets[message.partition()] = message.offset() + 1
        clients.commit(source, sink, options.events, offsets)
        done += len(batch)
    meter.report(done, ((name, *state) for name, state in states.items()))
    source.close()


if __name__ == "__main__":
    loop(clients.arguments("plain bare loop"))
