"""The bare loop of `docs/figures.md`'s neighbours: nine Avro fields, seven headers out, none in.

Law of this module: no import of refold. It reads and writes its own bytes,
so that its figures stand beside those of Kafka Streams and Quix Streams,
which were measured against this loop. It is not the divisor of refold's figures: that is
`bench.limits.plain`.
"""

import io
from collections.abc import Iterator
from typing import Any, Final

import fastavro

from bench.limits import clients, wire


def _schema(name: str, **fields: str) -> Any:
    columns = [{"name": field, "type": kind} for field, kind in fields.items()]
    return fastavro.parse_schema({"type": "record", "name": name, "fields": columns})


EVENTS: Final = "bench-neighbour-events"
EVENT: Final = _schema(
    "Event",
    event_id="string",
    instance_id="string",
    tenant="string",
    type="string",
    customer="string",
    item="string",
    quantity="long",
    total="long",
    at_ms="long",
)
COMMAND: Final = _schema(
    "Command",
    key="string",
    instance_id="string",
    tenant="string",
    action="string",
    customer="string",
    item="string",
    quantity="long",
    total="long",
    at_ms="long",
)


def encode(schema: Any, value: dict[str, Any]) -> bytes:
    """Bare Avro bytes, without a frame."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def events(instances: int) -> Iterator[tuple[str, bytes]]:
    """(key, value) of every event, in the order of `wire.events`."""
    for sent in wire.events(instances):
        number = int(sent.instance.rpartition("-")[2])
        value = {
            "event_id": sent.id,
            "instance_id": sent.instance,
            "tenant": wire.TENANT,
            "type": sent.type,
            "customer": f"customer-{number % 9973:05d}",
            "item": f"item-{number % 499:03d}",
            "quantity": number % 7 + 1,
            "total": number % 100_000 + 100,
            "at_ms": 1_790_000_000_000 + number,
        }
        yield sent.instance, encode(EVENT, value)


def expected_keys(instances: int) -> Iterator[str]:
    """The key of every command of a right run, in no order."""
    for number in range(instances):
        name = wire.instance_id(number)
        yield f"{wire.TENANT}:{name}:reserving:reserve:{name}-placed"
        yield f"{wire.TENANT}:{name}:shipping:ship:{name}-paid"


def loop(options: Any) -> None:
    """Consume, decode, fold in a dict, encode, produce, commit, until `count` are folded."""
    source = clients.consumer(options)
    source.subscribe([options.events])
    sink = clients.producer(options)
    states: dict[tuple[str, str], tuple[str, int]] = {}
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
            event: Any = fastavro.schemaless_reader(io.BytesIO(message.value()), EVENT, None)
            identity = event["tenant"], event["instance_id"]
            before = states.get(identity)
            if before is None:
                state, action, total = "reserving", "reserve", event["total"]
            else:
                state, action, total = "shipping", "ship", before[1]
            states[identity] = state, total
            key = f"{event['tenant']}:{event['instance_id']}:{state}:{action}:{event['event_id']}"
            command = {
                "key": key,
                "instance_id": event["instance_id"],
                "tenant": event["tenant"],
                "action": action,
                "customer": event["customer"],
                "item": event["item"],
                "quantity": event["quantity"],
                "total": total,
                "at_ms": event["at_ms"],
            }
            sink.produce(
                options.commands,
                encode(COMMAND, command),
                event["instance_id"],
                headers=[
                    ("ce_specversion", b"1.0"),
                    ("ce_id", key),
                    ("ce_source", wire.COMMAND_SOURCE),
                    ("ce_type", action),
                    ("ce_tenant", event["tenant"]),
                    ("content-type", wire.CONTENT_TYPE),
                    ("idempotency-key", key),
                ],
            )
            offsets[message.partition()] = message.offset() + 1
        clients.commit(source, sink, options.events, offsets)
        done += len(batch)
    meter.report(done, ((name, *state) for (_, name), state in states.items()))
    source.close()


if __name__ == "__main__":
    loop(clients.arguments("the neighbours' bare loop"))
