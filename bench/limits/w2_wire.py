"""The bytes of workload W2, written by hand from `docs/wire.md`: ten steps, one after the other.

Law of this module: no import of refold. An instance begins, is in state `s1` to `s10` while the
command of that state is carried out, and ends by a command that says so to whoever began it.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from bench.limits import wire

WORKFLOW: Final = "w2"
TARGET: Final = "w2"
ENDS: Final = "ends"
"""Target of the command that says that an instance has ended."""
STEPS: Final = 10
SOURCE: Final = "/bench/starter"
EXECUTOR_SOURCE: Final = f"/refold/executor/{TARGET}"

BEGUN: Final = wire._codec("Begun", customer="string", item="string", total="long")
DO: Final = wire._codec("Do", customer="string", item="string", step="long")
DID: Final = wire._codec("Did", receipt="string", step="long")
ENDED: Final = wire._codec("Ended", customer="string", receipt="string")

Headers = list[tuple[str, str | bytes | None]]


def events_topic(namespace: str) -> str:
    """Events of the workflow."""
    return f"{namespace}.{WORKFLOW}.events"


def commands_topic(namespace: str, target: str = TARGET) -> str:
    """Commands of a target."""
    return f"{namespace}.{target}.commands"


def begun(number: int) -> dict[str, Any]:
    """The value of the event that begins the n-th instance."""
    return {
        "customer": f"customer-{number % 9973:05d}",
        "item": f"item-{number % 499:03d}",
        "total": number % 100_000 + 100,
    }


def event_headers(event_id: str, source: str, kind: str, time_ms: int) -> Headers:
    """The seven headers of a CloudEvent in binary mode, in the product's order."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id),
        ("ce_source", source),
        ("ce_type", kind),
        ("ce_tenant", wire.TENANT),
        ("content-type", wire.CONTENT_TYPE),
        ("ce_time", wire.time_text(time_ms)),
    ]


def answer_headers(key: str, time_ms: int) -> Headers:
    """The headers of an executor's answer: a CloudEvent and what it answers (P30)."""
    return [
        *event_headers(answer_id(key), EXECUTOR_SOURCE, "Did", time_ms),
        ("idempotency-key", key),
        ("ce_attempt", b"1"),
        ("ce_outcome", b"succeeded"),
    ]


def answer_id(key: str) -> str:
    """Id of the event that says that the action of this key is done."""
    parts = (key.encode(), b"succeeded")
    body = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return f"result-{blake2b(body, digest_size=16).hexdigest()}"


def command_key(instance: str, state: str, action: str, source: str, event_id: str) -> str:
    """The idempotency key; the source has nothing to be percent-encoded but its slashes."""
    quoted = source.replace("/", "%2F")
    return f"r1:{wire.TENANT}:{WORKFLOW}:{instance}:{state}:{action}:{quoted}%1F{event_id}:forward"


def command_headers(namespace: str, key: str, kind: str, state: str, time_ms: int) -> Headers:
    """The eleven headers of a command."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", f"{key}/1"),
        ("ce_source", f"/{namespace}/{WORKFLOW}"),
        ("ce_type", kind),
        ("ce_tenant", wire.TENANT),
        ("content-type", wire.CONTENT_TYPE),
        ("ce_time", wire.time_text(time_ms)),
        ("ce_state", state),
        ("ce_attempt", b"1"),
        ("ce_replyto", events_topic(namespace)),
        ("idempotency-key", key),
    ]


def expected_keys(instance: str) -> Iterator[str]:
    """Idempotency keys of the ten commands that an instance sends, in their order."""
    source, event_id = SOURCE, f"{instance}-begun"
    for step in range(1, STEPS + 1):
        key = command_key(instance, f"s{step}", "Do", source, event_id)
        yield key
        source, event_id = EXECUTOR_SOURCE, answer_id(key)
