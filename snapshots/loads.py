"""What a load query brought back: checked, and replaced by an older version where it is damaged.

Law of this module: nothing is believed that does not pass its checksum, or that was folded at or
past the marker that came in the same statement (P15, P16).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from refold.schemas.errors import InvariantViolation
from refold.snapshots.model import Alarm, Loaded, Snapshot, content_hash
from refold.snapshots.sessions import Connection

NOBODY: Final = Loaded(-1, -1, ())
"""Answer of a load where nobody ever claimed the partition."""


class Loads:
    """Checks the rows of the statement `load`.

    Args:
        sql: Of `statements.statements`.
        tell: Told of damaged versions.
    """

    def __init__(self, sql: Mapping[str, bytes], tell: Callable[[Alarm], None]) -> None:
        self._sql = sql
        self._tell = tell

    def verified(
        self,
        connection: Connection,
        found: Sequence[tuple[Any, ...]],
        workflow: str,
        partition: int,
        topic: str,
    ) -> Loaded:
        """The answer of a load: the newest good version of each key that has one.

        Raises:
            InvariantViolation: When a row was folded at or past the marker.
        """
        if not found:
            return NOBODY
        epoch, marker = found[0][:2]
        good: list[Snapshot] = []
        damaged: list[tuple[str, str, int]] = []
        for row in found:
            if row[2] is None:
                continue
            snapshot: Snapshot | None = Snapshot(*row[2:])
            if content_hash(row[11]) != row[12]:
                damaged.append((row[2], row[3], row[4]))
                snapshot = self._older(connection, workflow, partition, row)
            if snapshot is None:
                continue
            if snapshot.last_offset >= marker:
                msg = "A snapshot was folded at or past its partition's marker."
                raise InvariantViolation(
                    msg,
                    topic=topic,
                    partition=partition,
                    tenant=snapshot.tenant,
                    instance=snapshot.instance,
                    last_offset=snapshot.last_offset,
                    marker=marker,
                )
            good.append(snapshot)
        for tenant, instance, version in damaged:
            text = f"version {version} of {tenant}/{instance} failed its checksum"
            self._alarm("SNAPSHOT_DAMAGED", topic, partition, text)
        return Loaded(epoch, marker, good, damaged)

    def _older(
        self, connection: Connection, workflow: str, partition: int, row: tuple[Any, ...]
    ) -> Snapshot | None:
        """The newest version below a damaged one that passes its checksum."""
        values = [workflow, partition, row[2], row[3], row[4]]
        for older in connection.execute(self._sql["older"], values, binary=True):
            snapshot = Snapshot(*older)
            if content_hash(snapshot.data) == snapshot.hash:
                return snapshot
        return None

    def _alarm(self, code: str, topic: str, partition: int, text: str) -> None:
        self._tell(Alarm(code=code, topic=topic, partition=partition, text=text))
