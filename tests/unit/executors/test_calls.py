"""What the end of a call means, apart from any server."""

import asyncio
from time import monotonic
from typing import Any

import pytest

from refold import Command, Event
from refold.executors.calls import (
    CALLS_MOST,
    asked,
    call_of,
    overdue,
    perform,
    perform_async,
    unknown,
)
from refold.executors.circuit import Sign
from refold.executors.executor import Action, Executor
from refold.executors.model import Claimed, Status
from refold.executors.outcome import CannotTell, Done, NotDone, TooLate, Unauthorized, Undone
from refold.executors.truth import Neither, Queryable, Truth
from refold.schemas.envelope import derived_id


class Pay(Command):
    amount: int


class Paid(Event):
    reference: str


def claimed(**changes: Any) -> Claimed:
    values: dict[str, Any] = {
        "key": "k", "tenant": "acme", "workflow": "shop", "instance": "i", "state": "paying",
        "action": "Pay", "direction": "forward", "type": "Pay", "request": b"", "attempt": 2,
        "epoch": 3, "reply_to": "shop.events", "trace": "", "known": Status.PLANNED,
    }  # fmt: skip
    return Claimed(**values | changes)


def action(handler: Any, truth: Truth | None = None) -> Action:
    executor = Executor("bank")
    executor.action(Pay, truth=truth or Neither(), deadline_s=2.0)(handler)
    return executor.actions["Pay"]


def test_a_handler_is_not_called_when_the_time_of_its_call_is_over() -> None:
    calls: list[int] = []

    async def pay_async(command: Pay, call: Any) -> None:
        calls.append(1)

    def pay(command: Pay, call: Any) -> None:
        calls.append(1)

    row = claimed()
    late = call_of(row, action(pay), monotonic() - 0.001)
    ends = [
        perform(row, action(pay), late, Pay(amount=1)),
        asyncio.run(perform_async(row, action(pay_async), late, Pay(amount=1))),
    ]
    assert calls == []
    assert [each.ended.status for each in ends] == [Status.PLANNED] * 2
    assert [each.ended.event_id for each in ends] == [""] * 2


def test_a_handler_is_not_called_when_its_lease_is_over() -> None:
    call = call_of(claimed(), action(lambda *_: None))
    call.before_send()
    call.lease_until_s = monotonic()
    with pytest.raises(TooLate):
        call.before_send()


def test_ids_of_answers_follow_from_key_attempt_and_outcome() -> None:
    def end(answer: Any) -> str:
        def pay(command: Pay, call: Any) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        row = claimed()
        act = action(pay)
        return perform(row, act, call_of(row, act), Pay(amount=1)).ended.event_id

    assert end(Paid(reference="r")) == derived_id("result", "k", "succeeded")
    assert end(None) == derived_id("result", "k", "succeeded")
    assert end(NotDone("no")) == derived_id("result", "k", "failed", "2")
    assert end(TimeoutError()) == derived_id("result", "k", "unknown", "2")
    assert end(Unauthorized("no")) == ""


@pytest.mark.parametrize(
    ("answer", "row", "status", "code"),
    [
        (Done(Paid(reference="r")), {}, Status.SUCCEEDED, ""),
        (Undone(), {"since_s": 11.0}, Status.UNKNOWN, ""),
        (Undone(), {"since_s": 12.5}, Status.FAILED, "UNDONE"),
        (Undone(), {"since_s": 12.5, "lost": True}, Status.PLANNED, ""),
        (Undone(), {"since_s": 12.5, "lost": True, "epoch": CALLS_MOST}, Status.FAILED, "UNDONE"),
        (CannotTell("busy"), {"since_s": 99.0}, Status.UNKNOWN, ""),
        ("yes", {"since_s": 99.0}, Status.UNKNOWN, ""),
        (SystemExit(1), {"since_s": 99.0}, Status.UNKNOWN, ""),
    ],
)
def test_what_the_other_side_says_counts_when_it_can_know(
    answer: Any, row: dict[str, Any], status: Status, code: str
) -> None:
    async def said() -> Any:
        return answer

    act = action(lambda *_: None, Queryable(lambda *_: answer, visible_after_s=10.0))
    end = asyncio.run(asked(claimed(known=Status.UNKNOWN, **row), act, said()))
    assert end.ended.status == status
    assert code.encode() in end.ended.value
    if status is Status.UNKNOWN:
        assert end.ended.event_id == ""  # told when it became unknown
        assert end.sign is (Sign.ANSWERED if isinstance(answer, Undone) else Sign.DOWN)


def test_what_was_said_too_early_is_asked_again_when_it_can_be_known() -> None:
    async def said() -> Any:
        return Undone()

    act = action(lambda *_: None, Queryable(lambda *_: Undone(), visible_after_s=10.0))
    end = asyncio.run(asked(claimed(known=Status.UNKNOWN, since_s=11.0), act, said()))
    assert end.ended.retry_after_s == pytest.approx(1.0)


def test_questions_come_more_and_more_seldom() -> None:
    pauses = [
        unknown(claimed(known=Status.UNKNOWN, since_s=age_s), "").retry_after_s
        for age_s in (0.0, 1.0, 10.0, 1000.0)
    ]
    assert pauses == [0.25, 0.5, 5.0, 60.0]


def poll(answer: Any, **row: Any) -> Any:
    """What an answer about an accepted action means; the action is polled each 20 s."""

    async def said() -> Any:
        return answer

    act = action(lambda *_: None, Queryable(lambda *_: Undone(), 0.0, poll_s=20.0))
    return asyncio.run(asked(claimed(known=Status.IN_FLIGHT, **row), act, said()))


@pytest.mark.parametrize(
    ("answer", "sign"),
    [
        (Undone(), Sign.ANSWERED),
        (CannotTell("it is open still"), Sign.NOTHING),
        (ConnectionError("down"), Sign.DOWN),
        ("a bug", Sign.DOWN),
    ],
)
def test_of_what_was_accepted_everything_but_done_means_not_yet(answer: Any, sign: Sign) -> None:
    end = poll(answer, since_s=5.0)
    assert (end.ended.status, end.ended.event_id, end.sign) == (Status.IN_FLIGHT, "", sign)


def test_what_was_accepted_and_is_done_is_told() -> None:
    end = poll(Done(Paid("r")))
    assert (end.ended.status, end.ended.outcome) == (Status.SUCCEEDED, "succeeded")


def test_polls_come_as_declared_and_more_seldom_with_age() -> None:
    ages_s = (0.0, 100.0, 1_000.0, 86_400.0)
    pauses = [poll(Undone(), since_s=age_s).ended.retry_after_s for age_s in ages_s]
    assert pauses == [20.0, 20.0, 100.0, 3600.0]


def test_no_answer_in_time_is_a_sign_that_the_system_is_down_and_a_bug_is_none() -> None:
    assert overdue(claimed(), 2.0).sign is Sign.DOWN

    def pay(command: Pay, call: Any) -> None:
        raise KeyError("a bug")

    row = claimed()
    act = action(pay)
    assert perform(row, act, call_of(row, act), Pay(amount=1)).sign is Sign.NOTHING
