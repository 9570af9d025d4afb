"""The instance record: everything that the fold knows of one instance, immutable.

Law of this module: frozen data, no I/O. A record is never changed in place: a snapshot cut
holds it by reference while the fold goes on (`docs/protocol.md`, P15).
"""

from typing import Any

import msgspec


class Deferred(msgspec.Struct, frozen=True, gc=False):
    """An event kept by a state that defers its type: with its payload, tried again later."""

    offset: int
    source: str
    id: str
    type: str
    value: bytes
    log_time_ms: int
    identity: bytes
    body: bytes
    time: str | None = None
    expected_state: str | None = None
    expected_version: int | None = None
    traceparent: bytes | None = None


class Parked(msgspec.Struct, frozen=True, gc=False):
    """Why an instance waits for a person, and the coordinates queued behind (never payloads)."""

    code: str
    text: str
    since_ms: int
    queue: tuple[int, ...]
    """Offsets in log order; the first is the record that parked the instance."""


class OpenAction(msgspec.Struct, frozen=True, gc=False):
    """An action that is sent and not known to have ended. Filled when executors answer."""

    key: str
    action: str
    state: str
    attempt: int
    since_ms: int


class More(msgspec.Struct, frozen=True, gc=False):
    """What most instances never have; one shared empty object serves them all."""

    deferred: tuple[Deferred, ...] = ()
    parked: Parked | None = None
    ended: str = ""
    """Reason of a `refold.terminate`; empty while the graph decides."""
    reopened: int = 0
    actions: tuple[OpenAction, ...] = ()


NOTHING_MORE = More()


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One instance as folded up to and including `last_offset`."""

    tenant: str
    id: str
    definition: int
    """Version of the definition that folds it."""
    state: str
    context: Any
    """The user's frozen context object, of the definition's context class."""
    version: int
    """Counts the records that changed this record."""
    transitions: int
    unchanged: int
    """Applied events in a row that changed neither state nor context."""
    created_ms: int
    since_ms: int
    """Fold time at which the state was entered."""
    fold_ms: int
    """Fold time: never falls (P25)."""
    last_source: str
    last_id: str
    last_offset: int
    dedup: bytes
    """24 bytes an entry, oldest first: 16 of event identity, 8 of body digest."""
    visits: tuple[int, ...] = ()
    """Entries into each state, in the definition's order; empty where no visit limit stands."""
    more: More = NOTHING_MORE
