"""Answers of the other side that come after the call: by its reference or by the key."""

from threading import Barrier, Thread

import pytest
from tests.executors.rows import Rows, claim, ended, intent, key_of, results

from refold.examples.order.graph import Charged, ChargeDeclined
from refold.executors.ledger import Ledger
from refold.executors.model import Claimed, Heard, Status
from refold.executors.outcome import Declined, Done, NotDone
from refold.schemas.errors import RecordError, UsageError

pytestmark = pytest.mark.postgres
DONE = Done(Charged("receipt 1"))
DECLINED = Declined(ChargeDeclined("no money"))


def claimed(ledger: Ledger, number: int = 1) -> Claimed:
    ledger.plan([intent(number, instance=f"o-{number}")], [])
    (found,) = claim(ledger)
    return found


def accept(ledger: Ledger, found: Claimed, until_s: float = 600, reference: str = "bank-7") -> None:
    ledger.settle([ended(found, Status.IN_FLIGHT, reference=reference, until_s=until_s)])


def test_an_answer_settles_what_was_accepted(ledger: Ledger, rows: Rows) -> None:
    accept(ledger, claimed(ledger))
    assert (rows.status(), rows.one()["reference"]) == ("in_flight", "bank-7")
    assert ledger.answer(DONE, target="payments", reference="bank-7") is Heard.SETTLED
    assert rows.status() == "succeeded"
    assert results(ledger) == [(key_of(1), 1, "succeeded")]
    assert [each.type for each in ledger.results("payments", 60)] == ["Charged"]


def test_an_answer_by_key_settles_too_even_while_the_call_is_under_way(
    ledger: Ledger, rows: Rows
) -> None:
    found = claimed(ledger)
    assert ledger.answer(DECLINED, key=found.key) is Heard.SETTLED
    assert rows.status() == "failed"
    assert results(ledger) == [(key_of(1), 1, "failed")]
    assert ledger.settle([ended(found, Status.IN_FLIGHT, reference="r")]).contradictions == []
    assert rows.status() == "failed"


def test_an_answer_that_comes_before_the_row_knows_its_reference_waits_for_it(
    ledger: Ledger, rows: Rows
) -> None:
    found = claimed(ledger)
    assert ledger.answer(DONE, target="payments", reference="bank-7") is Heard.KEPT
    assert ledger.answer(DONE, target="payments", reference="bank-7") is Heard.KEPT
    assert rows.status() == "in_flight"
    accept(ledger, found)
    assert rows.status() == "succeeded"
    assert results(ledger) == [(key_of(1), 1, "succeeded")]


def test_answers_and_acceptance_at_the_same_moment_always_meet(
    ledger_dsn: str, ledger: Ledger, rows: Rows
) -> None:
    other = Ledger(ledger_dsn, "x2")
    for number in range(20):
        found, start = claimed(ledger, number), Barrier(2)

        def answer(name: str = f"bank-{number}", start: Barrier = start) -> None:
            start.wait()
            other.answer(DONE, target="payments", reference=name)

        answering = Thread(target=answer)
        answering.start()
        start.wait()
        accept(ledger, found, reference=f"bank-{number}")
        answering.join(30)
        assert rows.status(number) == "succeeded"
    other.close()


def test_an_answer_twice_does_no_harm(ledger: Ledger, rows: Rows) -> None:
    accept(ledger, claimed(ledger))
    ledger.answer(DONE, target="payments", reference="bank-7")
    assert ledger.answer(DONE, target="payments", reference="bank-7") is Heard.KNOWN
    assert len(results(ledger)) == 1
    assert not rows.one()["contradicted"]


def test_an_answer_after_the_deadline_settles_what_became_unknown(
    ledger: Ledger, rows: Rows
) -> None:
    accept(ledger, claimed(ledger), until_s=-1)
    (lost,) = ledger.run_out("payments")
    assert lost.outcome == "unknown"
    assert (rows.status(), rows.one()["reason"]) == (
        "unknown",
        "accepted, and not answered in time",
    )
    assert ledger.answer(DONE, target="payments", reference="bank-7") is Heard.SETTLED
    assert rows.status() == "succeeded"


