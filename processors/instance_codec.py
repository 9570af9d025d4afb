"""Canonical bytes of an instance record, its hash, and the hash of a partition.

Law of this module: equal records have equal bytes, in any process (golden vectors in the
tests); everything that the fold knows is in them. A version byte, then MessagePack with sorted
keys; what stands at its default is left out. Bytes that were not written here are refused.
"""

from collections.abc import Iterable
from hashlib import blake2b
from sys import intern
from typing import Any, Final

import msgspec

from refold.processors.definition import Definition
from refold.processors.instance import NOTHING_MORE, Instance, More
from refold.schemas.canonical import hash16
from refold.schemas.errors import Code, FenceError, RecordError

FORMAT: Final = b"\x01"
"""First byte: version of this encoding."""


class _Stored(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True
):
    """An instance as it stands in its bytes; the context as `Canonical.to_value` has it."""

    workflow: str
    tenant: str
    id: str
    definition: int
    state: str
    version: int
    transitions: int
    unchanged: int
    created_ms: int
    since_ms: int
    fold_ms: int
    last_source: str
    last_id: str
    last_offset: int
    context: Any = None
    dedup: bytes = b""
    visits: tuple[int, ...] = ()
    more: More | None = None


_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")
_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


def encode(instance: Instance, definition: Definition) -> bytes:
    """Write the canonical bytes of a record.

    Args:
        instance: A record that the fold made, its context storable.
        definition: The instance's: knows its context class and the workflow's name.
    """
    context = instance.context
    more = instance.more
    stored = _Stored(
        definition.name,
        instance.tenant,
        instance.id,
        instance.definition,
        instance.state,
        instance.version,
        instance.transitions,
        instance.unchanged,
        instance.created_ms,
        instance.since_ms,
        instance.fold_ms,
        instance.last_source,
        instance.last_id,
        instance.last_offset,
        definition.plain(context),
        instance.dedup,
        instance.visits,
        None if more is NOTHING_MORE else more,
    )
    return FORMAT + _ENCODER.encode(stored)


def decode(data: bytes, definition: Definition) -> Instance:
    """Read a record back.

    Args:
        data: What `encode` wrote.
        definition: The version of the definition that the record is on.

    Raises:
        FenceError: SNAPSHOT_DAMAGED: these are not the bytes of an instance of this definition.
    """
    if data[:1] != FORMAT:
        found = data[:1].hex() or "nothing"
        raise _damaged(definition, f"begin with {found}, not with format 01")
    try:
        stored = _DECODER.decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:  # ValidationError is one of them
        raise _damaged(definition, f"are not an instance record: {error}") from None
    if (stored.workflow, stored.definition) != (definition.name, definition.version):
        raise _damaged(definition, f"belong to {stored.workflow!r} version {stored.definition}")
    if stored.state not in definition.table:
        raise _damaged(definition, f"are in state {stored.state!r}, which it does not have")
    return Instance(
        intern(stored.tenant),
        stored.id,
        stored.definition,
        intern(stored.state),
        _context(definition, stored.context),
        stored.version,
        stored.transitions,
        stored.unchanged,
        stored.created_ms,
        stored.since_ms,
        stored.fold_ms,
        intern(stored.last_source),
        stored.last_id,
        stored.last_offset,
        stored.dedup,
        stored.visits,
        NOTHING_MORE if stored.more is None else stored.more,
    )


def _context(definition: Definition, value: Any) -> Any:
    if value is None:
        return None
    try:
        return definition.canonical.from_value(value)
    except RecordError as error:
        raise _damaged(definition, f"hold a context that does not load: {error.what}") from error


def state_hash(data: bytes) -> bytes:
    """16 bytes, BLAKE2b-128 of an instance's canonical bytes: compares states everywhere."""
    return hash16(data)


def partition_hash(hashes: Iterable[tuple[tuple[str, str], bytes]]) -> bytes:
    """16 bytes over ((tenant, instance id), state hash) of a partition, in any given order."""
    total = blake2b(digest_size=16)
    for identity, digest in sorted((_identity(*one), digest) for one, digest in hashes):
        total.update(identity)
        total.update(digest)
    return total.digest()


def _identity(tenant: str, instance: str) -> bytes:
    first, second = tenant.encode(), instance.encode()
    return b"%d:%b%d:%b" % (len(first), first, len(second), second)


def _damaged(definition: Definition, what: str) -> FenceError:
    return FenceError(
        Code.SNAPSHOT_DAMAGED,
        f"The bytes of a snapshot of {definition.name} version {definition.version} {what}.",
        "An older snapshot plus replay restores it; `refold verify` compares the partition.",
        workflow=definition.name,
        version=definition.version,
    )
