"""The seam between the worker and what keeps its state: implemented in `store`, wrapped in tests.

Contract of every method: it runs in one transaction or not at all; it never runs COMMIT twice;
a lost connection raises `ServerError(POSTGRES_AWAY)` and leaves the store usable; it is called
from any one thread at a time for each partition.
"""

from collections.abc import Sequence
from typing import Protocol

from refold.snapshots.model import Cut, Due, Flush, Loaded, PartitionRow


class Store(Protocol):
    """Markers, snapshots, rows and definitions of all partitions, in one PostgreSQL schema."""

    def read(self, topic: str, partition: int) -> PartitionRow | None:
        """The partition's row, None if nobody ever claimed it."""
        ...

    def claim(self, row: PartitionRow, expected_epoch: int | None) -> PartitionRow | None:
        """Compare-and-set on the epoch that was read (P5): write `row`, its epoch one more.

        Args:
            row: What the claimer wants to stand there (owner, group, topic id, counts as read).
            expected_epoch: Epoch as read; None inserts the first row.

        Returns:
            The row as it now stands, or None when another claim came first. `takeovers` is one
            more than it was. Under `lock_timeout`; sessions of the old owner that hold the row
            past it are terminated (P7).
        """
        ...

    def load(
        self, topic: str, partition: int, workflow: str, keys: Sequence[tuple[str, str]]
    ) -> Loaded:
        """Newest good snapshot of each (tenant, instance), in one statement with the epoch."""
        ...

    def due(
        self,
        topic: str,
        partition: int,
        workflow: str,
        after: tuple[int, str, str],
        until_ms: int,
        limit: int,
    ) -> Due:
        """Instances whose next timer is due, in order, in one statement with the epoch (P26).

        Args:
            topic: Event topic.
            partition: Its partition.
            workflow: Name of the workflow.
            after: (due in ms, tenant, instance id) behind which the page begins.
            until_ms: Last time that counts.
            limit: Rows of the page.
        """
        ...

    def save(self, cut: Cut) -> bool:
        """Write snapshots and marker in one transaction (O4, P7).

        Returns:
            True when it is committed, this time or by an attempt whose answer was lost; False
            when another epoch stands there: the caller is fenced.
        """
        ...

    def flush(self, rows: Flush) -> bool:
        """Write instance rows and index rows and move `rows_to` (P20); False when fenced."""
        ...

    def release(self, topic: str, partition: int, epoch: int) -> bool:
        """Mark the partition as given back cleanly; False when another epoch stands there."""
        ...

    def restart(self, row: PartitionRow) -> bool:
        """Forget the state of a log that is gone: write `row`, drop snapshots and instance rows.

        Args:
            row: As claimed, with the new log's topic id, marker 0, empty digests and counts. The
                rows of the event-log index stay, under the old topic id, and so does the choice.

        Returns:
            False when another epoch stands there.
        """
        ...

    def prune(
        self, topic: str, partition: int, workflow: str, keys: Sequence[tuple[str, str]]
    ) -> int:
        """Delete old versions of these instances, each behind a verified newest one.

        Bounded in time: what is left over has its turn after a later cut. Returns the number of
        versions that are gone.
        """
        ...

    def fence(self, topic: str, partition: int, epoch: int, fence: str) -> None:
        """Note the fence that the owner of this epoch met, or its end (empty)."""
        ...

    def alarm(self, topic: str, partition: int, epoch: int, alarm: str) -> None:
        """Note what the owner of this epoch goes on with and a person should see, or its end."""
        ...

    def parked(self, workflow: str) -> dict[int, int]:
        """Partition → parked instances by the instance rows, where there are any."""
        ...

    def choose(self, topic: str, partition: int, choice: str) -> bool:
        """Note what a person chose for a fenced partition; False when there is no such row."""
        ...

    def wanted(self, workflow: str) -> int | None:
        """Version that a person chose for new instances, None if nobody did (P13)."""
        ...

    def suspect(self, topic: str, partition: int, offset: int) -> int:
        """Mark a record before it is folded alone; how often it was marked, this time included."""
        ...

    def clear(self, topic: str, partition: int, offset: int) -> None:
        """Unmark a record that did no harm."""
        ...

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        ...
