"""The servers of the local pair: found again, never confused, their data kept."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from refold.local import postgres
from refold.local.server import Server, check_disk, disk_errors, free_port
from refold.schemas.errors import Code, ServerError
from refold.testing.servers import OwnKafka, OwnPostgres


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """A process of somebody else, which nobody may signal."""
    process = subprocess.Popen(["sleep", "600"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def _write_pid_file(server: Server, pid: int, created: float) -> None:
    fields = {"pid": pid, "created": created, "port": free_port()}
    (server.home / "process.json").write_text(json.dumps(fields))


@pytest.mark.postgres
def test_a_second_start_finds_the_first(own_postgres: OwnPostgres) -> None:
    server = own_postgres()
    first = server.pid
    server.start()
    assert server.pid == first


@pytest.mark.postgres
def test_rows_survive_a_stop_and_a_kill(own_postgres: OwnPostgres) -> None:
    server = own_postgres()
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE kept (i int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    server.restart()
    with psycopg.connect(server.dsn) as connection:
        connection.execute("INSERT INTO kept VALUES (2)")
    server.kill()
    assert not server.is_running()
    server.start()
    with psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT sum(i) FROM kept").fetchone() == (3,)


@pytest.mark.postgres
def test_a_pid_that_another_program_got_is_not_ours_and_is_not_signalled(
    own_postgres: OwnPostgres, sleeper: psutil.Process
) -> None:
    server = own_postgres()
    server.stop()
    for created in (sleeper.create_time(), sleeper.create_time() - 5000):
        _write_pid_file(server, sleeper.pid, created)
        assert not server.is_running()
        server.stop()
        server.kill()
    assert sleeper.is_running()
    (server.home / "data" / "postmaster.pid").write_text(f"{sleeper.pid}\n")
    server.start()
    assert server.is_running()


@pytest.mark.postgres
def test_a_pid_file_that_a_crash_cut_off_means_stopped(own_postgres: OwnPostgres) -> None:
    server = own_postgres()
    server.stop()
    for text in ("", "{", '{"pid": "x"}', "[]"):
        (server.home / "process.json").write_text(text)
        assert not server.is_running()
        assert server.pid is None


@pytest.mark.postgres
def test_half_of_a_cluster_is_made_anew(own_postgres: OwnPostgres) -> None:
    server = own_postgres()
    server.stop()
    (server.home / "data" / "PG_VERSION").unlink()
    server.start()
    assert server.answers()


@pytest.mark.postgres
def test_a_taken_port_is_named_with_the_option_that_changes_it(
    own_postgres: OwnPostgres,
) -> None:
    first, second = own_postgres(), own_postgres()
    second.stop()
    _write_pid_file(second, 1, 0.0)
    fields = json.loads((second.home / "process.json").read_text())
    (second.home / "process.json").write_text(json.dumps({**fields, "port": first.port}))
    with pytest.raises(ServerError, match="--postgres-port") as caught:
        second.start()
    assert caught.value.code == Code.LOCAL_PORT_TAKEN
    assert caught.value.where == {"port": first.port}


@pytest.mark.postgres
def test_a_server_that_dies_while_it_starts_shows_the_end_of_its_log(
    own_postgres: OwnPostgres,
) -> None:
    with pytest.raises(ServerError, match="max_connections") as caught:
        own_postgres({"max_connections": "many"})
    assert caught.value.code == Code.LOCAL_START


@pytest.mark.postgres
def test_a_paused_server_runs_but_does_not_answer(own_postgres: OwnPostgres) -> None:
    server = own_postgres()
    server.pause()
    assert server.is_running()
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        psycopg.connect(server.dsn, connect_timeout=2)
    server.resume()
    assert server.answers()


@pytest.mark.kafka
def test_records_survive_the_kill_of_the_broker(own_kafka: OwnKafka) -> None:
    server = own_kafka()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(10)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("kept", b"one")
    assert producer.flush(10) == 0
    bootstrap, first = server.bootstrap, server.pid
    server.start()
    assert server.pid == first
    server.kill()
    server.start()
    assert server.bootstrap == bootstrap
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "kept"})
    consumer.assign([TopicPartition("kept", 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"one"


@pytest.mark.kafka
def test_a_broker_that_dies_while_it_starts_shows_the_end_of_its_log(own_kafka: OwnKafka) -> None:
    with pytest.raises(ServerError, match=r"log\.retention\.hours") as caught:
        own_kafka({"log.retention.hours": "long"})
    assert caught.value.code == Code.LOCAL_START


def test_a_nearly_full_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="MB are needed") as caught:
        check_disk(tmp_path, needed_mb=10**9)
    assert caught.value.code == Code.LOCAL_DISK


def test_a_write_that_the_disk_refuses_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ServerError, match="--dir") as caught, disk_errors(file):
        (file / "folder").mkdir()
    assert caught.value.code == Code.LOCAL_DISK


@pytest.mark.postgres
def test_binaries_in_a_closed_folder_are_lent_to_the_account_that_runs_them(
    own_postgres: OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "open_to_all", lambda path: path.name != "pginstall")
    server = own_postgres()
    assert server.answers()
    assert (server.home / "pginstall").exists() == (os.geteuid() == 0)
