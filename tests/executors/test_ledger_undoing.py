"""A compensation settles its forward action first, in the ledger (P33)."""

from threading import Event, Thread

import pytest
from tests.executors.rows import Rows, claim, ended, intent, key_of, numbers, results, undoing

from refold.executors.ledger import Ledger
from refold.executors.model import Heard, Status, Wanted
from refold.executors.words import declared_done, declared_failed

pytestmark = pytest.mark.postgres
NOTHING = (key_of(1, "compensate"), 1, "succeeded")


def test_what_never_came_is_cancelled_and_there_is_nothing_to_undo(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([undoing()], [])
    assert claim(ledger) == []
    assert rows.statuses() == {1: "cancelled", -1: "succeeded"}
    (result,) = ledger.results("payments", -1)
    assert (result.type, result.outcome, result.topic) == (
        "refold.succeeded", "succeeded", "shop.order.events",
    )  # fmt: skip
    assert b"nothing to undo" in result.value


def test_a_command_that_comes_after_its_compensation_is_never_called(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([undoing()], [])
    claim(ledger)
    planned = ledger.plan([intent(lease_s=60.0)], [])
    assert (planned.claimed, planned.clashes) == ({}, [])
    ledger.plan([intent(attempt=2)], [])
    assert claim(ledger) == []
    assert rows.status() == "cancelled"


def test_what_waits_is_cancelled_and_there_is_nothing_to_undo(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent(), undoing()], [])
    assert claim(ledger) == []
    assert rows.statuses() == {1: "cancelled", -1: "succeeded"}
    assert results(ledger) == [NOTHING]


@pytest.mark.parametrize("status", [Status.IN_FLIGHT, Status.UNKNOWN])
def test_what_is_not_settled_is_waited_for(ledger: Ledger, rows: Rows, status: Status) -> None:
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    if status is Status.UNKNOWN:
        ledger.settle([ended(forward, Status.UNKNOWN)])
    ledger.plan([undoing()], [])
    assert claim(ledger) == []
    assert rows.statuses() == {1: status, -1: "planned"}
    ledger.settle([ended(forward)])
    assert numbers(claim(ledger)) == [-1]


def test_what_failed_needs_no_undoing_and_is_not_tried_again(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    ledger.settle([ended(forward, Status.FAILED)])
    ledger.plan([undoing()], [])
    ledger.plan([intent(attempt=2)], [])
    assert claim(ledger) == []
    assert rows.statuses() == {1: "failed", -1: "succeeded"}
    assert NOTHING in results(ledger)


@pytest.mark.parametrize("truth", [Status.SUCCEEDED, Status.FAILED])
def test_what_is_said_to_have_failed_and_to_be_done_is_undone_as_a_person_decides(
    ledger: Ledger, rows: Rows, truth: Status
) -> None:
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    ledger.settle([ended(forward, Status.FAILED)])
    ledger.settle([ended(forward)])
    ledger.plan([undoing()], [])
    assert claim(ledger) == []
    assert rows.statuses() == {1: "failed", -1: "planned"}
    done = truth is Status.SUCCEEDED
    word = declared_done("seen") if done else declared_failed("not there", retry=False)
    assert ledger.decide(forward.key, word, "ann") is (Heard.SETTLED if done else Heard.KNOWN)
    assert numbers(claim(ledger)) == ([-1] if done else [])
    assert rows.statuses() == {1: truth, -1: "in_flight" if done else "succeeded"}
    assert not rows.one()["contradicted"]
    assert ((key_of(1), 1, "succeeded") in results(ledger)) is done


def test_what_fails_while_its_compensation_waits_is_not_tried_again(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    ledger.plan([intent(attempt=2)], [])
    ledger.plan([undoing()], [])
    ledger.settle([ended(forward, Status.FAILED)])
    assert claim(ledger) == []
    assert rows.statuses() == {1: "failed", -1: "succeeded"}


def test_what_was_done_is_undone_once(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent()], [])
    (forward,) = claim(ledger)
    ledger.settle([ended(forward)])
    ledger.plan([undoing(), undoing()], [])
    (back,) = claim(ledger)
    assert (back.type, back.direction) == ("Refund", "compensate")
    ledger.settle([ended(back)])
    ledger.plan([undoing()], [])
    assert claim(ledger) == []
    assert rows.statuses() == {1: "succeeded", -1: "succeeded"}


def test_a_compensation_is_never_claimed_with_its_planning(ledger: Ledger) -> None:
    assert ledger.plan([undoing(lease_s=60.0)], []).claimed == {}


def test_a_compensation_that_comes_while_claims_run_settles_its_forward_action_first(
    ledger_dsn: str, ledger: Ledger, rows: Rows
) -> None:
    stop = Event()
    other = Ledger(ledger_dsn, "x2")

    def keep_claiming() -> None:
        while not stop.is_set():
            for each in other.claim(
                "payments", [Wanted("Charge", 50, 60), Wanted("Refund", 50, 60)]
            ):
                other.settle([ended(each)])

    claiming = Thread(target=keep_claiming)
    claiming.start()
    for number in range(60):
        instance = f"o-{number}"
        ledger.plan([intent(number, instance=instance)], [])
        ledger.plan([undoing(number, instance=instance)], [])
    stop.set()
    claiming.join(30)
    keep_claiming_once = claim(ledger, most=100)
    ledger.settle([ended(each) for each in keep_claiming_once])
    claim(ledger)
    other.close()
    for number in range(60):
        forward, back = rows.one(number), rows.one(number, "compensate")
        assert back["status"] == "succeeded"
        called = bool(forward["attempts"])
        assert forward["status"] == ("succeeded" if called else "cancelled")
        assert (back["reason"] == "nothing to undo") is not called
