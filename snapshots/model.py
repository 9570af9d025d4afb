"""What PostgreSQL keeps for a partition, as frozen data between the worker and the store.

Law of this module: no SQL, no connection. `topic` and `partition` name a row; P4, P15, P16 and
P20 of docs/protocol.md say what each field must mean.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

KEEP: Final = 3
"""Versions of an instance that stay: the newest, one for a bad newest, one more to look back."""
CRASH_LOOP_CLAIMS: Final = 3
"""Claims without progress after which a partition is folded carefully and with a pause (P12)."""


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `workflow_partition`: who owns it and how far its state is saved."""

    topic: str
    partition: int
    workflow: str
    topic_id: str
    partitions: int
    """Partition count of the topic when the row was written."""
    group: str
    epoch: int
    """Fencing number: one more at each claim."""
    owner: str
    """Transactional id of the owner's producer: fenced by the successor before it reads."""
    released: bool
    """True when the owner gave the partition back cleanly."""
    marker: int
    """Next offset to fold from the snapshots (S)."""
    rows_to: int
    """Instance rows and event-log index hold every record below this offset."""
    decisions: int
    """Position on the decision log from which decisions at or past the marker stand."""
    digest: bytes
    """Rolling digests at the marker, as `refold.processors.digest` packs them."""
    counts: Mapping[str, int]
    """Records below the marker by first verdict, and by resolution as `resolved.<verdict>`."""
    base: int
    """Offset at which the folded history begins: 0 until older records are archived."""
    takeovers: int
    """Claims since the marker last moved or the partition was last given back (P12); more than
    `CRASH_LOOP_CLAIMS` where a record is still marked as suspect."""
    activations: bytes = b""
    """The activations below `decisions`, as the worker packs them (P13)."""
    fence: str = ""
    """The fence that the owner met, empty if none: `Store.fence` writes it, a marker that
    moves clears it."""
    choice: str = ""
    """What a person chose, empty if nothing: `Store.choose` writes it, a marker that
    moves clears it."""


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """One version of one instance, in canonical bytes with their hash."""

    tenant: str
    instance: str
    version: int
    definition: int
    fingerprint: str
    state: str
    last_offset: int
    last_source: str
    last_id: str
    data: bytes
    hash: bytes
    """16 bytes: BLAKE2b-128 of `data`. Checksum when loaded, state hash when compared."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshots and the marker that they stand for: one PostgreSQL transaction (O4)."""

    topic: str
    partition: int
    workflow: str
    epoch: int
    previous: int
    """Marker that the row must still have."""
    marker: int
    decisions: int
    digest: bytes
    counts: Mapping[str, int]
    snapshots: Sequence[Snapshot]
    activations: bytes = b""
    packed: Sequence[bytes] = ()
    """The same snapshots as `refold.snapshots.packing` packs them, some hundred rows a piece; empty
    where nobody did it beforehand."""


class Loaded(msgspec.Struct, frozen=True):
    """Answer of one load query: what was found, and whose partition it was at that moment."""

    epoch: int
    marker: int
    snapshots: Sequence[Snapshot]
    """The newest verified version of each instance found; absent ones are not in the table."""
    damaged: Sequence[tuple[str, str, int]] = ()
    """(tenant, instance, version) whose newest row failed its hash; `snapshots` has the older."""


class InstanceRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `workflow_instance`: a projection for people and queries."""

    tenant: str
    instance: str
    definition: int
    state: str
    state_since_ms: int
    run_status: str
    context: bytes
    """JSON of the context; where JSON cannot hold it, what it can hold, with `lossy`."""
    lossy: bool
    version: int
    last_offset: int
    last_source: str
    last_id: str
    due_ms: int | None
    failure_code: str | None
    failure_text: str | None
    created_ms: int
    updated_ms: int
    timers: bytes | None = None
    """JSON of the armed timers, likewise of the open actions; None where there are none."""
    actions: bytes | None = None


class DueRow(msgspec.Struct, frozen=True, gc=False):
    """An instance with a timer that is due soon, as its row has it."""

    due_ms: int
    tenant: str
    instance: str
    timers: str
    """JSON, as `InstanceRow.timers`."""


class Due(msgspec.Struct, frozen=True):
    """A page of what is due next, and whose partition it was at that moment."""

    epoch: int
    rows_to: int
    rows: Sequence[DueRow]
    """In order of (due, tenant, instance)."""


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """One row of `workflow_event_log`: what became of one record."""

    offset: int
    tenant: str
    """Empty where the record could not be read so far; likewise the next four."""
    instance: str
    source: str
    id: str
    type: str
    log_time_ms: int
    verdict: str
    transition: str
    state_before: str
    state_after: str
    commands: Sequence[str]
    """Idempotency keys of the commands that it caused."""
    code: str
    text: str


class ResolvedRow(msgspec.Struct, frozen=True, gc=False):
    """A later resolution of a record that was deferred or parked."""

    offset: int
    resolution: str
    by_offset: int
    code: str
    text: str


class Flush(msgspec.Struct, frozen=True, kw_only=True):
    """Instance rows and index rows up to a watermark of their own (P20)."""

    topic: str
    topic_id: str
    partition: int
    workflow: str
    epoch: int
    previous: int
    """`rows_to` that the row must still have."""
    rows_to: int
    instances: Sequence[InstanceRow]
    events: Sequence[EventRow]
    resolved: Sequence[ResolvedRow]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the store survived and a person must see (O7)."""

    code: str
    """SNAPSHOT_DAMAGED, EVENT_DOUBLED, ROW_DIFFERS, OWNER_TERMINATED or CONTEXT_LOSSY."""
    topic: str
    partition: int
    text: str


class SnapshotHash(msgspec.Struct, frozen=True, gc=False):
    """One line of `verify`: the newest snapshot of one instance, without its bytes."""

    tenant: str
    instance: str
    version: int
    hash: bytes
    """Empty where the bytes that stand are not those that were hashed."""
    last_offset: int


class PartitionHashes(msgspec.Struct, frozen=True):
    """What `verify` compares with a fold from the base: read in one transaction (P22)."""

    row: PartitionRow
    instances: Sequence[SnapshotHash]
    """Sorted by (tenant, instance) in code point order of their UTF-8 bytes."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a definition as first used."""

    workflow: str
    version: int
    fingerprint: str
    canonical: str
    """Canonical JSON of the graph."""
    state: str = "active"
    """`active` or `retired`: a retired version may be removed from the code."""


def content_hash(data: bytes) -> bytes:
    """16 bytes over a snapshot's canonical bytes: BLAKE2b-128, checksum and state hash in one."""
    return blake2b(data, digest_size=16).digest()
