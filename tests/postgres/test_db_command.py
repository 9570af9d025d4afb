"""`refold db`: what a person types, and what it says."""

import json
import time

import pytest
from tests.postgres.conftest import NewStore
from tests.postgres.making import claimed, event, flush, instance, query

from refold.cli.main import run

pytestmark = pytest.mark.postgres


def test_migrate_then_check_says_that_all_is_well(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "migrate", "--dsn", database, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["applied"][0] == "partition"
    assert run(["db", "migrate", "--dsn", database]) == 0
    assert run(["db", "check", "--dsn", database, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_check_of_an_empty_database_fails_and_names_the_cure(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "check", "--dsn", database, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding["code"] == "SCHEMA_VERSION"
    assert run(["db", "check", "--dsn", database]) == 1
    assert "refold db migrate" in capsys.readouterr().err


def test_the_connection_string_comes_from_the_settings(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", database)
    assert run(["db", "migrate", "--schema", "elsewhere"]) == 0
    assert query(database, "SELECT to_regclass('elsewhere_v1.instances') IS NOT NULL") == [(True,)]


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["migrate", "--dsn", "no such string"], "BAD_SETTING", 2),
        (["migrate", "--schema", "a;b", "--dsn", "postgresql://127.0.0.1:1/x"], "BAD_SETTING", 2),
        (["migrate", "--dsn", "postgresql://127.0.0.1:1/x"], "POSTGRES_AWAY", 1),
        (["grant", "--dsn", "postgresql://127.0.0.1:1/x"], "BAD_COMMAND_LINE", 2),
    ],
)
def test_a_mistake_on_the_command_line_is_one_message_without_a_traceback(
    arguments: list[str], code: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", *arguments]) == exit_code
    told = capsys.readouterr().err
    assert told.startswith(f"refold: {code}:")
    assert "Traceback" not in told


def test_a_dry_run_of_grants_prints_the_sql(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "migrate", "--dsn", database]) == 0
    assert run(["db", "grant", "--dsn", database, "--worker", "x", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert 'GRANT SELECT, INSERT, UPDATE ON "refold"."workflow_partition" TO "x";' in printed


def test_thin_deletes_what_is_old_and_says_how_much(
    new_store: NewStore, migrated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = new_store()
    row = claimed(store)
    events = [event(1, log_time_ms=1_000), event(2, log_time_ms=int(time.time() * 1000))]
    ended = instance("old", 1, run_status="completed", updated_ms=1_000)
    assert store.flush(flush(row, 10, events=events, instances=[ended, instance("live", 2)]))
    command = ["db", "thin", "order", "--older-than-days", "30", "--dsn", migrated, "--json"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out) == {"events": 1, "instances": 1}
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out) == {"events": 0, "instances": 0}
