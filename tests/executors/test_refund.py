"""The refund of 4,800: the bank's answer came, the process died before it was written down.

Four minutes later another process starts. What each truth mode promises is what happens: one
refund where the other side can be asked or knows keys, a person where nobody can know.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.executors.refunds import DIES, GOODS, TRUTH, WORLD, Returned
from tests.kafka.worker.stage import Stage

from refold.executors.migrate import migrate_ledger
from refold.testing.world import Keys, Manners
from refold.testing.world_server import RemoteWorld, WorldServer
from refold.topics.specs import create, workflow_specs

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]

MINUTES_4 = 240
TIMES = ("planned", "first_sent", "dispatched", "lease_until", "not_before", "recorded")
"""Columns of the ledger that tell when something was."""


class Refunds:
    """One refund of 4,800 with its world and its executor processes."""

    def __init__(self, stage: Stage, world: WorldServer, truth: str) -> None:
        self.stage = stage
        self.world = world
        self.truth = truth

    def killed(self) -> None:
        """Refund, and die between the answer and the record; then four minutes pass."""
        self.stage.put(("o-4800", "e1", Returned(4800)), workflow="goods")
        child = self.executor(dies="1")
        self.stage.until(lambda: child.poll() is not None, "the executor to die")
        (row,) = self.rows()
        assert row["status"] == "in_flight"
        RemoteWorld(self.world.address).pass_s(MINUTES_4)
        self.move(", ".join(f"{each} = {each} - interval '4 minutes'" for each in TIMES))

    def move(self, times: str) -> None:
        """Set times of the ledger's row."""
        self.stage.sql(f"UPDATE refold_ledger.workflow_action SET {times}")

    def reason(self) -> str:
        """Why the row stands as it does."""
        ((found,),) = self.stage.sql("SELECT reason FROM refold_ledger.workflow_action")
        return str(found)

    def executor(self, dies: str = "") -> subprocess.Popen[bytes]:
        """Start an executor process."""
        with (self.stage.log / f"executor-{dies or 'restarted'}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "refold.cli.main", "executor",
                 "tests.executors.refunds:payments"],
                env=self.stage.environment() | {
                    "PYTHONPATH": ":".join([str(Path(__file__).parents[2]), *sys.path]),
                    "REFOLD_EXECUTOR_SESSION_TIMEOUT_MS": "800",
                    "REFOLD_EXECUTOR_STUCK_AFTER_S": "60",
                    WORLD: self.world.address,
                    TRUTH: self.truth,
                    DIES: dies,
                },
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self.stage.adopt(child)
        return child

    def until_refunded(self) -> None:
        """Wait until the workflow knows of the refund."""
        self.stage.until(lambda: self.stage.states("goods") == {"o-4800": "refunded"}, "a refund")

    def until_stuck(self) -> None:
        """Wait until the workflow knows that nobody knows, and a person is called."""
        logs = self.stage.log / "executor-restarted.log"
        self.stage.until(lambda: self.doubts() == 1, "the doubt to be on the log")
        self.stage.until(lambda: "actions are stuck" in logs.read_text(), "a person to be called")

    def doubts(self) -> int:
        """How often the workflow heard that nobody knows."""
        found = self.stage.sql(
            "SELECT (context->>'doubts')::int FROM refold.workflow_instance"
            " WHERE workflow = 'goods'"
        )
        return found[0][0] if found else 0

    def rows(self) -> list[dict[str, Any]]:
        """Status and attempt of the ledger's rows."""
        found = self.stage.sql("SELECT status, attempt, already FROM refold_ledger.workflow_action")
        return [dict(zip(("status", "attempt", "already"), row, strict=True)) for row in found]

    def told(self) -> list[tuple[str, str]]:
        """What the bank was told and asked, with what it came to."""
        return [(each.kind, each.outcome) for each in self.world.journal.requests()]

    def refunds(self) -> list[int]:
        """Amounts that the bank has given back."""
        return [each.request["amount"] for each in self.world.journal.effects()]


