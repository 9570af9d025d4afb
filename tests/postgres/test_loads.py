"""Loads: one statement, the newest good version of each key, and whose partition it is."""

import msgspec
import pytest
from tests.postgres.making import TOPIC, claimed, cut, execute, query, snapshot

from refold.schemas.errors import InvariantViolation
from refold.snapshots.loads import NOBODY
from refold.snapshots.model import KEEP, Alarm, PartitionRow, Snapshot
from refold.snapshots.store import PRUNE_KEYS, PostgresStore
from refold.snapshots.upkeep import Upkeep

pytestmark = pytest.mark.postgres

ODD = [
    "NULL",
    "null",
    "",
    " ",
    "{a,b}",
    'quote"d',
    "back\\slash",
    "per%cent %s %(x)s",
    "apo'strophe",
    "a,b",
    "שלום",
    "e\N{COMBINING ACUTE ACCENT}",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "\N{FAMILY}\N{ZERO WIDTH JOINER}\N{GIRL}",
    "\N{ZERO WIDTH NO-BREAK SPACE}",
    "\U0010ffff",
    "A",
    "a",
]


def _save(store: PostgresStore, row: PartitionRow, snapshots: list[Snapshot]) -> PartitionRow:
    assert store.save(cut(row, row.marker + 10, snapshots))
    return msgspec.structs.replace(row, marker=row.marker + 10)


def _flip(dsn: str, version: int) -> None:
    execute(
        dsn,
        "UPDATE refold.workflow_snapshot SET data = set_byte(data, 0, get_byte(data, 0) # 1) "
        "WHERE version = %s",
        version,
    )


def test_a_partition_that_nobody_claimed_has_no_epoch(store: PostgresStore) -> None:
    assert store.load(TOPIC, 0, "order", [("acme", "order-1")]) == NOBODY


def test_absent_instances_are_absent_and_epoch_and_marker_come_all_the_same(
    store: PostgresStore,
) -> None:
    row = _save(store, claimed(store), [snapshot("order-1")])
    loaded = store.load(TOPIC, 0, "order", [("acme", "order-2"), ("other", "order-1")])
    assert (loaded.epoch, loaded.marker, loaded.snapshots) == (row.epoch, 10, [])
    assert store.load(TOPIC, 0, "other", [("acme", "order-1")]).snapshots == []


def test_the_newest_version_of_each_instance_is_loaded(store: PostgresStore) -> None:
    row = _save(store, claimed(store), [snapshot("order-1"), snapshot("order-2")])
    row = _save(store, row, [snapshot("order-1", 2, 11, b"newer")])
    row = _save(store, row, [snapshot("order-1", 10, 21, b"newest")])
    loaded = store.load(TOPIC, 0, "order", [("acme", "order-1"), ("acme", "order-2")])
    assert {s.instance: s.version for s in loaded.snapshots} == {"order-1": 10, "order-2": 1}


def test_equal_ids_of_two_tenants_and_odd_ids_are_instances_of_their_own(
    store: PostgresStore,
) -> None:
    keys = [(tenant, name) for tenant in ("acme", "Acme") for name in ODD]
    rows = [
        snapshot(name, data=f"{tenant}/{name}".encode(), tenant=tenant) for tenant, name in keys
    ]
    _save(store, claimed(store), rows)
    loaded = store.load(TOPIC, 0, "order", keys)
    assert {(s.tenant, s.instance): s.data for s in loaded.snapshots} == {
        (s.tenant, s.instance): s.data for s in rows
    }


def test_a_damaged_newest_version_falls_back_to_the_next_good_one_and_says_so(
    store: PostgresStore, migrated: str, alarms: list[Alarm]
) -> None:
    row = claimed(store)
    for version in (1, 2, 3):
        kept = snapshot("order-1", version, row.marker, b"state %d" % version)
        row = _save(store, row, [kept, snapshot(f"other-{version}", last_offset=row.marker)])
    _flip(migrated, 3)
    execute(migrated, "UPDATE refold.workflow_snapshot SET data = '' WHERE version = 2")
    loaded = store.load(TOPIC, 0, "order", [("acme", "order-1"), ("acme", "other-1")])
    assert {s.instance: s.version for s in loaded.snapshots} == {"order-1": 1, "other-1": 1}
    assert loaded.damaged == [("acme", "order-1", 3)]
    assert [alarm.code for alarm in alarms] == ["SNAPSHOT_DAMAGED"]


