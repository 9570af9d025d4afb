"""`refold local` as a person types it."""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from refold.local.pair import Pair
from refold.local.server import free_port


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="refold-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Pair.at(Path(name)).reset()


def _command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "refold.cli.main", "local", *arguments, "--dir", str(folder)]


def _refold(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        _command(folder, *arguments), capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def _exported(text: str) -> dict[str, str]:
    return dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines())


def _servers(folder: Path, code: int = 0) -> list[dict[str, Any]]:
    servers: list[dict[str, Any]] = json.loads(
        _refold(folder, "status", "--json", code=code).stdout
    )["servers"]
    return servers


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.postgres
def test_two_that_go_up_at_once_get_one_pair_whose_data_survives_down(folder: Path) -> None:
    ports = ("--kafka-port", str(free_port()), "--postgres-port", str(free_port()))
    both = [
        subprocess.Popen(_command(folder, "up", *ports), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    first, second = (_exported(process.communicate(timeout=180)[0]) for process in both)
    assert first == second
    assert first["REFOLD_KAFKA_BOOTSTRAP"] == f"127.0.0.1:{ports[1]}"
    assert first["REFOLD_LOCAL_DIR"] == str(folder)  # so that `down` finds this pair
    before = _servers(folder)
    assert [server["state"] for server in before] == ["answers", "answers"]
    with psycopg.connect(first["REFOLD_POSTGRES_DSN"]) as connection:
        connection.execute("CREATE TABLE kept (i int)")

    refused = _refold(folder, "up", "--kafka-port", "1", code=2)
    assert "runs already, on port" in refused.stderr

    _refold(folder, "down")
    assert [server["state"] for server in _servers(folder, 1)] == ["stopped", "stopped"]
    assert _exported(_refold(folder, "up").stdout) == first
    with psycopg.connect(first["REFOLD_POSTGRES_DSN"]) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)

    _refold(folder, "reset", "--yes")
    assert [server["pid"] for server in _servers(folder, 1)] == [None, None]
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_reset_deletes_nothing_without_a_yes(folder: Path) -> None:
    (folder / "postgres").mkdir()
    refused = _refold(folder, "reset", code=2)
    assert "--yes" in refused.stderr
    assert (folder / "postgres").exists()


def test_down_and_status_of_a_pair_that_never_ran_say_so(folder: Path) -> None:
    assert "nothing was running" in _refold(folder, "down").stderr
    assert "stopped" in _refold(folder, "status", code=1).stdout


def test_a_taken_port_starts_neither_server(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        refused = _refold(
            folder, "up", "--kafka-port", str(taken), "--postgres-port", str(free_port()), code=1
        )
    assert "LOCAL_PORT_TAKEN" in refused.stderr
    assert "--kafka-port" in refused.stderr
    assert [server["pid"] for server in _servers(folder, 1)] == [None, None]


def test_a_port_that_is_no_port_is_a_wrong_command_line(folder: Path) -> None:
    _refold(folder, "up", "--kafka-port", "70000", code=2)


def test_a_folder_that_cannot_be_one_says_what_to_do(folder: Path) -> None:
    (folder / "file").touch()
    refused = _refold(folder / "file" / "pair", "up", code=1)
    assert "LOCAL_DISK" in refused.stderr
