"""CPU microseconds of one `fold` of an applied event, everything included; and where they go.

Run: python bench/micro_fold.py [--profile]
"""

import cProfile
import gc
import sys
import time
from statistics import median
from typing import Any

from refold import Workflow
from refold.examples.order.graph import Charged, OrderPlaced, Reserved, order
from refold.processors.fold import fold
from refold.processors.instance_codec import decode, encode
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import EventRecord, body_digest, event_identity

INSTANCES, ROUNDS = 20_000, 7
WORKFLOW = Workflow("order", [order])


def records() -> list[EventRecord]:
    """Three events for each instance, as the reader hands them over."""
    events: list[EventRecord] = []
    for number in range(INSTANCES):
        facts = (OrderPlaced(("apple", "pear"), 1250), Reserved(), Charged("r-1"))
        for step, fact in enumerate(facts):
            codec: Codec[Any] = codec_of(type(fact))
            value, name = codec.encode(fact), f"evt-{number}-{step}"
            identity, body = event_identity("/shop", name), body_digest(codec.name, value)
            at = len(events)
            events.append(
                EventRecord(
                    "acme",
                    f"order-{number}",
                    "/shop",
                    name,
                    codec.name,
                    value,
                    at,
                    at,
                    identity,
                    body,
                )
            )
    return events


def run(events: list[EventRecord]) -> float:
    """Fold all, interleaved by instance as a log would have them; µs an event."""
    held: dict[str, object] = {}
    started = time.process_time()
    for event in events:
        step = fold(WORKFLOW, 1, held.get(event.instance), event)  # type: ignore[arg-type]
        held[event.instance] = step.instance
        if step.verdict != "applied":
            raise SystemExit(f"wrong: {step}")
    took = (time.process_time() - started) / len(events) * 1e6
    if held[f"order-{INSTANCES - 1}"].state != "done":  # type: ignore[attr-defined]
        raise SystemExit("wrong end")
    return took


def main() -> None:
    events = records()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    if "--profile" in sys.argv:
        cProfile.run("run(records())", sort="tottime")
        return
    parts = {
        "all three": events,
        "placed (new instance, reducer, command)": events[0::3],
        "placed, reserved (each with a command)": [e for e in events if e.offset % 3 < 2],
    }
    for name, some in parts.items():
        if name == "all three":
            figures = sorted(run(some) for _ in range(ROUNDS))
        else:
            figures = sorted(_some(some) for _ in range(ROUNDS))
        print(f"{name}: {median(figures):.2f} µs (min {figures[0]:.2f}, max {figures[-1]:.2f})")
    definition = order.build()
    record = fold(WORKFLOW, 1, None, events[0]).instance
    assert record is not None
    data = encode(record, definition)
    for name, act in (
        ("encode", lambda: encode(record, definition)),
        ("decode", lambda: decode(data, definition)),
    ):
        started = time.process_time()
        for _ in range(50_000):
            act()
        print(f"{name} of {len(data)} bytes: {(time.process_time() - started) * 20:.2f} µs")


def _some(events: list[EventRecord]) -> float:
    held: dict[str, object] = {}
    started = time.process_time()
    for event in events:
        held[event.instance] = fold(WORKFLOW, 1, held.get(event.instance), event).instance  # type: ignore[arg-type]
    return (time.process_time() - started) / len(events) * 1e6


if __name__ == "__main__":
    main()