def test_an_instance_whose_every_version_is_damaged_is_reported_without_a_snapshot(
    store: PostgresStore, migrated: str
) -> None:
    _save(store, claimed(store), [snapshot("order-1")])
    _flip(migrated, 1)
    loaded = store.load(TOPIC, 0, "order", [("acme", "order-1")])
    assert (loaded.snapshots, loaded.damaged) == ([], [("acme", "order-1", 1)])


def test_a_row_that_was_folded_at_or_past_the_marker_is_an_error(store: PostgresStore) -> None:
    _save(store, claimed(store), [snapshot("order-1", last_offset=10)])
    with pytest.raises(InvariantViolation, match="past its partition's marker"):
        store.load(TOPIC, 0, "order", [("acme", "order-1")])


def test_old_versions_go_only_behind_a_verified_newest_one(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    for version in range(1, 6):
        both = [snapshot(name, version, row.marker, b"x") for name in ("order-1", "order-2")]
        row = _save(store, row, both)
    execute(
        migrated,
        "UPDATE refold.workflow_snapshot SET data = 'y' "
        "WHERE version = 5 AND instance_id = 'order-2'",
    )
    keys = [("acme", "order-1"), ("acme", "order-2"), ("acme", "order-3")]
    assert store.prune(TOPIC, 0, "order", keys) == 2
    assert store.prune(TOPIC, 0, "order", keys) == 0
    assert _versions(store, "order-1") == [5, 4, 3]
    assert _versions(store, "order-2") == [5, 4, 3, 2, 1]


def test_pruning_keeps_the_base_snapshot(store: PostgresStore, migrated: str) -> None:
    row = claimed(store)
    for version in range(1, 8):
        row = _save(store, row, [snapshot("order-1", version, row.marker)])
    execute(migrated, "UPDATE refold.workflow_partition SET base = 20")
    assert store.prune(TOPIC, 0, "order", [("acme", "order-1")]) == 3
    assert _versions(store, "order-1") == [7, 6, 5, 2]


def test_pruning_of_many_instances_goes_in_steps(store: PostgresStore) -> None:
    row = claimed(store)
    names = [f"order-{n}" for n in range(2 * PRUNE_KEYS + 1)]
    for version in range(1, KEEP + 2):
        row = _save(store, row, [snapshot(name, version, row.marker) for name in names])
    gone = 0
    while step := store.prune(TOPIC, 0, "order", [("acme", name) for name in names]):
        gone += step
    assert gone == len(names)
    assert _versions(store, names[-1]) == [4, 3, 2]


def _versions(store: PostgresStore, instance: str) -> list[int]:
    kept = Upkeep(store).snapshot_versions("order", "acme", instance)
    return [snapshot.version for snapshot in kept]


def test_a_load_that_was_planned_on_a_small_table_still_uses_the_key_when_it_has_grown(
    store: PostgresStore, migrated: str
) -> None:
    row = _save(store, claimed(store), [snapshot("first")])
    execute(migrated, "ANALYZE refold.workflow_snapshot")
    keys = [("acme", f"order-{n}") for n in range(50)]
    for _ in range(12):  # a server keeps a plan after five runs
        store.load(TOPIC, 0, "order", keys)
    _save(store, row, [snapshot(f"order-{n}") for n in range(5_000)])
    before = _full_scans(store, migrated)
    assert len(store.load(TOPIC, 0, "order", keys).snapshots) == 50
    assert _full_scans(store, migrated) == before


def _full_scans(store: PostgresStore, dsn: str) -> int:
    store.runner.run("flush", lambda c: c.execute("SELECT pg_stat_force_next_flush()").fetchall())
    found = query(
        dsn, "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'workflow_snapshot'"
    )
    return int(found[0][0])
