"""The ledger on a real PostgreSQL: planning, claiming, settling; nothing known is overwritten."""

from threading import Barrier, Thread

import psycopg
import pytest
from psycopg import sql
from tests.executors.rows import (
    TOPIC,
    Rows,
    claim,
    ended,
    intent,
    key_of,
    numbers,
    place,
    results,
)

from refold.executors.ledger import Ledger
from refold.executors.migrate import migrate_ledger
from refold.executors.model import Claimed, Rejected, Status, Wanted

pytestmark = pytest.mark.postgres


def begun(ledger: Ledger, number: int = 1, **changes: object) -> Claimed:
    """An intent that is in flight."""
    ledger.plan([intent(number, **changes)], [])
    (found,) = claim(ledger)
    return found


def lost(ledger: Ledger, number: int = 1, **changes: object) -> Claimed:
    """An intent whose worker did not come back: unknown."""
    ledger.plan([intent(number, **changes)], [])
    (found,) = claim(ledger, lease_s=-1)
    ledger.run_out("payments")
    return found


# planning


def test_a_command_is_planned_once_however_often_it_comes(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent()], [place(2)])
    ledger.plan([intent(), intent()], [place(2)])
    assert rows.statuses() == {1: "planned"}
    assert ledger.position(TOPIC, 0) == ("t", 2)


def test_a_position_never_goes_back_but_for_a_topic_that_was_made_anew(ledger: Ledger) -> None:
    ledger.plan([], [place(5)])
    ledger.plan([], [place(3)])
    assert ledger.position(TOPIC, 0) == ("t", 5)
    ledger.plan([], [place(0).__class__(TOPIC, 0, "new", 1)])
    assert ledger.position(TOPIC, 0) == ("new", 1)
    assert ledger.position(TOPIC, 1) is None


def test_intents_and_position_are_one_transaction(ledger: Ledger, rows: Rows) -> None:
    broken = Rejected(
        topic=TOPIC, partition=2**40, offset=1, record_key=None, headers=[], value=None,
        code="BAD_ENVELOPE", text="no such partition",
    )  # fmt: skip
    with pytest.raises(Exception, match="PostgreSQL"):
        ledger.plan([intent()], [place(2)], rejected=[broken])
    assert rows.statuses() == {}
    assert ledger.position(TOPIC, 0) is None


def test_the_row_says_who_what_why_and_where(ledger: Ledger, rows: Rows) -> None:
    begun(ledger, trace="00-ab-cd-01")
    row = rows.one()
    assert row["cause"] == "/shop e1"
    shown = ("tenant", "workflow", "instance", "state", "action", "direction", "target", "system")
    assert [row[name] for name in shown] == [
        "acme", "order", "o-1", "charging", "Charge", "forward", "payments", "bank",
    ]  # fmt: skip
    assert (row["truth"], row["attempt"], row["worker"], row["trace"]) == (
        "by_key", 1, "x1", "00-ab-cd-01",
    )  # fmt: skip
    assert row["digest"]
    assert row["planned"] <= row["dispatched"] < row["lease_until"]


def test_the_same_key_with_another_request_is_refused_and_shown(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent()], [])
    assert ledger.plan([intent(request=b"999", attempt=2)], []).clashes == [key_of(1)]
    assert ledger.plan([intent(request=b"999", attempt=2)], []).clashes == [key_of(1)]
    (claimed,) = claim(ledger)
    assert (claimed.request, claimed.attempt) == (b"100", 1)
    assert [each["clashes"] for each in rows.questions.find(clashing=True)] == [1]
    (clash,) = rows.one()["clash_list"]
    assert (clash["seen"], clash["attempt"], clash["bytes"]) == (2, 2, 3)


def test_two_requests_under_one_key_in_one_batch_clash_too(ledger: Ledger) -> None:
    planned = ledger.plan([intent(), intent(request=b"999", offset=2)], [])
    assert planned.clashes == [key_of(1)]
    assert [each.request for each in claim(ledger)] == [b"100"]


