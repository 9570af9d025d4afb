"""Upkeep: verify reads one moment, rebuild is one cut, thinning is bounded, versions are kept."""

from collections.abc import Callable, Iterator, Mapping

import msgspec
import pytest
from tests.postgres.making import (
    TIME_MS,
    TOPIC,
    claimed,
    count,
    cut,
    event,
    execute,
    flush,
    instance,
    query,
    snapshot,
)

from refold.schemas.errors import Code, DefinitionError, UsageError
from refold.snapshots.model import Definition, Flush, ResolvedRow, SnapshotHash
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep

pytestmark = pytest.mark.postgres


@pytest.fixture
def upkeep(store: PostgresStore) -> Upkeep:
    return Upkeep(store)


def test_verify_reads_marker_digests_and_one_hash_for_each_instance(
    store: PostgresStore, upkeep: Upkeep
) -> None:
    row = claimed(store)
    first = [snapshot("order-2", 1, 0), snapshot("order-1", 1, 1), snapshot("z", 1, 2, tenant="a")]
    assert store.save(cut(row, 10, first))
    newer = snapshot("order-1", 2, 11, b"newer")
    assert store.save(cut(msgspec.structs.replace(row, marker=10), 20, [newer]))
    read = upkeep.partition_hashes(TOPIC, 0)
    assert read.row == store.read(TOPIC, 0)
    assert (read.row.marker, read.row.digest) == (20, b"digest")
    assert read.instances == [
        SnapshotHash("a", "z", 1, first[2].hash, 2),
        SnapshotHash("acme", "order-1", 2, newer.hash, 11),
        SnapshotHash("acme", "order-2", 1, first[0].hash, 0),
    ]


class Interrupted(dict[str, bytes]):
    """Statements before one of which something happens, once."""

    def __init__(
        self, statements: Mapping[str, bytes], name: str, what: Callable[[], None]
    ) -> None:
        super().__init__(statements)
        self._name, self._what = name, [what]

    def __getitem__(self, name: str) -> bytes:
        if name == self._name and self._what:
            self._what.pop()()
        return super().__getitem__(name)


def test_verify_reads_one_moment_while_a_worker_saves_and_prunes(
    store: PostgresStore, upkeep: Upkeep
) -> None:
    """P22: the version that the marker is about is there, although it goes in between."""
    row = claimed(store)
    first = snapshot("order-1", 1, 0)
    assert store.save(cut(row, 10, [first]))

    def work() -> None:
        for version in range(2, 7):
            here = msgspec.structs.replace(row, marker=10 * (version - 1))
            newer = snapshot("order-1", version, here.marker, b"newer")
            assert store.save(cut(here, here.marker + 10, [newer]))
        assert store.prune(TOPIC, 0, row.workflow, [("acme", "order-1")])

    upkeep._sql = Interrupted(upkeep._sql, "hashes", work)
    read = upkeep.partition_hashes(TOPIC, 0)
    assert read.row.marker == 10
    assert read.instances == [SnapshotHash("acme", "order-1", 1, first.hash, 0)]


def test_verify_of_a_partition_that_nobody_claimed_says_so(upkeep: Upkeep) -> None:
    with pytest.raises(UsageError, match="Nobody ever claimed") as refused:
        upkeep.partition_hashes(TOPIC, 0)
    assert refused.value.code is Code.NOT_FOUND


def test_a_rebuild_replaces_snapshots_rows_and_marker_in_one_cut(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    neighbour = claimed(store, number=1)
    assert store.save(cut(neighbour, 10, [snapshot("theirs")]))
    assert store.save(cut(row, 10, [snapshot("wrong", data=b"wrong")]))
    assert store.flush(flush(row, 10, instances=[instance("wrong")], events=[event(3)]))
    rebuilt = msgspec.structs.replace(
        row, marker=8, rows_to=8, digest=b"rebuilt", counts={"applied": 8}, decisions=2
    )
    pieces = [
        flush(row, 4, instances=[instance("right", 3)], events=[event(3, verdict="parked")]),
        flush(row, 8, instances=[instance("right", 7, state="done")], events=[event(7)],
              resolved=[ResolvedRow(3, "applied", 7, "", "")]),
    ]  # fmt: skip
    assert upkeep.replace(rebuilt, iter([snapshot("right", 2, 7)]), iter(pieces))
    standing = store.read(TOPIC, 0)
    assert standing == msgspec.structs.replace(rebuilt, takeovers=0)
    assert [s.version for s in upkeep.snapshot_versions("order", "acme", "right")] == [2]
    assert not upkeep.snapshot_versions("order", "acme", "wrong")
    assert upkeep.snapshot_versions("order", "acme", "theirs")
    assert query(migrated, "SELECT instance_id, state FROM refold_v1.instances") == [
        ("right", "done")
    ]
    assert query(migrated, "SELECT log_offset, resolution FROM refold_v1.events ORDER BY 1") == [
        (3, "applied"),
        (7, None),
    ]


def test_a_rebuild_works_when_every_row_of_the_partition_is_gone(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, [snapshot()]))
    for table in ("workflow_partition", "workflow_snapshot"):
        execute(migrated, f"DELETE FROM refold.{table}")
    assert not upkeep.replace(row, [], None)
    again = msgspec.structs.replace(claimed(store, "rebuild"), marker=10, rows_to=10)
    assert upkeep.replace(again, [snapshot()], [])
    loaded = store.load(TOPIC, 0, "order", [("acme", "order-1")])
    assert (loaded.marker, loaded.snapshots) == (10, [snapshot()])


