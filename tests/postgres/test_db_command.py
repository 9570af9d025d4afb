"""`refold db`: what a person types, and what it says."""

import json

import pytest
from tests.postgres.making import query

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
