"""Keys are remembered for a stated horizon; what is not over is never forgotten."""

import pytest
from tests.executors.rows import Rows, claim, ended, intent, undoing

from refold.executors.ledger import Ledger
from refold.executors.model import Status
from refold.executors.outcome import Done

pytestmark = pytest.mark.postgres
YEAR_S = 365 * 86_400.0


def settle_all(ledger: Ledger, *statuses: Status) -> None:
    """One settled or unsettled row of its own instance for each status, published."""
    ledger.plan([intent(each, instance=f"o-{each}") for each in range(1, len(statuses) + 1)], [])
    found = claim(ledger)
    ledger.settle([ended(each, status) for each, status in zip(found, statuses, strict=True)])
    ledger.published([each.event_id for each in ledger.results("payments", -1)])


def grow_old(rows: Rows, days: int = 400) -> None:
    rows.sql(
        "UPDATE refold_ledger.workflow_action SET planned = planned - %s * interval '1 day', "
        "recorded = recorded - %s * interval '1 day'", days, days,
    )  # fmt: skip


def test_what_was_settled_and_published_is_forgotten_after_the_horizon(
    ledger: Ledger, rows: Rows
) -> None:
    settle_all(ledger, Status.SUCCEEDED, Status.FAILED)
    assert ledger.prune(YEAR_S) == 0
    grow_old(rows)
    assert ledger.prune(YEAR_S) == 2
    assert rows.statuses() == {}


def test_what_is_not_settled_is_never_forgotten(ledger: Ledger, rows: Rows) -> None:
    settle_all(ledger, Status.UNKNOWN, Status.PLANNED, Status.IN_FLIGHT)
    grow_old(rows)
    assert ledger.prune(YEAR_S) == 0


def test_what_is_not_published_is_not_forgotten(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent()], [])
    ledger.settle([ended(each) for each in claim(ledger)])
    grow_old(rows)
    assert ledger.prune(YEAR_S) == 0
    ledger.published([each.event_id for each in ledger.results("payments", -1)])
    assert ledger.prune(YEAR_S) == 1


def test_a_contradiction_is_kept_until_a_person_has_seen_to_it(ledger: Ledger, rows: Rows) -> None:
    settle_all(ledger, Status.FAILED)
    ledger.answer(Done(None), key=rows.questions.find()[0]["key"])
    grow_old(rows)
    assert ledger.prune(YEAR_S) == 0


def test_what_is_being_undone_is_kept_until_that_is_over(ledger: Ledger, rows: Rows) -> None:
    settle_all(ledger, Status.SUCCEEDED)
    grow_old(rows)
    ledger.plan([undoing(instance="o-1")], [])
    assert ledger.prune(YEAR_S) == 0
    ledger.settle([ended(each) for each in claim(ledger)])
    ledger.published([each.event_id for each in ledger.results("payments", -1)])
    assert ledger.prune(YEAR_S) == 0
    grow_old(rows)
    assert ledger.prune(YEAR_S) >= 1


def test_old_scanners_leave_and_the_newest_of_a_target_stays(ledger: Ledger, rows: Rows) -> None:
    ledger.scanned("payments")
    ledger.scanned("mail")
    rows.sql("UPDATE refold_ledger.workflow_scanner SET scanned = now() - interval '3 days'")
    rows.sql("INSERT INTO refold_ledger.workflow_scanner VALUES ('x2', 'payments', now())")
    ledger.prune(YEAR_S)
    left = {(each["target"], each["worker"]) for each in rows.questions.scanners()}
    assert left == {("payments", "x2"), ("mail", "x1")}
