"""The demo on real servers: it proves a good run, and it sees what is wrong in a bad one."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from refold.cli.main import EXIT_USAGE, run
from refold.examples.demo.play import Play, Played, Told
from refold.examples.demo.proof import Proof, prove
from refold.examples.demo.stage import Stage
from refold.testing.servers import Kafka, Postgres
from refold.topics.settings import load_settings

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.crash, pytest.mark.slow]


class Silent:
    """An audience that only remembers the phases."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def progress(self, told: Told) -> None:
        assert told.folded <= told.ended


@pytest.fixture(scope="module")
def stage(kafka: Kafka, postgres: Postgres) -> Iterator[Stage]:
    settings = load_settings(
        kafka={"bootstrap": kafka.bootstrap}, postgres={"dsn": postgres.dsn_of("postgres")}
    )
    made = Stage(settings)
    try:
        made.make()
        yield made
    finally:
        made.close(keep=False)


@pytest.fixture(scope="module")
def played(stage: Stage) -> Played:
    """One desk's log, played to the end with a worker killed in the middle."""
    return Play(stage, 1, 1, Silent()).run()


@pytest.fixture(scope="module")
def proof(stage: Stage, played: Played) -> Proof:
    return prove(stage, played)


def test_a_killed_worker_loses_nothing_and_does_nothing_twice(proof: Proof) -> None:
    assert proof.faults == []
    assert proof.instances == 890
    assert sum(proof.commands.values()) == proof.effects == 2_744
    assert proof.read - proof.verdicts["duplicate"] == 5_998 + 2_744
    assert proof.live_hash == proof.fold_hash


def test_the_survivor_took_over_what_the_dead_worker_owned(stage: Stage, played: Played) -> None:
    takeover = played.takeover
    dead, survivor = (
        next(each for each in stage.processes if each.name == name)
        for name in (takeover.dead, takeover.survivor)
    )
    assert dead.process.returncode == -9
    assert survivor.process.returncode == 0
    assert "boundary reached" in dead.log.read_text()
    assert "fencing the predecessor" in survivor.log.read_text()
    assert takeover.killed_s < takeover.detected_s < takeover.recovered_s


def test_an_effect_too_many_or_too_few_is_seen(stage: Stage, played: Played) -> None:
    journal = sqlite3.connect(stage.journal)
    (key,) = journal.execute("SELECT min(key) FROM effects").fetchone()
    (gone,) = journal.execute("SELECT max(key) FROM effects").fetchone()
    row = journal.execute("SELECT * FROM effects WHERE key = ?", (gone,)).fetchone()
    try:
        with journal:
            journal.execute("UPDATE effects SET times = 2 WHERE key = ?", (key,))
            journal.execute("DELETE FROM effects WHERE key = ?", (gone,))
        wrong = prove(stage, played)
    finally:
        with journal:
            journal.execute("UPDATE effects SET times = 1 WHERE key = ?", (key,))
            journal.execute("INSERT INTO effects VALUES (?, ?, ?)", row)
        journal.close()
    assert (wrong.doubles, wrong.lost) == (1, 1)
    assert len(wrong.faults) == 2


def test_state_that_is_not_what_the_log_says_is_seen(stage: Stage, played: Played) -> None:
    counts = "UPDATE refold.workflow_partition SET counts = jsonb_set(counts, '{applied}', %s)"
    with psycopg.connect(stage.dsn) as connection:
        before = connection.execute(
            "SELECT counts FROM refold.workflow_partition WHERE partition = 0"
        ).fetchone()
        connection.execute(counts + " WHERE partition = 0", ("1",))
    assert before is not None
    try:
        wrong = prove(stage, played)
    finally:
        with psycopg.connect(stage.dsn) as connection:
            applied = str(before[0]["applied"])
            connection.execute(counts + " WHERE partition = 0", (applied,))
    assert not wrong.verified
    assert replace(wrong, verified=True).faults == [
        "the verdicts do not add up to the records read"
    ]


def test_the_command_cleans_up_behind_itself_and_says_how_it_went(
    kafka: Kafka,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    dsn = postgres.dsn_of("postgres")
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", kafka.bootstrap)
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", dsn)
    monkeypatch.chdir(tmp_path)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def left() -> tuple[set[str], set[str]]:
        topics = {name for name in admin.list_topics().topics if name.startswith("demo-")}
        with psycopg.connect(dsn) as connection:
            rows = connection.execute(
                "SELECT datname FROM pg_database WHERE datname LIKE 'refold_demo_%'"
            )
            return topics, {name for (name,) in rows}

    before = left()
    code = run(["demo", "--desks", "1", "--seed", "2"])
    told = capsys.readouterr()

    assert code == 0, told.err
    for words in ("890 incidents", "doubles", "SIGKILL", "equal", "every command done once"):
        assert words in told.out
    assert len(told.out.strip().split("\n")) <= 40
    assert "folding the whole log again" in told.err
    assert left() == before


def test_one_server_named_without_the_other_is_an_answer_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.delenv("REFOLD_POSTGRES_DSN", raising=False)

    assert run(["demo"]) == EXIT_USAGE
    assert "but not the other server" in capsys.readouterr().err
