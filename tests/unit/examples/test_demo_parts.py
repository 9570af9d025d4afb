"""The demo's parts that need no server: the senders, the journal, the proof, the screen."""

import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from refold.cli.demo_screen import screen
from refold.cli.main import EXIT_USAGE, run
from refold.examples.demo.executor import Journal
from refold.examples.demo.play import Played, Takeover
from refold.examples.demo.proof import Incident, Proof
from refold.examples.demo.stage import Process, until
from refold.examples.demo.upstream import stream
from refold.examples.incident.log import rows
from refold.schemas.errors import Code, ServerError
from refold.snapshots.queries import EventView
from refold.testing.boundary import Plan
from refold.topics.publisher import Draft

TAKEOVER = Takeover(
    dead="worker-1",
    survivor="worker-2",
    partitions=(0, 1),
    folded=1_000,
    killed_s=10.0,
    detected_s=13.0,
    recovered_s=14.5,
)
PLAYED = Played(sent=6_100, ended=8_844, takeover=TAKEOVER, seconds=20.0)


def happened(offset: int, before: str, after: str, kind: str, *commands: str) -> EventView:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    return EventView(
        workflow="incident",
        tenant="desk-01",
        instance_id="INC1",
        topic_id="t",
        partition=1,
        log_offset=offset,
        source="/servicedesk",
        id=f"INC1-{offset}",
        type=kind,
        log_time=when,
        folded_at=when,
        verdict="applied",
        transition="",
        state_before=before,
        state_after=after,
        commands=[f"r1:desk-01:incident:INC1:{after}:{each}:x:forward" for each in commands],
        code="",
        text="",
        doubled=False,
        resolution=None,
        resolved_by=None,
        resolution_code=None,
        resolution_text=None,
    )


PROOF = Proof(
    read=8_844,
    sent=6_100,
    verdicts={"applied": 8_700, "duplicate": 102, "late": 35, "already": 7},
    instances=890,
    commands={"Page": 1_000, "TellCaller": 1_744},
    effects=2_744,
    doubles=0,
    lost=0,
    invented=0,
    live_hash="0" * 64,
    fold_hash="0" * 64,
    verified=True,
    states={"surveyed": 890},
    shown=Incident(
        tenant="desk-01",
        instance="INC1",
        partition=1,
        state="surveyed",
        run_status="completed",
        context={},
        history=[
            happened(0, "", "new", "Logged"),
            happened(1, "new", "new", "Logged"),
            *(
                each
                for turn in range(6)
                for each in (
                    happened(2 + turn, "resolved", "active", "Started", "Page"),
                    happened(20 + turn, "active", "resolved", "Resolved", "TellCaller"),
                )
            ),
            happened(40, "resolved", "closed", "Closed", "SendSurvey"),
            happened(41, "closed", "surveyed", "Surveyed"),
        ],
    ),
)


def printed(proof: Proof, shell: Path | None = None) -> str:
    console = Console(width=100, file=StringIO())
    with console.capture() as shown:
        console.print(screen(20, PLAYED, proof, shell))
    return shown.get()


def test_the_stream_is_the_log_once_a_desk_with_some_events_twice() -> None:
    sent = list(stream(2, 1))
    identities = [(each.tenant, each.id) for each in sent]

    assert len(set(identities)) == 2 * len(rows())
    repeated = len(identities) - len(set(identities))
    assert 0.01 < repeated / len(identities) < 0.03
    known: dict[tuple[str, str], Draft] = {}
    for each in sent:
        assert known.setdefault((each.tenant, each.id), each) == each


def test_the_same_seed_gives_the_same_stream_and_another_another() -> None:
    assert list(stream(1, 7)) == list(stream(1, 7))
    assert list(stream(1, 7)) != list(stream(1, 8))


def test_updates_of_one_incident_leave_in_order() -> None:
    first: dict[tuple[str, str], list[int]] = {}
    for each in stream(2, 3):
        number = int(each.id.rpartition("-")[2])
        numbers = first.setdefault((each.tenant, each.instance), [])
        if number not in numbers:
            numbers.append(number)
    assert all(numbers == sorted(numbers) for numbers in first.values())


