"""The instance record: everything that the fold knows of one instance, immutable.

Law of this module: frozen data, no I/O. A record is never changed in place: a snapshot cut
holds it by reference while the fold goes on (`docs/protocol.md`, P15).
"""

from typing import Any

import msgspec

from refold.schemas.envelope import Parent


class Deferred(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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


class Parked(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why an instance waits for a person, and the coordinates queued behind (never payloads)."""

    code: str
    text: str
    since_ms: int
    queue: tuple[int, ...]
    """Offsets in log order; the first is the record that parked the instance."""


class OpenAction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An action that was asked for and whose answer the graph waits for."""

    key: str
    type: str
    """Type of its command."""
    action: str
    target: str
    state: str
    """State whose entry asked for it."""
    value: bytes
    """The encoded command: what another attempt sends, and what an undoing looks at."""
    since_ms: int
    """Fold time of the first attempt."""
    attempt: int = 1
    known: str = ""
    """Empty while it is on its way; `unknown`, or `retrying` until its timer rings."""
    undoes: str = ""
    """Key of the forward action that it undoes; empty for a forward one."""


class Timer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A timer that is armed."""

    id: str
    name: str
    due_ms: int
    key: str = ""
    """Key of the action that is tried again when it rings; empty for a timer of the state."""


class Fork(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Branches that the present state began and joins: one for each command of a kind."""

    type: str
    """Type of their commands."""
    asked: int
    pending: bytes = b""
    """8 bytes for each branch that has not ended: a digest of its key."""
    succeeded: int = 0
    failed: int = 0


class More(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What most instances never have; one shared empty object serves them all."""

    deferred: tuple[Deferred, ...] = ()
    parked: Parked | None = None
    ended: str = ""
    """Reason of a `refold.terminate`; empty while the graph decides."""
    reopened: int = 0
    actions: tuple[OpenAction, ...] = ()
    done: tuple[OpenAction, ...] = ()
    """Actions that were done and can be undone, in the order in which they were."""
    timers: tuple[Timer, ...] = ()
    forks: tuple[Fork, ...] = ()
    parent: Parent | None = None
    """For whom it was started; None for an instance of its own."""
    renewed: int = 0
    """Runs that ended and went on as new; limits and what can be undone count from the last."""
    renewed_offset: int = 0
    """Record that began the present run; 0 in the first one."""
    owed: tuple[str, ...] = ()
    """Keys of its parent's actions that it answers when it ends; each once."""

    @property
    def due_ms(self) -> int | None:
        """When the next timer rings; None without one."""
        return min((one.due_ms for one in self.timers), default=None)


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
