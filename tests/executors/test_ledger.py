"""The ledger on a real PostgreSQL: what may have happened outside is never overwritten."""

from collections.abc import Iterator
from typing import Any

import pytest

from refold.executors.ledger import Ledger, Place
from refold.executors.migrate import migrate_ledger
from refold.executors.model import Ended, Intent, Status

pytestmark = pytest.mark.postgres


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    migrate_ledger(database)
    found = Ledger(database, "x1")
    yield found
    found.close()


def intent(number: int = 1, **changes: Any) -> Intent:
    values: dict[str, Any] = {
        "key": f"k{number}",
        "tenant": "acme",
        "workflow": "order",
        "instance": "o-1",
        "state": "charging",
        "action": "Charge",
        "direction": "forward",
        "target": "payments",
        "target_system": "bank",
        "truth": "by_key",
        "type": "Charge",
        "request": b"100",
        "attempt": 1,
        "reply_to": "shop.order.events",
        "trace": "",
        "partition": 0,
        "offset": number,
    }
    return Intent(**values | changes)


def place(position: int) -> Place:
    return Place(("shop.payments.commands", 0, "t", position))


def ended(key: str, epoch: int, status: Status = Status.SUCCEEDED, **more: Any) -> Ended:
    told = {} if status is Status.PLANNED else {"event_id": f"r-{key}-{status}"}
    return Ended(key=key, epoch=epoch, status=status, type="Charged", value=b"r", **told | more)


def only(ledger: Ledger) -> dict[str, Any]:
    (row,) = ledger.actions()
    return row


def test_a_command_is_planned_once_however_often_it_comes(ledger: Ledger) -> None:
    assert ledger.plan([intent()], [place(2)]) == []
    assert ledger.plan([intent()], [place(2)]) == []
    assert only(ledger)["status"] == "planned"
    assert ledger.position("shop.payments.commands", 0) == 2


def test_the_same_key_with_another_request_is_refused_and_shown(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    assert ledger.plan([intent(request=b"999")], []) == ["k1"]
    (claimed,) = ledger.claim("payments", 9, 60)
    assert claimed.request == b"100"


def test_an_action_is_claimed_by_one_worker(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    assert [each.key for each in ledger.claim("payments", 9, 60)] == ["k1"]
    assert ledger.claim("payments", 9, 60) == []


def test_an_instances_next_command_waits_until_its_earlier_one_is_decided(ledger: Ledger) -> None:
    ledger.plan([intent(1), intent(2), intent(3, instance="o-2")], [])
    first = ledger.claim("payments", 9, 60)
    assert sorted(each.key for each in first) == ["k1", "k3"]
    ledger.settle([ended("k1", 1, Status.UNKNOWN)])
    assert [each.key for each in ledger.claim("payments", 9, 60)] == ["k2"]


def test_a_lease_that_runs_out_makes_the_action_unknown_and_never_planned(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    ledger.claim("payments", 9, -1)
    assert ledger.run_out("payments") == ["k1"]
    assert ledger.claim("payments", 9, 60) == []
    assert only(ledger)["status"] == "unknown"


def test_a_late_answer_settles_what_is_still_unknown(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    ledger.claim("payments", 9, -1)
    ledger.run_out("payments")
    assert ledger.settle([ended("k1", 1)]) == {"k1"}
    assert only(ledger)["status"] == "succeeded"


def test_an_older_claims_answer_does_not_overwrite_a_newer_ones(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    ledger.claim("payments", 9, 60)
    ledger.settle([ended("k1", 1, Status.PLANNED)])
    ledger.claim("payments", 9, 60)
    assert ledger.settle([ended("k1", 1, Status.FAILED)]) == set()
    assert only(ledger)["status"] == "in_flight"


def test_succeeded_never_changes(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    ledger.claim("payments", 9, 60)
    ledger.settle([ended("k1", 1)])
    ledger.plan([intent(attempt=2)], [])
    assert ledger.settle([ended("k1", 1, Status.FAILED)]) == set()
    assert only(ledger)["status"] == "succeeded"


def test_failed_becomes_planned_by_a_higher_attempt_only(ledger: Ledger) -> None:
    ledger.plan([intent()], [])
    ledger.claim("payments", 9, 60)
    ledger.settle([ended("k1", 1, Status.FAILED)])
    ledger.plan([intent()], [])
    assert only(ledger)["status"] == "failed"
    ledger.plan([intent(attempt=2)], [])
    assert only(ledger)["status"] == "planned"


def test_a_result_waits_until_kafka_has_it_and_is_given_again_for_a_repeated_command(
    ledger: Ledger,
) -> None:
    ledger.plan([intent()], [])
    ledger.claim("payments", 9, 60)
    ledger.settle([ended("k1", 1)])
    (result,) = ledger.results()
    assert (result.event_id, result.value, result.topic) == (
        "r-k1-succeeded", b"r", "shop.order.events",
    )  # fmt: skip
    ledger.published([result.id])
    assert ledger.results() == []
    ledger.plan([intent()], [])
    assert [each.event_id for each in ledger.results()] == ["r-k1-succeeded"]


def test_what_a_restored_ledger_has_forgotten_is_born_unknown(ledger: Ledger) -> None:
    ledger.plan([intent()], [], Status.UNKNOWN)
    assert only(ledger)["status"] == "unknown"
    assert ledger.claim("payments", 9, 60) == []