def test_an_answer_against_what_stands_is_kept_and_shown_and_not_told(
    ledger: Ledger, rows: Rows
) -> None:
    accept(ledger, claimed(ledger))
    ledger.answer(DONE, target="payments", reference="bank-7")
    assert ledger.answer(DECLINED, target="payments", reference="bank-7") is Heard.CONTRADICTS
    row = rows.one()
    assert (row["status"], row["contradicted"]) == ("succeeded", True)
    assert row["attempts"][-1]["reason"] == "ChargeDeclined"
    assert len(results(ledger)) == 1


def test_the_reference_of_an_earlier_attempt_still_finds_its_action(
    ledger: Ledger, rows: Rows
) -> None:
    first = claimed(ledger)
    accept(ledger, first, reference="bank-7")
    ledger.answer(NotDone("busy"), target="payments", reference="bank-7")
    ledger.plan([intent(instance="o-1", attempt=2)], [])
    (second,) = claim(ledger)
    accept(ledger, second, reference="bank-8")
    assert ledger.answer(DECLINED, target="payments", reference="bank-7") is Heard.KNOWN
    assert rows.status() == "in_flight"
    assert ledger.answer(DONE, target="payments", reference="bank-7") is Heard.SETTLED
    assert rows.status() == "succeeded"


def test_what_waits_for_its_call_is_settled_by_done_and_by_nothing_else(
    ledger: Ledger, rows: Rows
) -> None:
    ledger.plan([intent(1)], [])
    assert ledger.answer(DECLINED, key=key_of(1)) is Heard.KNOWN
    assert rows.status() == "planned"
    assert ledger.answer(DONE, key=key_of(1)) is Heard.SETTLED
    assert claim(ledger) == []


def test_references_are_the_targets_own(ledger: Ledger, rows: Rows) -> None:
    accept(ledger, claimed(ledger))
    assert ledger.answer(DONE, target="mail", reference="bank-7") is Heard.KEPT
    assert rows.status() == "in_flight"


def test_an_answer_about_nothing_that_is_known_says_so(ledger: Ledger) -> None:
    assert ledger.answer(DONE, key="nobody's") is Heard.STRANGE
    with pytest.raises(UsageError, match="a key, or about a target's reference"):
        ledger.answer(DONE, key="k", target="payments", reference="bank-7")
    with pytest.raises(UsageError):
        ledger.answer(DONE, reference="bank-7")


@pytest.mark.parametrize("text", ["no\0money", "half a \ud800 character", "\0", "🦫"])
def test_an_answer_counts_whatever_characters_it_holds(
    ledger: Ledger, rows: Rows, text: str
) -> None:
    accept(ledger, claimed(ledger), reference=f"r {text}")
    said = Declined(ChargeDeclined("no"), text)
    assert ledger.answer(said, target="payments", reference=f"r {text}") is Heard.SETTLED
    assert rows.status() == "failed"
    assert ledger.answer(said, target="payments", reference=f"early {text}") is Heard.KEPT
    accept(ledger, claimed(ledger, 2), reference=f"early {text}")
    assert rows.status(2) == "failed"


def test_an_answer_about_what_nobody_can_have_is_refused_or_strange(ledger: Ledger) -> None:
    for key in ("a\0b", "\ud800", "x" * 10_000):
        assert ledger.answer(DONE, key=key) is Heard.STRANGE
    for target, reference in (("payments", "x" * 10_000), ("a\0", "r"), ("\ud800", "r")):
        with pytest.raises(UsageError, match="cannot be kept"):
            ledger.answer(DONE, target=target, reference=reference)


def test_an_answer_that_could_not_be_sent_is_refused_and_settles_nothing(
    ledger: Ledger, rows: Rows
) -> None:
    accept(ledger, claimed(ledger))
    with pytest.raises(RecordError, match="at most 1,000,000 are sent"):
        ledger.answer(Done(Charged("x" * 2_000_000)), key=key_of(1))
    assert rows.status() == "in_flight"
