"""The hardest limit: the plain loop with every trick of the product.

Law of this module: no import of refold. Codecs written out by hand (`bench.limits.codecs`),
frozen structs that the collector does not visit, raised collector thresholds, headers that do
not change made once, the time's text made once a batch of the broker.
One long function on purpose: a call for each event would make the limit slower.
"""

from typing import Any

import msgspec

from bench.limits import clients, codecs, wire

SPECVERSION = ("ce_specversion", b"1.0")
SOURCE = ("ce_source", wire.COMMAND_SOURCE)
CONTENT = ("content-type", wire.CONTENT_TYPE)
ATTEMPT = ("ce_attempt", b"1")
REPLY_TO = ("ce_replyto", wire.REPLY_TO)
RESERVE_TYPE = ("ce_type", b"ReserveItem")
SHIP_TYPE = ("ce_type", b"ShipOrder")
RESERVING = ("ce_state", b"reserving")
SHIPPING = ("ce_state", b"shipping")
BEFORE = f"r1:{wire.TENANT}:{wire.WORKFLOW}:"
RESERVE_PART = f":reserving:ReserveItem:{wire.SOURCE_QUOTED}%1F"
SHIP_PART = f":shipping:ShipOrder:{wire.SOURCE_QUOTED}%1F"


def loop(options: Any) -> None:
    """Consume, decode, fold in a dict, encode, produce, commit, until `count` are folded."""
    clients.raise_thresholds()
    source = clients.consumer(options)
    source.subscribe([options.events])
    sink = clients.producer(options)
    states: dict[str, tuple[str, codecs.Order]] = {}
    meter = clients.Meter()
    done, last_ms, time = 0, -1, ("ce_time", "")
    produce, commands, replace = sink.produce, options.commands, msgspec.structs.replace
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
            event_id = headers["ce_id"].decode()
            if headers["ce_type"] == b"OrderPlaced":
                event = codecs.order_placed(message.value())
                order = codecs.Order(event.customer, event.item, event.quantity, event.total)
                states[name] = ("reserving", order)
                value = codecs.reserve_item(order.customer, order.item, order.quantity)
                key = f"{BEFORE}{name}{RESERVE_PART}{event_id}:forward"
                kind, state = RESERVE_TYPE, RESERVING
            else:
                paid = codecs.order_paid(message.value())
                order = replace(states[name][1], receipt=paid.receipt)
                states[name] = ("shipping", order)
                value = codecs.ship_order(order.customer, order.item, order.receipt)
                key = f"{BEFORE}{name}{SHIP_PART}{event_id}:forward"
                kind, state = SHIP_TYPE, SHIPPING
            if (ms := message.timestamp()[1]) != last_ms:
                last_ms = ms
                time = ("ce_time", wire.time_text(ms))
            produce(
                commands,
                value,
                name,
                headers=[
                    SPECVERSION,
                    ("ce_id", key + "/1"),
                    SOURCE,
                    kind,
                    ("ce_tenant", headers["ce_tenant"]),
                    CONTENT,
                    time,
                    state,
                    ATTEMPT,
                    REPLY_TO,
                    ("idempotency-key", key),
                ],
            )
            offsets[message.partition()] = message.offset() + 1
        clients.commit(source, sink, options.events, offsets)
        done += len(batch)
    rows = ((name, state, msgspec.to_builtins(order)) for name, (state, order) in states.items())
    meter.report(done, rows)
    source.close()


if __name__ == "__main__":
    loop(clients.arguments("bare loop with every trick"))
