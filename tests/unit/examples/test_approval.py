"""An approval: decided once, in time or by the next one, by somebody who may, and on the log."""

from datetime import timedelta

import pytest

from refold import RunStatus
from refold.examples.approval import approval
from refold.examples.approval.graph import (
    Ask,
    Check,
    Checked,
    Decided,
    Release,
    Requested,
    Withdrawn,
)
from refold.schemas.codec import codec_of
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver

REQUESTED = Requested("a desk", 480, by="ann", approver="ben", manager="cleo")
YES, NO = Decided(yes=True, by="ben"), Decided(yes=False, by="ben", comment="not this year")


def asked() -> Driver:
    """Where a person has been asked."""
    made = Driver(approval, tenant="office")
    made.send("a", REQUESTED)
    made.done(made.sent[0], Checked(within_budget=True))
    return made


def commands(made: Driver) -> list[object]:
    return [made.command(each) for each in made.sent]


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()


def test_a_decision_is_carried_out_once_and_says_who_decided_and_when() -> None:
    made = asked()
    assert made.status("a") is RunStatus.WAITING_INPUT
    made.pass_time(timedelta(hours=3))
    made.send("a", YES, source="/gateway/office")
    assert commands(made) == [
        Check("a desk", 480), Ask("ben", "a desk", 480), Release("a desk", 480, decided_by="ben"),
    ]  # fmt: skip
    made.done(made.sent[-1])
    found = made.instance("a").context
    assert (made.state("a"), found.decision, found.sent_by) == ("released", YES, "/gateway/office")
    assert found.decided_at.timestamp() * 1000 == made.log[2].event.log_time_ms
    checked(made)


def test_who_decided_can_be_read_from_the_log_alone() -> None:
    made = asked()
    made.send("a", NO)
    event = made.log[2].event
    assert codec_of(Decided).decode(event.value) == NO
    again = Driver.from_history(approval, made.history("a"))
    assert again.instance("a", tenant="office").context.decision == NO
    assert made.state("a") == "rejected"


def test_an_approval_that_resumes_runs_nothing_again() -> None:
    made = asked()
    before = list(made.sent)
    made.kill_and_recover()
    made.send("a", YES)
    assert made.sent[: len(before)] == before
    assert [one.type for one in made.sent[len(before) :]] == ["Release"]
    checked(made)


def test_a_decision_that_comes_before_the_question_is_kept_until_it_is_asked() -> None:
    made = Driver(approval, tenant="office")
    made.send("a", REQUESTED)
    assert made.send("a", YES).verdict is Verdict.DEFERRED
    made.done(made.sent[0], Checked(within_budget=True))
    assert made.state("a") == "releasing"
    assert [one.type for one in made.sent].count("Release") == 1
    checked(made)


@pytest.mark.parametrize("by", ["ann", "cleo", "somebody"])
def test_who_was_not_asked_or_asks_himself_decides_nothing(by: str) -> None:
    made = asked()
    assert made.send("a", Decided(yes=True, by=by)).verdict is Verdict.REFUSED
    assert made.state("a") == "deciding"
    checked(made)


def test_who_is_his_own_approver_decides_nothing_either() -> None:
    made = Driver(approval, tenant="office")
    made.send("a", Requested("a desk", 480, by="ben", approver="ben", manager="cleo"))
    made.done(made.sent[0], Checked(within_budget=True))
    assert made.send("a", YES).verdict is Verdict.REFUSED
    made.pass_time(timedelta(days=2))
    made.send("a", Decided(yes=True, by="cleo"))
    assert made.state("a") == "releasing"
    checked(made)


def test_what_nobody_decides_goes_to_the_next_one_and_ends_when_that_one_is_silent_too() -> None:
    made = asked()
    made.pass_time(timedelta(days=1, hours=23))
    assert made.state("a") == "deciding"
    made.pass_time(timedelta(hours=1))
    assert (made.state("a"), commands(made)[-1]) == ("escalated", Ask("cleo", "a desk", 480))
    made.pass_time(timedelta(days=5))
    assert (made.state("a"), made.status("a")) == ("expired", RunStatus.FAILED)
    assert made.send("a", YES).verdict is Verdict.LATE
    assert "Release" not in [one.type for one in made.sent]
    checked(made)


@pytest.mark.parametrize("by", ["ben", "cleo"])
def test_after_the_escalation_both_may_decide_and_the_first_one_does(by: str) -> None:
    made = asked()
    made.pass_time(timedelta(days=2))
    made.send("a", Decided(yes=True, by=by))
    other = Decided(yes=False, by="ben" if by == "cleo" else "cleo")
    assert made.send("a", other).verdict is Verdict.REFUSED
    made.done(made.sent[-1])
    step = made.send("a", other)
    assert (step.verdict, step.reason is not None) == (Verdict.LATE, True)
    assert made.instance("a").context.decision.by == by
    checked(made)


def test_the_deadline_and_the_decision_in_one_moment_have_one_outcome_in_log_order() -> None:
    made = asked()
    (timer,) = made.instance("a").more.timers
    made.send("a", YES)
    assert made.ring("a", timer).verdict is Verdict.DUPLICATE
    assert made.state("a") == "releasing"
    made = asked()
    (timer,) = made.instance("a").more.timers
    made.ring("a", timer)
    made.send("a", YES)
    assert made.state("a") == "releasing"
    assert [one.type for one in made.sent].count("Release") == 1
    checked(made)


def test_the_same_decision_sent_twice_is_a_duplicate() -> None:
    made = asked()
    made.send("a", YES, id="d-1")
    assert made.send("a", YES, id="d-1").verdict is Verdict.DUPLICATE
    assert [one.type for one in made.sent].count("Release") == 1


def test_what_is_over_budget_or_withdrawn_is_asked_of_nobody() -> None:
    made = Driver(approval, tenant="office")
    made.send("a", REQUESTED)
    made.done(made.sent[0], Checked(within_budget=False))
    made.send("b", REQUESTED)
    made.send("b", Withdrawn())
    assert (made.state("a"), made.state("b")) == ("rejected", "withdrawn")
    assert {one.type for one in made.sent} == {"Check"}
    assert made.send("b", Decided(yes=True, by="ben")).reason is not None
    checked(made)


def test_a_check_that_fails_for_good_leaves_the_decision_to_people() -> None:
    made = Driver(approval, tenant="office")
    made.send("a", REQUESTED)
    made.failed(made.sent[0], retry=False)
    assert made.state("a") == "deciding"
    checked(made)
