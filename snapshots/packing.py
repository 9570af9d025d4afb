"""Snapshots as the bytes of a binary COPY.

Law of this module: pure, and nothing else than what the client would send for the same values: the
thread that speaks with PostgreSQL has nothing left to compute and leaves the interpreter to the
fold.

Source: PostgreSQL's documentation of COPY, "Binary Format".
"""

from struct import Struct
from typing import Final

from refold.snapshots.model import Snapshot

HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER: Final = b"\xff\xff"
COLUMNS: Final = 13

_COUNT: Final = Struct(">h").pack
_LENGTH: Final = Struct(">i").pack
_INT4: Final = Struct(">ii").pack
_TWO_INT4: Final = Struct(">iiii").pack
_INT8: Final = Struct(">iq").pack


class Packing:
    """Packs the snapshots of one partition.

    Args:
        workflow: Of every row.
        partition: Likewise.
    """

    def __init__(self, workflow: str, partition: int) -> None:
        self._head = _COUNT(COLUMNS) + _field(workflow.encode()) + _INT4(4, partition)

    def row(self, snapshot: Snapshot) -> bytes:
        """One row, in the order of the columns of `snapshot_copy`.

        Raises:
            struct.error: A number does not fit its column.
        """
        tenant, instance = snapshot.tenant.encode(), snapshot.instance.encode()
        print_, state = snapshot.fingerprint.encode(), snapshot.state.encode()
        source, event = snapshot.last_source.encode(), snapshot.last_id.encode()
        data, digest = snapshot.data, snapshot.hash
        return b"".join(
            (
                self._head,
                _LENGTH(len(tenant)), tenant,
                _LENGTH(len(instance)), instance,
                _TWO_INT4(4, snapshot.version, 4, snapshot.definition),
                _LENGTH(len(print_)), print_,
                _LENGTH(len(state)), state,
                _INT8(8, snapshot.last_offset),
                _LENGTH(len(source)), source,
                _LENGTH(len(event)), event,
                _LENGTH(len(data)), data,
                _LENGTH(len(digest)), digest,
            )
        )  # fmt: skip


def _field(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value
