"""Cuts: snapshots and marker in one transaction, under the epoch, told only when known."""

from collections.abc import Callable, Iterator

import msgspec
import psycopg
import pytest
from tests.postgres.conftest import NewStore
from tests.postgres.making import TOPIC, claimed, count, cut, end_sessions, execute, query, snapshot
from tests.postgres.proxy import MOMENTS, TO_CLIENT, TO_SERVER, Rule, proxy

from refold.schemas.errors import Code, InvariantViolation, ServerError
from refold.snapshots.model import Alarm, Snapshot
from refold.snapshots.sessions import transaction
from refold.snapshots.store import PostgresStore
from refold.snapshots.writer import COPY_ROWS_LEAST

pytestmark = pytest.mark.postgres


class Watched(list[Snapshot]):
    """Snapshots that do something before the second half is read, the first time only."""

    def __init__(self, rows: list[Snapshot], act: Callable[[], object]) -> None:
        super().__init__(rows)
        self._act: Callable[[], object] | None = act

    def __iter__(self) -> Iterator[Snapshot]:
        for number, row in enumerate(list.__iter__(self)):
            if number == len(self) // 2 and self._act is not None:
                act, self._act = self._act, None
                act()
            yield row


def _marker(store: PostgresStore) -> int:
    row = store.read(TOPIC, 0)
    assert row is not None
    return row.marker


def _many(number: int, last_offset: int = 0) -> list[Snapshot]:
    return [snapshot(f"order-{n}", last_offset=last_offset) for n in range(number)]


def test_snapshots_and_marker_are_saved_together_and_loaded_as_they_were(
    store: PostgresStore,
) -> None:
    row = claimed(store)
    rows = [snapshot("order-1", data=b""), snapshot("order-2", data=bytes(range(256)) * 40)]
    assert store.save(cut(row, 10, rows))
    loaded = store.load(TOPIC, 0, "order", [("acme", "order-1"), ("acme", "order-2")])
    assert (loaded.epoch, loaded.marker, loaded.damaged) == (row.epoch, 10, [])
    assert sorted(loaded.snapshots, key=lambda s: s.instance) == rows
    saved = store.read(TOPIC, 0)
    assert saved == msgspec.structs.replace(
        row,
        marker=10,
        decisions=3,
        digest=b"digest",
        counts={"applied": 10},
        activations=b"activations",
        takeovers=0,
    )


def test_an_older_epoch_writes_nothing_and_is_told_that_it_is_fenced(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    assert store.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
    assert not store.save(cut(row, 10, [snapshot()]))
    assert _marker(store) == 0
    assert count(migrated, "workflow_snapshot") == 0


def test_a_cut_from_another_marker_than_the_one_that_stands_is_refused(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, []))
    assert not store.save(cut(row, 30, [snapshot()], previous=20))
    assert _marker(store) == 10
    assert count(migrated, "workflow_snapshot") == 0