@contextmanager
def refunding(stage: Stage, folder: Path, truth: str, keys: Keys = "ignore") -> Iterator[Refunds]:
    """A world and a refund, after the death of its executor; a worker folds meanwhile."""
    migrate_ledger(stage.dsn)
    stage.sql("CREATE TABLE refunds (key text, amount bigint)")
    create(stage.admin, workflow_specs(stage.namespace, "goods", ["payments"], stage.partitions))
    systems = {"bank": Manners(keys=keys, visible_after_s=0.5)}
    with (
        WorldServer(folder / "world.db", systems=systems) as world,
        stage.working(GOODS, snapshot_max_age_s=0.05),
    ):
        made = Refunds(stage, world, truth)
        made.killed()
        yield made


def test_a_bank_that_knows_keys_is_called_again_and_refunds_once(
    one: Stage, tmp_path: Path
) -> None:
    with refunding(one, tmp_path, "by_key", "repeat") as run:
        run.executor()
        run.until_refunded()
        assert run.refunds() == [4800]
        assert run.told() == [("call", "none"), ("call", "repeated")]
        assert run.rows() == [{"status": "succeeded", "attempt": 1, "already": False}]


def test_a_bank_that_may_have_forgotten_the_key_is_not_called_again_and_a_person_is(
    one: Stage, tmp_path: Path
) -> None:
    with refunding(one, tmp_path, "by_key, forgotten", "repeat") as run:
        run.executor()
        run.until_stuck()
        assert run.refunds() == [4800]
        assert run.told() == [("call", "none")]
        assert run.rows()[0]["status"] == "unknown"


def test_a_bank_that_can_be_asked_is_asked_and_not_called_again(one: Stage, tmp_path: Path) -> None:
    with refunding(one, tmp_path, "queryable") as run:
        run.executor()
        run.until_refunded()
        assert run.refunds() == [4800]
        assert run.told() == [("call", "none"), ("ask", "done")]
        assert run.doubts() == 1


def test_a_bank_that_says_too_early_that_it_has_not_refunded_is_not_believed(
    one: Stage, tmp_path: Path
) -> None:
    """It shows what it did later than the executor comes back; until then it says "not done"."""
    with refunding(one, tmp_path, "queryable") as run:
        run.move("dispatched = now() + interval '5 minutes'")  # a moment ago, however slow we are
        RemoteWorld(run.world.address).system("bank").next_asked("lie")
        run.executor()
        one.until(lambda: "too early" in run.reason(), "an answer that does not count")
        assert run.told() == [("call", "none"), ("ask", "not_done")]
        assert run.rows()[0]["status"] == "unknown"
        run.move("dispatched = now() - interval '1 minute', not_before = now()")
        run.until_refunded()
        assert run.refunds() == [4800]
        assert run.told() == [("call", "none"), ("ask", "not_done"), ("ask", "done")]


def test_a_refund_in_the_ledgers_own_database_is_done_with_its_record_or_not_at_all(
    one: Stage, tmp_path: Path
) -> None:
    with refunding(one, tmp_path, "local") as run:
        assert one.sql("SELECT amount FROM refunds") == []
        run.executor()
        run.until_refunded()
        assert one.sql("SELECT amount FROM refunds") == [(4800,)]
        assert run.doubts() == 0


def test_a_bank_that_cannot_be_asked_leaves_it_to_a_person(one: Stage, tmp_path: Path) -> None:
    with refunding(one, tmp_path, "neither") as run:
        run.executor()
        run.until_stuck()
        assert run.refunds() == [4800]
        assert run.told() == [("call", "none")]
        assert run.rows()[0]["status"] == "unknown"
        assert one.states("goods") == {"o-4800": "refunding"}


def test_only_who_declares_that_a_second_refund_is_accepted_gets_one(
    one: Stage, tmp_path: Path
) -> None:
    with refunding(one, tmp_path, "neither, repeat") as run:
        run.executor()
        run.until_refunded()
        assert run.refunds() == [4800, 4800]
        assert len({each.key for each in run.world.journal.effects()}) == 1


def test_only_who_declares_that_an_unknown_refund_counts_as_done_is_not_asked(
    one: Stage, tmp_path: Path
) -> None:
    with refunding(one, tmp_path, "neither, assume done") as run:
        run.executor()
        one.until(lambda: run.rows()[0]["status"] == "succeeded", "the assumption")
        assert run.refunds() == [4800]
        assert run.told() == [("call", "none")]
