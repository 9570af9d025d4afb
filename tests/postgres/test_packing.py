"""Packed snapshots arrive as those that the client packs."""

import msgspec
import pytest
from tests.postgres.making import claimed, cut, query, snapshot

from refold.snapshots.model import Snapshot
from refold.snapshots.packing import Packing
from refold.snapshots.store import PostgresStore

pytestmark = pytest.mark.postgres

NAMES = ("order-1", "größe-7", "注文-1", "🜂", "a\"b\\c'd", "%s {x}", "\u00a0", "x" * 128)
LARGEST = 2**63 - 1
SNAPSHOTS = [
    msgspec.structs.replace(
        snapshot(name, number, LARGEST - number, bytes(range(256)) * number, tenant=f"t{number}"),
        last_id=name,
        state="",
        definition=2**31 - 1,
    )
    for number, name in enumerate(NAMES, 1)
]


def stored(dsn: str) -> list[Snapshot]:
    columns = (
        "tenant, instance_id, version, definition, fingerprint, state, last_offset, last_source,"
        " last_id, data, hash"
    )
    found = query(dsn, f"SELECT {columns} FROM refold.workflow_snapshot ORDER BY version")
    return [Snapshot(*row) for row in found]


@pytest.mark.parametrize("chunk", [1, 3, 20_000], ids="{} rows a statement".format)
def test_what_was_packed_beforehand_stands_as_it_was_meant(
    store: PostgresStore, migrated: str, chunk: int
) -> None:
    row = claimed(store)
    store.writer.chunk = chunk
    packing = Packing(row.workflow, row.partition)
    packed = [packing.row(SNAPSHOTS[0]), b"".join(map(packing.row, SNAPSHOTS[1:]))]
    assert store.save(cut(row, 9, SNAPSHOTS, packed=packed))
    assert stored(migrated) == SNAPSHOTS


def test_a_second_cut_of_the_same_versions_is_merged_and_no_error(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    packed = list(map(Packing(row.workflow, row.partition).row, SNAPSHOTS))
    assert store.save(cut(row, 9, SNAPSHOTS, packed=packed))
    row = msgspec.structs.replace(row, marker=9)
    assert store.save(cut(row, 10, SNAPSHOTS, packed=packed))
    assert stored(migrated) == SNAPSHOTS