def test_a_record_that_is_no_command_is_kept_with_its_bytes(ledger: Ledger, rows: Rows) -> None:
    kept = Rejected(
        topic=TOPIC, partition=0, offset=7, record_key=b"o-1", headers=[("x", b"\xff\0")],
        value=b"junk", code="BAD_ENVELOPE", text="no key\0",
    )  # fmt: skip
    ledger.plan([], [place(8)], rejected=[kept])
    ledger.plan([], [place(8)], rejected=[kept])
    (row,) = rows.questions.rejected()
    assert (row["offset"], row["code"], row["bytes"]) == (7, "BAD_ENVELOPE", 4)


def test_what_a_restored_ledger_has_forgotten_is_born_unknown_and_says_so(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([intent()], [], Status.UNKNOWN)
    assert rows.status() == "unknown"
    assert claim(ledger) == []
    assert results(ledger) == [(key_of(1), 1, "unknown")]


def test_what_waits_in_a_restored_ledger_is_not_called_by_itself(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([intent(1), intent(2, truth="local"), intent(3, partition=1)], [])
    assert ledger.distrust("payments", 0) == 1
    assert rows.statuses() == {1: "unknown", 2: "planned", 3: "planned"}
    assert results(ledger) == [(key_of(1), 1, "unknown")]


# attempts (P30, P31)


def test_a_failed_action_is_planned_again_by_a_higher_attempt_only(
    ledger: Ledger, rows: Rows
) -> None:
    first = begun(ledger)
    ledger.settle([ended(first, Status.FAILED)])
    ledger.plan([intent()], [])
    assert rows.status() == "failed"
    ledger.plan([intent(attempt=2)], [])
    assert rows.status() == "planned"
    (second,) = claim(ledger)
    assert (second.attempt, second.epoch) == (2, 2)
    ledger.settle([ended(second, Status.FAILED)])
    ledger.plan([intent(attempt=1)], [])
    ledger.plan([intent(attempt=2)], [])
    assert rows.status() == "failed"


@pytest.mark.parametrize("state", ["in_flight", "unknown"])
def test_a_higher_attempt_waits_until_the_earlier_one_has_failed(
    ledger: Ledger, rows: Rows, state: str
) -> None:
    first = begun(ledger) if state == "in_flight" else lost(ledger)
    ledger.plan([intent(attempt=2)], [])
    assert rows.status() == state
    assert claim(ledger) == []
    ledger.settle([ended(first, Status.FAILED)])
    assert (key_of(1), 1, "failed") in results(ledger)
    (second,) = claim(ledger)
    assert second.attempt == 2


def test_a_higher_attempt_is_not_called_when_the_earlier_one_was_done(
    ledger: Ledger, rows: Rows
) -> None:
    first = lost(ledger)
    ledger.plan([intent(attempt=2)], [])
    ledger.settle([ended(first)])
    assert rows.status() == "succeeded"
    assert claim(ledger) == []


def test_a_succeeded_key_is_answered_again_from_what_is_stored(ledger: Ledger) -> None:
    first = begun(ledger)
    done = ended(first)
    ledger.settle([done])
    (result,) = ledger.results("payments", -1)
    assert (result.event_id, result.value, result.topic, result.attempt, result.outcome) == (
        done.event_id, b"r", "shop.order.events", 1, "succeeded",
    )  # fmt: skip
    ledger.published([done.event_id])
    assert ledger.results("payments", -1) == []
    ledger.plan([intent(attempt=3)], [])
    assert [each.event_id for each in ledger.results("payments", 60)] == [done.event_id]
    assert claim(ledger) == []


def test_what_a_target_did_is_told_by_its_own_executors_alone(ledger: Ledger) -> None:
    here = begun(ledger)
    ledger.plan([intent(2, target="parcels")], [])
    (there,) = ledger.claim("parcels", [Wanted("Charge", 9, 60)])
    ledger.settle([ended(here), ended(there)])
    assert [each.key for each in ledger.results("payments", -1)] == [here.key]
    assert [each.key for each in ledger.results("parcels", -1)] == [there.key]
    assert ledger.results("mail", -1) == []


def test_a_failed_attempt_that_is_asked_for_again_is_answered_again(ledger: Ledger) -> None:
    failed = ended(begun(ledger), Status.FAILED)
    ledger.settle([failed])
    ledger.published([failed.event_id])
    ledger.plan([intent()], [])
    assert [each.event_id for each in ledger.results("payments", 60)] == [failed.event_id]


# claiming


def test_an_action_is_claimed_by_one_worker(ledger_dsn: str, ledger: Ledger) -> None:
    ledger.plan([intent(number, instance=f"o-{number}") for number in range(40)], [])
    others = [Ledger(ledger_dsn, f"w{each}") for each in range(4)]
    found: list[int] = []
    start = Barrier(4)

    def take(each: Ledger) -> None:
        start.wait()
        while got := claim(each, most=3):
            found.extend(numbers(got))

    threads = [Thread(target=take, args=(each,)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for each in others:
        each.close()
    assert sorted(found) == list(range(40))


def test_a_command_with_a_slot_is_in_flight_when_it_is_planned(ledger: Ledger, rows: Rows) -> None:
    planned = ledger.plan([intent(1, lease_s=60.0), intent(2)], [])
    assert planned.claimed == {key_of(1): 1}
    assert rows.statuses() == {1: "in_flight", 2: "planned"}
    assert ledger.plan([intent(1, lease_s=60.0)], []).claimed == {}


def test_an_instances_next_command_waits_until_its_earlier_one_is_decided(ledger: Ledger) -> None:
    ledger.plan([intent(1), intent(2), intent(3, instance="o-2"), intent(4)], [])
    first = claim(ledger)
    assert numbers(first) == [1, 3]
    assert ledger.plan([intent(5, lease_s=60.0)], []).claimed == {}
    ledger.settle([ended(first[0], Status.UNKNOWN)])
    assert numbers(claim(ledger)) == [2]


def test_independent_commands_neither_wait_nor_are_waited_for(ledger: Ledger) -> None:
    ledger.plan([intent(1), intent(2, independent=True), intent(3, independent=True)], [])
    assert numbers(claim(ledger)) == [1, 2, 3]
    ledger.plan([intent(4, instance="o-9", independent=True), intent(5, instance="o-9")], [])
    assert numbers(claim(ledger)) == [4, 5]


def test_a_command_with_a_slot_is_held_up_by_what_counts_and_by_nothing_else(
    ledger: Ledger,
) -> None:
    ledger.plan([intent(1, target="mail"), intent(2, independent=True)], [])
    ledger.plan([intent(3, instance="o-2", independent=False)], [])
    first = ledger.plan([intent(4, lease_s=60.0), intent(5, instance="o-2", lease_s=60.0)], [])
    assert set(first.claimed) == {key_of(4)}
    second = ledger.plan([intent(6, lease_s=60.0), intent(7, lease_s=60.0, independent=True)], [])
    assert set(second.claimed) == {key_of(7)}


def test_commands_of_other_targets_are_no_forerunners(ledger: Ledger) -> None:
    ledger.plan([intent(1, target="mail"), intent(2)], [])
    assert numbers(claim(ledger)) == [2]


def test_a_type_without_slots_holds_back_no_other(ledger: Ledger) -> None:
    ledger.plan([intent(each, instance=f"o-{each}") for each in range(1, 6)], [])
    ledger.plan([intent(6, instance="o-6", type="Notify")], [])
    found = ledger.claim("payments", [Wanted("Charge", 2, 60), Wanted("Notify", 2, 60)])
    assert numbers(found) == [1, 2, 6]


def test_in_flight_is_committed_synchronously_whatever_the_database_says(database: str) -> None:
    migrate_ledger(database)
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.execute("SELECT current_database()").fetchone()
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(
                sql.Identifier(str(name and name[0]))
            )
        )
    ledger = Ledger(database, "x9")
    seen = ledger.runner.run("a look", lambda c: c.execute("SHOW synchronous_commit").fetchone())
    ledger.close()
    assert seen == ("on",)


def test_a_long_call_holds_on_to_its_row(ledger: Ledger, rows: Rows) -> None:
    ledger.plan([intent()], [])
    (claimed,) = claim(ledger, lease_s=-1)
    assert ledger.renew([(claimed, 60.0)]) == {claimed.key}
    assert ledger.run_out("payments") == []
    assert rows.status() == "in_flight"
    ledger.settle([ended(claimed)])
    assert ledger.renew([(claimed, 60.0)]) == set()


def test_a_lease_is_renewed_for_its_own_claim_only(ledger: Ledger) -> None:
    first = begun(ledger)
    ledger.settle([ended(first, Status.PLANNED)])
    (second,) = claim(ledger)
    assert ledger.renew([(first, 60.0)]) == set()
    assert ledger.renew([(second, 60.0)]) == {second.key}


# settling


def test_a_lease_that_runs_out_makes_the_action_unknown_and_never_planned(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([intent()], [])
    claim(ledger, lease_s=-1)
    (result,) = ledger.run_out("payments")
    assert (result.key, result.outcome, result.type) == (key_of(1), "unknown", "refold.unknown")
    assert claim(ledger) == []
    assert rows.status() == "unknown"
    assert results(ledger) == [(key_of(1), 1, "unknown")]
    (attempt,) = rows.one()["attempts"]
    assert (attempt["worker"], attempt["outcome"]) == ("x1", "unknown")


def test_a_late_answer_settles_what_is_still_unknown(ledger: Ledger, rows: Rows) -> None:
    first = lost(ledger)
    assert ledger.settle([ended(first)]).keys == {first.key}
    assert rows.status() == "succeeded"
    assert [outcome for _, _, outcome in results(ledger)] == ["unknown", "succeeded"]


def test_an_older_claims_failure_does_not_overwrite_a_newer_one(ledger: Ledger, rows: Rows) -> None:
    first = begun(ledger)
    ledger.settle([ended(first, Status.PLANNED)])
    (second,) = claim(ledger)
    settled = ledger.settle([ended(first, Status.FAILED)])
    assert (settled.keys, settled.contradictions) == (frozenset(), [])
    assert rows.status() == "in_flight"
    assert [each["epoch"] for each in rows.one()["attempts"]] == [1, 1]
    ledger.settle([ended(second, Status.UNKNOWN)])
    assert ledger.settle([ended(first, Status.FAILED)]).keys == frozenset()
    assert rows.status() == "unknown"


def test_an_older_claims_success_settles_a_row_that_is_unknown_or_waits(
    ledger: Ledger, rows: Rows
) -> None:
    first = begun(ledger)
    ledger.settle([ended(first, Status.PLANNED)])
    assert ledger.settle([ended(first)]).keys == {first.key}
    assert claim(ledger) == []
    assert rows.status() == "succeeded"


def test_succeeded_never_changes_and_a_contradiction_is_kept_and_told_to_the_caller(
    ledger: Ledger, rows: Rows
) -> None:
    first = begun(ledger)
    ledger.settle([ended(first)])
    told = len(results(ledger))
    against = ended(first, Status.FAILED, reason="declined")
    settled = ledger.settle([against])
    assert (settled.keys, settled.contradictions) == (frozenset(), [against])
    assert len(results(ledger)) == told
    row = rows.one()
    assert (row["status"], row["contradicted"]) == ("succeeded", True)
    assert row["attempts"][-1]["late"]
    assert [each["key"] for each in rows.questions.find(contradicted=True)] == [first.key]
    assert ledger.standing("payments", 60).contradicted == 1


def test_a_failed_action_that_was_done_after_all_is_not_called_again_by_itself(
    ledger: Ledger, rows: Rows
) -> None:
    first = begun(ledger)
    ledger.settle([ended(first, Status.FAILED)])
    assert ledger.settle([ended(first)]).contradictions
    assert rows.status() == "failed"
    ledger.plan([intent(attempt=2)], [])
    assert rows.status() == "unknown"
    assert claim(ledger) == []
    assert (key_of(1), 2, "unknown") in results(ledger)


def test_the_same_answer_twice_is_no_contradiction(ledger: Ledger, rows: Rows) -> None:
    first = begun(ledger)
    ledger.settle([ended(first)])
    assert ledger.settle([ended(first)]).contradictions == []
    assert not rows.one()["contradicted"]


def test_what_others_say_may_hold_any_character(ledger: Ledger, rows: Rows) -> None:
    first = begun(ledger, trace="\0")
    ledger.settle([ended(first, Status.UNKNOWN, reason="raised: \0")])
    assert rows.one()["reason"] == "raised: \ufffd"
    ledger.settle([ended(first)])
    assert ledger.settle([ended(first, Status.FAILED, reason="\0")]).contradictions


def test_results_of_an_instance_wait_for_what_was_left_of_it(ledger: Ledger) -> None:
    first = begun(ledger)
    assert ledger.settle([ended(first, Status.UNKNOWN)]).later == frozenset()
    (second,) = (ledger.plan([intent(2)], []), claim(ledger))[1]
    settled = ledger.settle([ended(second)])
    assert settled.later == {second.key}
    assert [outcome for _, _, outcome in results(ledger)] == ["unknown", "succeeded"]
    third = begun(ledger, 3)
    gone = [each.event_id for each in ledger.results("payments", -1)]
    assert ledger.settle([ended(third)], published=gone).later == frozenset()


def test_unknown_actions_are_asked_about_by_one_worker_and_an_answer_still_counts(
    ledger: Ledger, rows: Rows
) -> None:
    first = lost(ledger)
    (asked,) = ledger.ask("payments", ["Charge"], 9, 60)
    assert (asked.epoch, asked.known, asked.lost) == (first.epoch, Status.UNKNOWN, True)
    assert ledger.ask("payments", ["Charge"], 9, 60) == []
    assert [each.key for each in ledger.ask("payments", ["Charge"], 9, 60, eager=True)]
    ledger.settle([ended(first, reason="the call itself")])
    assert rows.status() == "succeeded"


def test_unknown_actions_are_called_again_within_their_horizon_only(ledger: Ledger) -> None:
    lost(ledger)
    assert ledger.recall("payments", Wanted("Charge", 9, 60), -1) == []
    (again,) = ledger.recall("payments", Wanted("Charge", 9, 60), 600)
    assert (again.epoch, again.attempt, again.known) == (2, 1, Status.UNKNOWN)


def test_what_is_not_settled_is_counted_and_a_dead_scanner_is_seen(
    ledger: Ledger, rows: Rows
) -> None:
    lost(ledger, 1)
    ledger.plan([intent(2, instance="o-2")], [])
    standing = ledger.standing("payments", 0)
    assert (standing.planned, standing.unknown, standing.stuck) == (1, 1, 1)
    assert ledger.standing("payments", 3600).stuck == 0
    ledger.scanned("payments")
    ledger.scanned("mail")
    rows.sql("UPDATE refold_ledger.workflow_scanner SET scanned = now() - interval '1 h'")
    ledger.scanned("payments")
    ages = {each["target"]: each["age_s"] for each in rows.questions.scanners()}
    assert ages["payments"] < 60 < ages["mail"]
