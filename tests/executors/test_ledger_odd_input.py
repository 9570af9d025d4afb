"""`refold ledger` with what nobody should type: one message each, no traceback, nothing changed."""

from pathlib import Path

import pytest
from tests.executors.rows import Rows, claim, ended, intent, key_of
from tests.executors.test_ledger_command import Out, settings

from refold.cli.main import run
from refold.executors.ledger import Ledger
from refold.executors.model import Status

__all__ = ["settings"]
pytestmark = pytest.mark.postgres

TIMES = [
    "", " ", "now", "999999d", "999999h", "-1h", "1.5h", "24H", "0d", "2026-13-01", "2026-02-30",
    "2026-11-30T25:00:00Z", "2026-11-30T14:00:00+25:00", "2026-11-30T14:00:00+14:00",
    "0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-W48-1",
    "2026-11-30T14:00:00.123456789Z", "20261130", "\udcff", "2026-11-30\0", "٢٠٢٦-١١-٣٠", "9" * 400,
]  # fmt: skip
TEXTS = ["", " ", "\udcff\udcfe", "no\0thing", "x" * 10_000, "%s", "'; --", "-", "🦫", "a:b:c"]
NUMBERS = ["nan", "inf", "-inf", "1e308", "-1", "0", "x", ""]
COMMANDS = [
    *(["list", "--from", each] for each in TIMES),
    *(["report", "--to", each] for each in TIMES),
    *(["report", "--from", each, "--json"] for each in TIMES),
    *(["report", "--from", each, "--to", "2026-12-01", "--per-double", "2"] for each in TIMES),
    *(["export", "--from", each, "--format", "csv"] for each in TIMES),
    *(["rejected", "--from", each] for each in TIMES),
    *(["show", each] for each in TEXTS),
    *(["list", "--action", each] for each in TEXTS),
    *(["list", "--target", each] for each in TEXTS),
    *(["list", "--instance", each, "--json"] for each in TEXTS),
    *(["settle", each, "--as", "failed", "--reason", "seen"] for each in TEXTS),
    *(["doubles", "--apart-s", each] for each in NUMBERS),
    *(["prune", "--days", each] for each in NUMBERS),
    *(["list", "--limit", each] for each in NUMBERS),
    *(["report", "--per-double", each] for each in NUMBERS),
    *(["report", "--per-double", f"Charge={each}"] for each in (*NUMBERS, "=", "1=2")),
    *(["grant", "--executor", each] for each in TEXTS),
    ["grant", "--executor", "nobody_of_that_name"],
    ["list", "--state", "odd"],
    ["settle", key_of(1), "--as", "unknown", "--reason", "x"],
    ["settle", key_of(1), "--as", "failed", "--reason", " "],
    ["settle", key_of(1), "--as", "failed", "--reason", "x", "--type", "nowhere:Nothing"],
    ["settle", key_of(1), "--as", "failed", "--reason", "x", "--type", "os:path"],
    ["settle", key_of(1), "--as", "failed", "--reason", "x", "--data", "{"],
    ["settle", key_of(1), "--as", "failed", "--reason", "x", "--data", "\udcff"],
]


@pytest.mark.parametrize("name", sorted({each[0] for each in COMMANDS}))
def test_what_is_typed_wrong_is_one_message(
    ledger: Ledger, rows: Rows, capsys: Out, name: str
) -> None:
    ledger.plan([intent(1)], [])
    for command in [each for each in COMMANDS if each[0] == name]:
        told = _told(capsys, command)
        assert "Traceback" not in told, command
        assert "bug in refold" not in told, command
    assert rows.statuses() == {1: "planned"}


FILES: dict[str, bytes] = {
    "empty": b"",
    "a mark and no more": b"\xef\xbb\xbf",
    "names alone": b"key,amount\n",
    "a line without end": b"key",
    "nothing but lines": b"\n\n\n",
    "nulls": b"key\n\0\0\0\nk\0ey\n",
    "UTF-16": "key\nk\n".encode("utf-16"),
    "bytes": bytes(range(256)) * 10,
    "a quote without end": b'key,x\n"abc,1\n2,3\n',
    "too long a field": b"key\n" + b"x" * 1_000_000,
    "long names of columns": b"x" * 5_000 + b",key\n1,2\n",
    "short and long lines": b"a,key,b\n1\n1,2,3,4,5\n,,\n",
    "names twice": b"key,key\n1,2\n",
    "half a character": b"key\n\xed\xa0\x80\n",
    "old Macintosh": b"key\rk1\rk2\r",
}


@pytest.mark.parametrize("name", FILES)
def test_a_statement_that_is_none_is_one_message(
    ledger: Ledger, capsys: Out, tmp_path: Path, name: str
) -> None:
    ledger.plan([intent(1)], [])
    file = tmp_path / "statement.csv"
    file.write_bytes(FILES[name])
    told = _told(capsys, ["compare", str(file)])
    assert "Traceback" not in told
    assert "PostgreSQL" not in told


def test_a_statement_as_spreadsheets_write_it_is_read(
    ledger: Ledger, capsys: Out, tmp_path: Path
) -> None:
    ledger.plan([intent(1)], [])
    ledger.settle([ended(each) for each in claim(ledger)])
    file = tmp_path / "statement.csv"
    file.write_bytes(b"\xef\xbb\xbf" + f'"key";"amount"\r\n"{key_of(1)}";"1,00"\r\n'.encode())
    assert "both" in _told(capsys, ["compare", str(file)], code=0)


@pytest.mark.parametrize("place", ["nowhere.csv", "."])
def test_a_statement_that_cannot_be_opened_is_one_message(
    capsys: Out, tmp_path: Path, place: str
) -> None:
    told = _told(capsys, ["compare", str(tmp_path / place)], code=2)
    assert "cannot be read" in told


def test_who_decides_is_asked_for_where_nobody_is_logged_in(
    ledger: Ledger, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.plan([intent(1)], [], Status.UNKNOWN)

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")  # as in a container

    monkeypatch.setattr("refold.cli.telling.getuser", nobody)
    told = _told(capsys, ["settle", key_of(1), "--as", "failed", "--reason", "x"], code=2)
    assert "--who" in told
    assert "failed" in _told(
        capsys, ["settle", key_of(1), "--as", "failed", "--reason", "x", "--who", "me"], code=0
    )


def _told(out: Out, command: list[str], code: int | None = None) -> str:
    out.readouterr()
    found = run(["ledger", *command])
    told = out.readouterr()
    assert code is None or found == code, told
    return told.out + told.err
