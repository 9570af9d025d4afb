"""The bytes of workload W1, written again by hand from `docs/wire.md`: schemas, headers, keys.

Law of this module: no import of refold. What a plain Kafka client in any language would write
down to speak with refold, here for the limits and for the generator of the workload.
"""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

NAMESPACE: Final = "bench"
WORKFLOW: Final = "w1"
TENANT: Final = "acme"
SOURCE: Final = "/shop/checkout"
SOURCE_QUOTED: Final = "%2Fshop%2Fcheckout"
"""The source as the idempotency key holds it: RFC 3986 percent-encoding."""
CONTENT_TYPE: Final = b"application/avro"
REPLY_TO: Final = f"{NAMESPACE}.{WORKFLOW}.events".encode()
COMMAND_SOURCE: Final = f"/{NAMESPACE}/{WORKFLOW}".encode()
EVENTS: Final = f"{NAMESPACE}.{WORKFLOW}.events"
COMMANDS: Final = f"{NAMESPACE}.{WORKFLOW}.commands"
APART: Final = 10_000
"""An instance's second event comes this many instances after its first: both are in flight."""


class Codec(NamedTuple):
    """A schema, parsed once, with the ten bytes that stand before each of its values."""

    schema: Any
    head: bytes


def _codec(name: str, **fields: str) -> Codec:
    columns = [{"name": field, "type": kind} for field, kind in fields.items()]
    schema = fastavro.parse_schema({"type": "record", "name": name, "fields": columns})
    digest = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return Codec(schema, b"\xc3\x01" + bytes.fromhex(digest))


PLACED: Final = _codec(
    "OrderPlaced", customer="string", item="string", quantity="long", total="long"
)
PAID: Final = _codec("OrderPaid", receipt="string", method="string", amount="long", paid_at="long")
RESERVE: Final = _codec("ReserveItem", customer="string", item="string", quantity="long")
SHIP: Final = _codec("ShipOrder", customer="string", item="string", receipt="string")


def encode(codec: Codec, value: dict[str, Any]) -> bytes:
    """Single-object encoding of one value, through fastavro."""
    out = io.BytesIO()
    out.write(codec.head)
    fastavro.schemaless_writer(out, codec.schema, value)
    return out.getvalue()


def decode(codec: Codec, data: bytes) -> Any:
    """The value behind the ten bytes, through fastavro."""
    body = io.BytesIO(data)
    body.seek(10)
    return fastavro.schemaless_reader(body, codec.schema, None)


def time_text(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


class Sent(NamedTuple):
    """One event of W1 as it is put on the topic."""

    instance: str
    id: str
    type: str
    value: bytes


def instance_id(number: int) -> str:
    """The business key of the n-th order."""
    return f"order-{number:07d}"


def placed(number: int) -> Sent:
    """The first event of an order: it creates the instance."""
    value = {
        "customer": f"customer-{number % 9973:05d}",
        "item": f"item-{number % 499:03d}",
        "quantity": number % 7 + 1,
        "total": number % 100_000 + 100,
    }
    name = instance_id(number)
    return Sent(name, f"{name}-placed", "OrderPlaced", encode(PLACED, value))


def paid(number: int) -> Sent:
    """The second event of an order: it moves the instance on."""
    value = {
        "receipt": f"receipt-{number:07d}",
        "method": "card" if number % 3 else "transfer",
        "amount": number % 100_000 + 100,
        "paid_at": 1_790_000_000_000 + number,
    }
    name = instance_id(number)
    return Sent(name, f"{name}-paid", "OrderPaid", encode(PAID, value))


def events(instances: int, *, moved_on: bool = True) -> Iterator[Sent]:
    """W1 in log order; with `moved_on` false only the events that create instances."""
    for number in range(instances):
        yield placed(number)
        if moved_on and number >= APART:
            yield paid(number - APART)
    if moved_on:
        for number in range(max(0, instances - APART), instances):
            yield paid(number)


def command_key(instance: str, state: str, action: str, event_id: str) -> str:
    """The idempotency key; W1's names need no percent-encoding but the source, done above."""
    return (
        f"r1:{TENANT}:{WORKFLOW}:{instance}:{state}:{action}:{SOURCE_QUOTED}%1F{event_id}:forward"
    )


def expected_commands(instances: int, *, moved_on: bool = True) -> Iterator[tuple[str, bytes]]:
    """(idempotency key, value) of every command that a right run of W1 sends, in no order."""
    for number in range(instances):
        first = decode(PLACED, placed(number).value)
        name = instance_id(number)
        order = {"customer": first["customer"], "item": first["item"]}
        reserve = {**order, "quantity": first["quantity"]}
        key = command_key(name, "reserving", "ReserveItem", f"{name}-placed")
        yield key, encode(RESERVE, reserve)
        if moved_on:
            key = command_key(name, "shipping", "ShipOrder", f"{name}-paid")
            yield key, encode(SHIP, {**order, "receipt": f"receipt-{number:07d}"})


def expected_states(instances: int, *, moved_on: bool = True) -> Iterator[tuple[str, str, Any]]:
    """(instance, state, context) of every instance after a right run, by instance."""
    for number in range(instances):
        context = decode(PLACED, placed(number).value)
        context["receipt"] = f"receipt-{number:07d}" if moved_on else ""
        yield instance_id(number), "shipping" if moved_on else "reserving", context
