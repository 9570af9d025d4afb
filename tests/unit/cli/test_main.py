"""The command line's skeleton: help without imports, one message for each mistake."""

import subprocess
import sys

import pytest

from refold.cli.main import ENTRIES, Entry, report, run
from refold.schemas.errors import Code, ServerError, UsageError


def test_help_loads_no_group_and_no_client() -> None:
    code = (
        "import sys; from refold.cli.main import run; run(['--help']);"
        "print([m for m in ('refold.cli.local', 'confluent_kafka', 'psycopg') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_shows_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ENTRIES)


@pytest.mark.parametrize("name", list(ENTRIES))
def test_every_command_loads_and_shows_its_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    assert f"refold {name}" in capsys.readouterr().out


def test_a_mistyped_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["lokal"]) == 2
    assert "'local'" in capsys.readouterr().err


def test_an_error_is_told_with_its_place_and_its_cure(capsys: pytest.CaptureFixture[str]) -> None:
    report(ServerError(Code.KAFKA_AWAY, "nobody answers.", "Start it.", bootstrap="b:1"))
    assert capsys.readouterr().err.splitlines() == [
        "refold: KAFKA_AWAY: nobody answers.",
        "  where: bootstrap=b:1",
        "  what to do: Start it.",
        "  more: refold explain KAFKA_AWAY",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError(Code.BAD_SETTING, "no."), 2),
        (ServerError(Code.KAFKA_AWAY, "away."), 1),
    ],
)
def test_the_exit_code_says_who_is_wrong(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("refold.cli.main.app", fail)
    assert run([]) == code


def test_a_command_whose_package_is_missing_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "filelock", None)
    for name in [name for name in sys.modules if name.startswith("refold.local")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "refold.cli.local", raising=False)
    assert run(["local", "status"]) == 2
    assert "pip install 'refold[local]'" in capsys.readouterr().err


def test_an_entry_is_a_module_and_a_summary() -> None:
    assert all(isinstance(entry, Entry) and entry.summary for entry in ENTRIES.values())


def test_an_argument_that_is_no_text_is_named_and_not_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a shell passes on is bytes; ids and names are UTF-8."""
    assert run(["inspect", "\udcff\udcfe", "--definition", "x:y"]) == 2
    assert "is not UTF-8" in capsys.readouterr().err


def test_more_partitions_than_a_topic_can_have_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = "99999999999999999999999"
    assert run(["topics", "create", "refold.examples.order:order", "--partitions", many]) == 2
    assert many in capsys.readouterr().err


def test_a_log_level_that_there_is_not_is_answered_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["worker", "--log-level", "loud", "a:b"]) == 2
    assert "warning" in capsys.readouterr().err


def test_a_path_in_the_place_of_a_module_is_answered_with_the_module(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["graph", "returns/flow.py:graph"]) == 2
    assert "Write returns.flow:graph." in capsys.readouterr().err
