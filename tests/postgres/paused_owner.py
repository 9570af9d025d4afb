"""A worker that stops inside a COPY: run as a process, frozen by SIGSTOP from outside.

Prints `in copy`, waits for a line, ends the snapshot, and prints what the store said.
"""

import sys
from collections.abc import Iterator
from typing import cast

from tests.postgres.making import claimed, cut, snapshot

from refold.snapshots.model import Snapshot
from refold.snapshots.store import PostgresStore


class _Slow(list[Snapshot]):
    """Snapshots of which the second comes when standard input says so."""

    def __iter__(self) -> Iterator[Snapshot]:
        yield snapshot("order-1")
        sys.stdout.write("in copy\n")
        sys.stdout.flush()
        sys.stdin.readline()
        yield snapshot("order-2")


def main() -> None:
    store = PostgresStore(sys.argv[1], application_name="refold:paused")
    row = claimed(store, "paused")
    saved = store.save(cut(row, 10, cast("list[Snapshot]", _Slow())))
    sys.stdout.write(f"saved {saved}\n")


if __name__ == "__main__":
    main()