def test_a_rebuild_that_is_fenced_or_fails_changes_nothing(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, [snapshot()]))
    before = store.read(TOPIC, 0)

    def failing() -> Iterator[Flush]:
        yield flush(row, 4, events=[event(3)])
        raise ValueError("the log ended early")

    with pytest.raises(ValueError, match="the log ended early"):
        upkeep.replace(msgspec.structs.replace(row, marker=5), [], failing())
    assert store.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
    assert not upkeep.replace(msgspec.structs.replace(row, marker=5), [], [])
    after = store.read(TOPIC, 0)
    assert before is not None
    assert after == msgspec.structs.replace(before, epoch=2, owner="w2", takeovers=1)
    assert (count(migrated, "workflow_snapshot"), count(migrated, "workflow_event_log")) == (1, 0)


def test_a_rebuild_without_flushes_leaves_the_rows_that_stand(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    assert store.flush(flush(row, 10, instances=[instance()], events=[event(3)]))
    assert upkeep.replace(msgspec.structs.replace(row, marker=10, rows_to=10), [], None)
    assert (count(migrated, "workflow_instance"), count(migrated, "workflow_event_log")) == (1, 1)


def test_a_rebuild_keeps_what_jsonb_cannot_hold_and_marks_doubled_events(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    huge = b'{"x": ' + b"9" * 200_000 + b"}"
    pieces = [
        flush(row, 4, instances=[instance(context=huge)], events=[event(3)]),
        flush(row, 8, instances=[instance("order-2", 7)], events=[event(7, id="event-3")]),
    ]
    assert upkeep.replace(msgspec.structs.replace(row, marker=8, rows_to=8), [], pieces)
    assert query(migrated, "SELECT lossy FROM refold_v1.instances ORDER BY instance_id") == [
        (True,),
        (False,),
    ]
    assert query(migrated, "SELECT doubled FROM refold_v1.events ORDER BY log_offset") == [
        (False,),
        (True,),
    ]


def test_old_index_rows_go_in_bounded_steps_and_what_still_waits_stays(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    events = [event(n) for n in range(6)] + [event(6, verdict="parked"), event(900)]
    assert store.flush(flush(row, 1_000, events=events))
    assert upkeep.thin_events("other", TIME_MS + 500) == 0
    steps = [upkeep.thin_events("order", TIME_MS + 500, limit=4) for _ in range(3)]
    assert steps == [4, 2, 0]
    left = query(migrated, "SELECT log_offset FROM refold_v1.events ORDER BY 1")
    assert left == [(6,), (900,)]


def test_old_rows_of_ended_instances_go_and_their_snapshots_stay(
    store: PostgresStore, upkeep: Upkeep, migrated: str
) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, [snapshot("ended")]))
    instances = [
        instance("ended", 1, run_status="completed"),
        instance("running", 2),
        instance("fresh", 3, run_status="completed", updated_ms=TIME_MS + 1_000),
    ]
    assert store.flush(flush(row, 10, instances=instances))
    assert upkeep.thin_instances("order", TIME_MS + 500) == 1
    left = query(migrated, "SELECT instance_id FROM refold_v1.instances ORDER BY 1")
    assert left == [("fresh",), ("running",)]
    assert len(upkeep.snapshot_versions("order", "acme", "ended")) == 1


def test_a_definition_keeps_the_fingerprint_of_its_first_use(upkeep: Upkeep) -> None:
    first = Definition(workflow="order", version=1, fingerprint="aa", canonical='{"a":1}')
    upkeep.register(first)
    upkeep.register(first)
    changed = msgspec.structs.replace(first, fingerprint="bb")
    with pytest.raises(DefinitionError, match="new version") as refused:
        upkeep.register(changed)
    assert refused.value.code is Code.DEFINITION_CHANGED
    upkeep.accept(changed)
    upkeep.register(changed)
    second = msgspec.structs.replace(first, version=2, fingerprint="cc")
    upkeep.register(second)
    assert upkeep.retire("order", 1)
    assert not upkeep.retire("order", 7)
    assert upkeep.definitions("order") == [
        msgspec.structs.replace(changed, state="retired"),
        second,
    ]


def test_versions_in_use_are_counted_over_instances_that_have_not_ended(
    store: PostgresStore, upkeep: Upkeep
) -> None:
    row = claimed(store)
    instances = [
        instance("a", 1, definition=1, run_status="completed"),
        instance("b", 2, definition=2),
        instance("c", 3, definition=2, run_status="parked"),
    ]
    assert store.flush(flush(row, 10, instances=instances))
    assert upkeep.versions_in_use("order") == {2: 2}
