"""Rolling digests of a partition: what was decided so far, in 16 bytes that a successor compares.

Law of this module: pure; record by record, so that batch boundaries do not matter. Entries are
chained in blocks of a fixed number of records; the open block's entries travel with the digest
(`docs/protocol.md`, P19).
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from refold.schemas.errors import Code, FenceError

REBUILT: Final = "`refold rebuild` makes the row again from the log."
BLOCK_RECORDS: Final = 64
"""Small enough that the open block fits a row, large enough that hashing costs nothing."""


class Digest(msgspec.Struct, frozen=True, gc=False):
    """A chain over closed blocks and the entries of the open one."""

    chain: bytes
    open: tuple[str, ...] = ()

    def extended(self, entries: Sequence[str]) -> "Digest":
        """The digest after these entries, one for each record, in log order."""
        pending = [*self.open, *entries]
        chain, start = self.chain, 0
        while len(pending) - start >= BLOCK_RECORDS:
            end = start + BLOCK_RECORDS
            chain = _link(chain, pending[start:end])
            start = end
        return Digest(chain, tuple(pending[start:]))

    def value(self) -> str:
        """32 hex digits that stand for everything so far."""
        return _link(self.chain, self.open).hex()


class Digests(msgspec.Struct, frozen=True, gc=False):
    """Both digests of a partition: `fold` fences when it differs, `command` only alarms."""

    fold: Digest
    command: Digest

    def metadata(self, epoch: int) -> str:
        """What a committed offset carries: `refold1;<epoch>;<fold>;<command>`."""
        return f"refold1;{epoch};{self.fold.value()};{self.command.value()}"

    def packed(self) -> bytes:
        """Bytes for the partition's row."""
        return msgspec.msgpack.encode(self)


class Committed(msgspec.Struct, frozen=True, gc=False):
    """What a committed offset of ours says."""

    epoch: int
    fold: str
    command: str


def beginning(topic_id: str) -> Digests:
    """Digests before the first record of a log: the topic id is their first link."""
    seed = blake2b(topic_id.encode(), digest_size=16).digest()
    return Digests(Digest(seed), Digest(seed))


def unpacked(data: bytes) -> Digests:
    """Digests from the partition's row.

    Raises:
        FenceError: SNAPSHOT_DAMAGED, the bytes are not what `packed` wrote.
    """
    try:
        return msgspec.msgpack.decode(data, type=Digests)
    except msgspec.MsgspecError as error:
        raise row_damaged("digests", error) from error


def row_damaged(what: str, error: Exception, cure: str = REBUILT) -> FenceError:
    """The fence of a partition whose row in PostgreSQL does not load any more.

    Args:
        what: The part of the row, in the plural.
        error: What its decoder said.
        cure: What brings it back.
    """
    return FenceError(
        Code.SNAPSHOT_DAMAGED,
        f"The partition's row is damaged: its {what} do not load ({error}).",
        cure,
    )


def committed(metadata: str | None) -> Committed | None:
    """Read an offset's metadata; None when it is not refold's (somebody moved the offset)."""
    parts = (metadata or "").split(";")
    if len(parts) != 4 or parts[0] != "refold1" or not parts[1].isdigit():
        return None
    return Committed(int(parts[1]), parts[2], parts[3])


def _link(chain: bytes, entries: Sequence[str]) -> bytes:
    return blake2b(chain + "\n".join(entries).encode(), digest_size=16).digest()