def test_the_journal_counts_how_often_an_effect_happened(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "outside.db")
    journal.record([("a", "Page"), ("b", "Page")])
    journal.record([("a", "Page")])
    journal.close()

    again = Journal(tmp_path / "outside.db")
    assert again.effects() == {"a": (2, "Page"), "b": (1, "Page")}
    assert again.count() == 3
    again.close()


def test_a_good_run_has_no_faults() -> None:
    assert PROOF.faults == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(PROOF, doubles=1), "more than once"),
        (replace(PROOF, lost=2), "2 effects never happened"),
        (replace(PROOF, invented=1), "nobody asked for"),
        (replace(PROOF, read=8_845, sent=6_101), "do not add up"),
        (replace(PROOF, verified=False), "not what the log says"),
        (replace(PROOF, sent=6_000), "on the log"),
        (replace(PROOF, states={"surveyed": 889, "closed": 1}), "its end"),
    ],
)
def test_whatever_is_wrong_is_said_on_the_screen(wrong: Proof, words: str) -> None:
    assert [fault for fault in wrong.faults if words in fault]
    assert words in printed(wrong)


@pytest.mark.parametrize("shell", [None, Path("/tmp/refold-demo-abcdefgh/env")])
def test_the_screen_fits_100_columns_and_40_lines(shell: Path | None) -> None:
    lines = printed(PROOF, shell).rstrip("\n").split("\n")

    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100


def test_the_screen_says_what_was_proved() -> None:
    text = printed(PROOF)

    for words in ("= 8,844 records read", "doubles", "equal", "noticed after  3.0 s", "surveyed"):
        assert words in text


def test_the_picture_of_the_incident_is_written() -> None:
    text = printed(PROOF)
    path = next(word for word in text.split() if word.endswith("INC1.svg"))
    assert Path(path).read_text().startswith("<svg")


@pytest.fixture
def child(tmp_path: Path) -> Process:
    made = Process("worker-1", ["compileall", "-h"], {}, tmp_path)
    made.process.wait()
    return made


def test_what_a_worker_owns_is_read_from_its_log(child: Process) -> None:
    child.log.write_text(
        '{"event":"assigned","partitions":["n.e[0]","n.e[1]"],"timestamp":1.5}\n'
        "%3|a line of the client\n"
        '{"event":"revoked","partitions":["n.e[0]"],"timestamp":2.5}\n'
        '{"event":"assigned","partitions":["n.e[3]"],"timestamp":3.5}\n'
        '{"event":"assi'
    )
    assert child.assigned() == {1: 1.5, 3: 3.5}


def test_a_plan_with_a_file_is_due_once_the_file_is_there(tmp_path: Path) -> None:
    plan = Plan("producer.commit_transaction", 2, "before", "kill", str(tmp_path / "now"))

    assert not plan.is_due(5)
    (tmp_path / "now").touch()
    assert plan.is_due(2)
    assert not plan.is_due(1)


def test_a_process_that_ends_early_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = Process("worker-1", ["refold.examples.demo.no_such_module"], {}, tmp_path)

    with pytest.raises(ServerError, match=r"worker-1 ended with 1: .*no_such_module") as error:
        for _ in until([child], 20.0, "it"):
            pass
    assert error.value.code == Code.DEMO_FAILED


def test_waiting_in_vain_ends_with_what_was_waited_for() -> None:
    with pytest.raises(ServerError, match="in vain for the rain"):
        for _ in until([], 0.0, "the rain"):
            pass


def test_a_demo_without_the_local_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REFOLD_KAFKA_BOOTSTRAP", "REFOLD_POSTGRES_DSN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "filelock", None)
    for name in [each for each in sys.modules if each.startswith("refold.local")]:
        monkeypatch.delitem(sys.modules, name)

    assert run(["demo"]) == EXIT_USAGE
    assert "pip install 'refold[local]'" in capsys.readouterr().err
