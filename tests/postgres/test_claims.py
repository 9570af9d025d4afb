"""Claims: compare-and-set on the epoch, one winner, and no owner that holds the row for ever."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import msgspec
import psycopg
import pytest
from tests.postgres.conftest import NewStore
from tests.postgres.making import TOPIC, claimed, cut, execute, partition, query, snapshot
from tests.postgres.proxy import MOMENTS, proxy

from refold.schemas.errors import Code, ServerError, UsageError
from refold.snapshots.model import Alarm, PartitionRow
from refold.snapshots.store import PostgresStore

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).resolve().parents[2]


def test_nobody_claimed_a_partition_that_nobody_claimed(store: PostgresStore) -> None:
    assert store.read(TOPIC, 0) is None
    assert not store.release(TOPIC, 0, 1)
    assert not store.choose(TOPIC, 0, "emit")


def test_the_first_claim_writes_the_row_and_later_first_claims_lose(store: PostgresStore) -> None:
    row = claimed(store)
    assert (row.epoch, row.owner, row.takeovers, row.released) == (1, "w1", 1, False)
    assert store.claim(partition("w2"), None) is None
    assert store.claim(partition("w1"), None) is None
    assert store.read(TOPIC, 0) == row


def test_a_claim_with_the_epoch_that_was_read_wins_once(store: PostgresStore) -> None:
    first = claimed(store)
    second = store.claim(msgspec.structs.replace(first, owner="w2"), first.epoch)
    assert second is not None
    assert (second.epoch, second.owner, second.takeovers) == (2, "w2", 2)
    assert store.claim(msgspec.structs.replace(first, owner="w3"), first.epoch) is None


def test_of_claims_at_the_same_moment_exactly_one_wins(new_store: NewStore) -> None:
    workers = [f"w{number}" for number in range(6)]
    stores = {name: new_store(name) for name in workers}
    first = claimed(stores["w0"])
    together = Barrier(len(workers))

    def claim(name: str) -> PartitionRow | None:
        together.wait()
        return stores[name].claim(msgspec.structs.replace(first, owner=name), first.epoch)

    with ThreadPoolExecutor(len(workers)) as pool:
        won = [row for row in pool.map(claim, workers) if row is not None]
    assert len(won) == 1
    assert stores["w0"].read(TOPIC, 0) == won[0]


def test_a_claim_keeps_what_the_old_owner_saved_after_the_row_was_read(
    store: PostgresStore,
) -> None:
    row = claimed(store)
    assert store.save(cut(row, 10, [snapshot()]))
    second = store.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
    assert second is not None
    assert (second.marker, second.decisions, second.digest) == (10, 3, b"digest")
    assert (second.counts, second.activations) == ({"applied": 10}, b"activations")


def test_takeovers_are_counted_until_the_marker_moves_or_the_partition_is_given_back(
    store: PostgresStore,
) -> None:
    row = claimed(store)
    for turn in (2, 3):
        again = store.claim(msgspec.structs.replace(row, owner=f"w{turn}"), row.epoch)
        assert again is not None
        row = again
        assert row.takeovers == turn
    assert store.save(cut(row, 10, []))
    saved = store.read(TOPIC, 0)
    assert saved is not None
    assert saved.takeovers == 0
    assert store.release(TOPIC, 0, row.epoch)
    released = store.read(TOPIC, 0)
    assert released is not None
    assert (released.released, released.takeovers) == (True, 0)


def test_an_older_epoch_cannot_give_the_partition_back(store: PostgresStore) -> None:
    row = claimed(store)
    assert store.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
    assert not store.release(TOPIC, 0, row.epoch)
    standing = store.read(TOPIC, 0)
    assert standing is not None
    assert not standing.released


def test_a_schema_serves_one_topic_of_a_workflow(store: PostgresStore) -> None:
    claimed(store)
    other = partition("w1", topic="staging.order.events")
    with pytest.raises(UsageError, match="schema of its own") as refused:
        store.claim(other, None)
    assert refused.value.code is Code.BAD_SETTING


def test_a_claim_whose_answer_was_lost_is_known_by_its_owner(
    new_store: NewStore, migrated: str
) -> None:
    with proxy(migrated) as between:
        store = new_store(dsn=between.dsn)
        between.rule = MOMENTS["before its answer came"]
        row = store.claim(partition("w1"), None)
        assert between.cuts == 1
    assert row is not None
    assert (row.epoch, row.owner) == (1, "w1")


def test_an_owner_that_is_frozen_inside_copy_is_ended_and_learns_that_it_is_fenced(
    new_store: NewStore, migrated: str, alarms: list[Alarm]
) -> None:
    script = [sys.executable, "-m", "tests.postgres.paused_owner", migrated]
    with subprocess.Popen(
        script, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == "in copy\n"
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            store = new_store("w2", lock_timeout_s=0.2)
            old = store.read(TOPIC, 0)
            assert old is not None
            mine = store.claim(msgspec.structs.replace(old, owner="w2"), old.epoch)
            assert mine is not None
            assert (mine.epoch, mine.owner, mine.marker) == (2, "w2", 0)
        finally:
            os.kill(owner.pid, signal.SIGCONT)
        owner.stdin.write("go on\n")
        owner.stdin.close()
        assert owner.stdout.read() == "saved False\n"
    assert [alarm.code for alarm in alarms] == ["OWNER_TERMINATED"]
    assert not query(migrated, "SELECT FROM refold.workflow_snapshot")


def test_sessions_of_other_workers_live_on_when_an_owner_is_ended(
    new_store: NewStore, migrated: str
) -> None:
    first, other = new_store("w1"), new_store("w3")
    row = claimed(first)
    theirs = claimed(other, "w3", number=1)
    with psycopg.connect(migrated, application_name="refold:w1") as held:
        held.execute("UPDATE refold.workflow_partition SET base = base WHERE partition = 0")
        second = new_store("w2", lock_timeout_s=0.1)
        assert second.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")
    assert other.save(cut(theirs, 5, [snapshot()]))


def test_a_stranger_that_holds_the_row_is_named_and_not_ended(
    new_store: NewStore, migrated: str, alarms: list[Alarm]
) -> None:
    store = new_store("w1", lock_timeout_s=0.05)
    row = claimed(store)
    with psycopg.connect(migrated, application_name="somebody") as held:
        held.execute("SELECT FROM refold.workflow_partition FOR UPDATE")
        with pytest.raises(ServerError, match="pg_locks") as away:
            store.claim(row, row.epoch)
        held.execute("SELECT 1")
    assert away.value.code is Code.POSTGRES_AWAY
    assert not alarms
    assert store.claim(row, row.epoch)


def test_a_fence_and_a_choice_stand_in_the_row_until_the_marker_moves(
    store: PostgresStore, migrated: str
) -> None:
    row = claimed(store)
    store.fence(TOPIC, 0, row.epoch, "OFFSETS_MOVED: somebody moved it")
    store.fence(TOPIC, 0, row.epoch + 1, "not mine")
    assert store.choose(TOPIC, 0, "silent")
    standing = store.read(TOPIC, 0)
    assert standing is not None
    assert (standing.fence, standing.choice) == ("OFFSETS_MOVED: somebody moved it", "silent")
    assert store.save(cut(row, 1, []))
    moved = store.read(TOPIC, 0)
    assert moved is not None
    assert (moved.fence, moved.choice) == ("", "")
    kept = query(migrated, "SELECT fence, choice FROM refold.workflow_choice")
    assert kept == [("OFFSETS_MOVED: somebody moved it", "silent")]


def test_a_record_is_suspect_twice_only_under_two_owners(store: PostgresStore) -> None:
    row = claimed(store)
    assert store.suspect(TOPIC, 0, 7) == 1
    assert store.suspect(TOPIC, 0, 7) == 1
    assert store.claim(msgspec.structs.replace(row, owner="w2"), row.epoch)
    assert store.suspect(TOPIC, 0, 7) == 2
    store.clear(TOPIC, 0, 7)
    assert store.suspect(TOPIC, 0, 7) == 1


@pytest.mark.parametrize("tail", ["", "x" * 80, "\N{CROISSANT}", "a\tb"])
def test_a_session_bears_the_name_that_its_row_tells(
    new_store: NewStore, migrated: str, tail: str
) -> None:
    stores = [new_store(f"{tail}{number}") for number in (0, 1)]
    for number, store in enumerate(stores):
        claimed(store, f"w{number}", number)
    told = query(migrated, "SELECT session FROM refold.workflow_partition")
    live = query(
        migrated,
        "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'refold:%%'"
        " AND datname = current_database()",
    )
    assert len(set(told)) == 2
    assert set(told) == set(live)


def test_a_rights_error_says_what_to_grant(new_store: NewStore, migrated: str) -> None:
    role = f"role_{os.getpid()}_{os.urandom(4).hex()}"
    execute(migrated, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        store = new_store(dsn=psycopg.conninfo.make_conninfo(migrated, user=role, password="x"))
        with pytest.raises(ServerError, match="refold db grant") as refused:
            store.read(TOPIC, 0)
        assert refused.value.code is Code.POSTGRES_REFUSED
        store.close()
    finally:
        execute(migrated, f"DROP ROLE {role}")