def test_a_cut_that_was_committed_before_is_done_and_not_written_again(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    same = cut(row, 10, [snapshot()])
    assert store.save(same)
    assert store.save(same)
    assert count(migrated, "workflow_snapshot") == 1


def test_more_rows_than_one_copy_holds_are_still_one_transaction(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    for _ in range(20):
        store.writer.smaller()
    assert store.writer.chunk == COPY_ROWS_LEAST
    assert store.save(cut(row, 10, _many(2 * COPY_ROWS_LEAST + 1)))
    assert count(migrated, "workflow_snapshot") == 2 * COPY_ROWS_LEAST + 1
    assert store.writer.chunk > COPY_ROWS_LEAST


def _stands(migrated: str, version: Snapshot, hash_: bytes | None = None) -> None:
    """The version stands already, as after a marker that was set back by hand."""
    execute(
        migrated,
        "INSERT INTO refold.workflow_snapshot VALUES ('order', 0, %s, %s, %s, %s, %s, %s, %s, %s, "
        "%s, %s, %s)",
        version.tenant, version.instance, version.version, version.definition,
        version.fingerprint, version.state, version.last_offset, version.last_source,
        version.last_id, version.data, hash_ or version.hash,
    )  # fmt: skip


def test_an_equal_second_write_of_a_version_is_a_no_op(
    store: PostgresStore, migrated: str, alarms: list[Alarm]
) -> None:
    row = claimed(store)
    _stands(migrated, snapshot("order-1"))
    assert store.save(cut(row, 10, [snapshot("order-1"), snapshot("order-2")]))
    assert count(migrated, "workflow_snapshot") == 2
    assert not alarms


def test_an_unequal_second_write_of_a_version_is_an_alarm_and_moves_nothing(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    _stands(migrated, snapshot("order-1", data=b"one"))
    with pytest.raises(InvariantViolation, match="another content") as broken:
        store.save(cut(row, 10, [snapshot("order-1", data=b"another"), snapshot("order-2")]))
    assert broken.value.where["instance"] == "order-1"
    assert _marker(store) == 0
    assert count(migrated, "workflow_snapshot") == 1


def test_a_damaged_version_is_healed_when_it_is_written_again(
    store: PostgresStore, migrated: str, alarms: list[Alarm]
) -> None:
    row = claimed(store)
    good = snapshot("order-1", data=b"good")
    _stands(migrated, snapshot("order-1", data=b"goof"), hash_=good.hash)
    assert store.save(cut(row, 10, [good]))
    assert store.load(TOPIC, 0, "order", [("acme", "order-1")]).snapshots == [good]
    assert [alarm.code for alarm in alarms] == ["SNAPSHOT_DAMAGED"]


@pytest.mark.parametrize(
    ("moment", "rule"),
    [
        ("before the server saw COMMIT", MOMENTS["before the server saw it"]),
        ("before its answer came", MOMENTS["before its answer came"]),
        ("inside COPY", lambda way, b: way == TO_SERVER and b"order-7" in b),
        ("before the answer to the marker", lambda way, b: way == TO_CLIENT and b"UPDATE 1" in b),
    ],
)
def test_a_cut_whose_connection_is_lost_is_written_exactly_once(
    new_store: NewStore, migrated: str, moment: str, rule: Rule
) -> None:
    with proxy(migrated) as between:
        store = new_store(dsn=between.dsn)
        row = claimed(store)
        between.rule = rule
        assert store.save(cut(row, 10, _many(10))), moment
        assert between.cuts == 1
        assert _marker(store) == 10
        assert store.save(cut(msgspec.structs.replace(row, marker=10), 20, _more(10)))
    assert count(migrated, "workflow_snapshot") == 20


def _more(number: int) -> list[Snapshot]:
    return [snapshot(f"order-{n}", version=2, last_offset=12) for n in range(number)]


def test_a_lost_answer_whose_partition_was_taken_meanwhile_is_a_fence(
    new_store: NewStore, migrated: str
) -> None:
    with proxy(migrated) as between:
        store = new_store(dsn=between.dsn)
        row = claimed(store)

        def take() -> None:
            end_sessions(migrated, "refold:w1")  # the old one may not know yet that it is cut
            execute(migrated, "UPDATE refold.workflow_partition SET epoch = 2, owner = 'w2'")

        between.after = take
        between.rule = MOMENTS["before the server saw it"]
        assert not store.save(cut(row, 10, [snapshot()]))
    assert count(migrated, "workflow_snapshot") == 0


def test_a_session_that_is_ended_inside_copy_leaves_nothing_and_is_tried_again(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)

    def end() -> None:
        end_sessions(migrated, "refold:w1")
        assert count(migrated, "workflow_snapshot") == 0

    assert store.save(cut(row, 10, Watched(_many(5_000), end)))
    assert count(migrated, "workflow_snapshot") == 5_000
    assert _marker(store) == 10


def test_rows_that_cannot_be_read_leave_nothing_and_the_connection_is_usable(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)

    def fail() -> None:
        raise ValueError("encoding failed")

    with pytest.raises(ValueError, match="encoding failed"):
        store.save(cut(row, 10, Watched(_many(1_000), fail)))
    assert (_marker(store), count(migrated, "workflow_snapshot")) == (0, 0)
    assert store.save(cut(row, 10, _many(3)))


def test_a_commit_that_was_a_rollback_is_never_taken_for_a_commit(
    store: PostgresStore, migrated: str
) -> None:
    with store.runner.sessions.borrow() as connection:
        broken = transaction(connection)
        broken.__enter__()
        with pytest.raises(psycopg.Error):  # swallowed, as a careless helper would
            connection.execute("SELECT 1 / 0")
        with pytest.raises(InvariantViolation, match="answered ROLLBACK"):
            broken.__exit__(None, None, None)


def _failing_trigger(migrated: str, state: str, times: int) -> None:
    """The first `times` snapshots fail; a sequence counts, which no rollback sets back."""
    execute(migrated, "CREATE SEQUENCE public.failures")
    execute(
        migrated,
        "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN "
        f"IF nextval('public.failures') <= {times} THEN "
        f"RAISE EXCEPTION 'made to fail' USING ERRCODE = '{state}'; END IF; RETURN NEW; END $f$",
    )
    execute(
        migrated,
        "CREATE TRIGGER failing BEFORE INSERT ON refold.workflow_snapshot "
        "FOR EACH ROW EXECUTE FUNCTION public.fail()",
    )


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_conflict_is_rolled_back_and_tried_again(
    new_store: NewStore, altered: str, state: str
) -> None:
    store = new_store(dsn=altered)
    row = claimed(store)
    _failing_trigger(altered, state, times=3)
    assert store.save(cut(row, 10, _many(2)))
    assert count(altered, "workflow_snapshot") == 2


def test_a_conflict_without_end_is_told_and_leaves_marker_and_store_as_they_were(
    new_store: NewStore, altered: str
) -> None:
    store = new_store(dsn=altered)
    row = claimed(store)
    _failing_trigger(altered, "40001", times=1_000_000)
    with pytest.raises(ServerError) as away:
        store.save(cut(row, 10, _many(2)))
    assert (away.value.code, away.value.where["sqlstate"]) == (Code.POSTGRES_AWAY, "40001")
    assert (_marker(store), count(altered, "workflow_snapshot")) == (0, 0)
    execute(altered, "DROP TRIGGER failing ON refold.workflow_snapshot")
    assert store.save(cut(row, 10, _many(2)))


def test_a_statement_over_its_timeout_is_tried_in_smaller_pieces_a_few_times_only(
    new_store: NewStore, migrated: str
) -> None:
    store = new_store(statement_timeout_s=0.1)
    row = claimed(store)
    whole = store.writer.chunk
    with psycopg.connect(migrated) as holder:
        holder.execute("LOCK TABLE refold.workflow_snapshot IN SHARE MODE")
        with pytest.raises(ServerError) as away:
            store.save(cut(row, 10, _many(2)))
    assert (away.value.code, away.value.where["sqlstate"]) == (Code.POSTGRES_AWAY, "57014")
    assert store.writer.chunk == whole // 8
    assert (_marker(store), count(migrated, "workflow_snapshot")) == (0, 0)
    assert store.save(cut(row, 10, _many(2)))


def test_a_marker_that_fell_back_is_seen_by_save_and_load(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, [snapshot()]))
    execute(migrated, "UPDATE refold.workflow_partition SET marker = 0")
    execute(migrated, "DELETE FROM refold.workflow_snapshot")
    assert not store.save(cut(row, 20, [], previous=10))
    assert store.load(TOPIC, 0, "order", []).marker == 0


def test_markers_never_move_back(store: PostgresStore, migrated: str) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, []))
    with pytest.raises(InvariantViolation, match="back"):
        store.save(cut(row, 5, [], previous=10))
    assert query(migrated, "SELECT marker FROM refold.workflow_partition") == [(10,)]


def test_a_cut_that_moves_nothing_is_written_all_the_same_when_its_answer_is_lost(
    new_store: NewStore, migrated: str
) -> None:
    with proxy(migrated) as between:
        store = new_store(dsn=between.dsn)
        row = claimed(store)
        between.rule = MOMENTS["before the server saw it"]
        assert store.save(cut(row, row.marker, [], digest=b"another"))
        assert between.cuts == 1
        standing = store.read(TOPIC, 0)
    assert standing is not None
    assert standing.digest == b"another"
