"""The test bench itself: real servers, ready when a test gets them, shared, not mixed (B058)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from refold.local.probe import probe_kafka, probe_postgres
from refold.testing import servers
from refold.testing.servers import Kafka, OwnPostgres, Postgres, end_orphans, has_engine


@pytest.mark.kafka
def test_the_broker_is_ready_for_transactions_when_a_test_gets_it(kafka: Kafka) -> None:
    probe_kafka(kafka.bootstrap)


@pytest.mark.kafka
def test_a_mistyped_topic_is_not_made(kafka: Kafka, unique: Callable[[str], str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.list_topics(unique("nobody-made-me"), timeout=10)
    assert unique("nobody-made-me") not in admin.list_topics(timeout=10).topics


@pytest.mark.postgres
def test_the_database_server_takes_writes_when_a_test_gets_it(postgres: Postgres) -> None:
    probe_postgres(postgres.dsn)


@pytest.mark.postgres
def test_every_test_gets_an_empty_database_of_its_own(database: str, postgres: Postgres) -> None:
    other = postgres.new_database()
    with psycopg.connect(database) as here, psycopg.connect(other) as there:
        here.execute("CREATE TABLE t (i int)")
        here.commit()
        assert there.execute("SELECT to_regclass('t')").fetchone() == (None,)
    postgres.drop_database(other)


def test_unique_names_differ_only_between_tests(unique: Callable[[str], str]) -> None:
    assert unique("orders") == unique("orders")
    assert unique("orders") != unique("payments")


def _run_one(test: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A test run of its own, with other variables."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, "-k", test],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_servers_of_the_environment_go_before_all_others(kafka: Kafka, postgres: Postgres) -> None:
    done = _run_one(
        "is_ready or takes_writes",
        REFOLD_TEST_KAFKA=kafka.bootstrap,
        REFOLD_TEST_POSTGRES=postgres.dsn,
    )
    assert "servers: Kafka at REFOLD_TEST_KAFKA; PostgreSQL " in done.stdout
    assert "2 passed" in done.stdout


def test_a_server_that_is_not_there_is_an_error_and_no_skip() -> None:
    done = _run_one("takes_writes", REFOLD_TEST_POSTGRES="postgresql://127.0.0.1:9/nobody")
    assert "REFOLD_TEST_POSTGRES does not answer" in done.stdout
    assert "1 error" in done.stdout
    assert "skipped" not in done.stdout


def test_an_engine_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexec sleep 600\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(servers, "ENGINE_TIMEOUT_S", 0.2)
    has_engine.cache_clear()
    assert not has_engine()
    has_engine.cache_clear()


@pytest.mark.postgres
def test_what_a_killed_run_left_is_ended_by_the_next(own_postgres: OwnPostgres) -> None:
    left, mine = own_postgres(), own_postgres()
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (left.home.parent / "owner").write_text(f"{gone.pid} 1.0")
    end_orphans()
    assert not left.is_running()
    assert not left.home.exists()
    assert mine.is_running()
