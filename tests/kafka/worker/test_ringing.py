"""The owner of a partition writes the timer events of its instances when they are due (P26)."""

from time import time

import pytest
from tests.kafka.worker.conftest import StageOf
from tests.kafka.worker.stage import Stage, header
from tests.kafka.worker.waits import (
    PAY,
    WAIT,
    Answered,
    Asked,
    add_wait,
    by_instance,
    closed,
    rung,
)

from refold.processors.engine_events import FAILED, Failed
from refold.schemas.envelope import Answer, Outcome
from refold.schemas.errors import Code, UsageError
from refold.topics.records import event_headers

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

FAR_MS = 10**9


def now_ms() -> int:
    return int(time() * 1000)


def ask(stage: Stage, *instances: str, remind: int, close: int) -> None:
    stage.put(
        *((each, f"ask-{each}", Asked(remind=remind, close=close)) for each in instances),
        workflow="wait",
    )


def test_what_is_due_rings_once_in_due_order_and_moves_the_graph(one: Stage) -> None:
    add_wait(one)
    begun = now_ms()
    with one.working(WAIT):
        ask(one, "a", "b", remind=begun, close=begun + 300)
        one.until(lambda: closed(one) == 2, "both closed")
    assert by_instance(one) == {"a": ["remind", "close"], "b": ["remind", "close"]}
    assert sorted(one.sent("wait")) == ["a/closed", "b/closed"]
    for message, event in rung(one):
        assert header(message, "ce_id") == event.id
        assert header(message, "ce_source") == "/refold/timer/wait"
        assert message.timestamp()[1] >= event.due_ms


def test_a_timer_of_a_state_that_was_left_never_rings(one: Stage) -> None:
    add_wait(one)
    with one.working(WAIT):
        ask(one, "a", remind=now_ms() + FAR_MS, close=now_ms() + 400)
        one.put(("a", "yes", Answered()), workflow="wait")
        ask(one, "b", remind=now_ms() + FAR_MS, close=now_ms() + 400)
        one.until(lambda: closed(one) == 1, "b closed")
    assert by_instance(one) == {"b": ["close"]}


def test_what_came_due_while_nobody_worked_rings_when_somebody_does(one: Stage) -> None:
    """Most of them are not in the memory of the worker that rings them."""
    add_wait(one)
    names = [f"i-{number}" for number in range(30)]
    with one.working(WAIT, wall=Stepping(-3_600.0)):  # nothing is due by its clock
        ask(one, *names, remind=now_ms() + FAR_MS, close=now_ms())
        one.until(lambda: one.marks("wait").get("p0", 0) == 30, "saved")
    assert by_instance(one) == {}
    with one.working(WAIT, instances=1):
        one.until(lambda: closed(one) == 30, "all closed")
    assert by_instance(one) == {each: ["close"] for each in names}


def test_the_horizon_is_extended_before_what_lies_behind_it_is_due(one: Stage) -> None:
    add_wait(one)
    with one.working(WAIT, horizon_s=0.4, instances=2):
        begun = now_ms()
        for step in range(8):
            ask(one, f"i-{step}", remind=begun + FAR_MS, close=begun + 250 * step)
        one.until(lambda: closed(one) == 8, "all closed")
    assert all(names == ["close"] for names in by_instance(one).values())
    late_ms = [message.timestamp()[1] - event.due_ms for message, event in rung(one)]
    assert min(late_ms) >= 0


def test_b044_other_events_are_folded_in_the_middle_of_a_storm(one: Stage) -> None:
    """B044: what comes while a thousand timers are due stands behind a few of them, not all."""
    add_wait(one)
    names = [f"i-{number}" for number in range(1_000)]
    with one.working(WAIT, wall=Stepping(-3_600.0)):  # nothing is due by its clock
        ask(one, "other", *names, remind=now_ms() + FAR_MS, close=now_ms())
        one.until(lambda: one.marks("wait").get("p0", 0) == 1_001, "saved")
    with one.working(WAIT, timer_records=10):
        one.until(lambda: closed(one) > 0, "the storm")
        one.put(("other", "yes", Answered()), workflow="wait")
        one.until(lambda: closed(one) >= 1_000, "its end")
    sent = one.sent("wait")
    assert "other/answered" in sent[:-100]
    assert len(sent) == 1_001
    assert by_instance(one) == {each: ["close"] for each in names}


def test_rows_and_views_show_what_an_instance_waits_for(one: Stage) -> None:
    add_wait(one)
    due = now_ms() + FAR_MS
    with one.working(WAIT):
        ask(one, "a", remind=due, close=due + 5)
        one.until(lambda: one.marks("wait").get("p0", 0) == 1, "saved")
    found = one.sql(
        "SELECT workflow, tenant, instance_id, name, state, attempt,"
        " (extract(epoch FROM due) * 1000)::bigint FROM refold_v1.timers ORDER BY due"
    )
    assert found == [
        ("wait", "acme", "a", "remind", "open", 1, due),
        ("wait", "acme", "a", "close", "open", 1, due + 5),
    ]


def test_a_failed_attempt_is_asked_for_again_by_a_timer(one: Stage) -> None:
    """A retry's pause is a timer on the log; the last failure moves the graph."""
    add_wait(one, "pay")
    with one.working(PAY):
        one.put(("a", "begin", Asked(remind=0, close=0)), workflow="pay")
        for attempt in (1, 2, 3):
            one.until(lambda: len(attempts(one)) == attempt, "an attempt")  # noqa: B023
            key, told = attempts(one)[-1]
            assert told == attempt
            answer = Answer(key, attempt, Outcome.FAILED)
            headers = event_headers(
                f"no-{attempt}", "/refold/executor/pay", FAILED.name, "acme", answer=answer
            )
            value = FAILED.encode(Failed("DECLINED", "no", retry=True, retry_after_ms=0))
            one.put_raw(b"a", value, headers, workflow="pay")
        one.until(lambda: one.states("pay") == {"a": "given_up"}, "the end")
    assert len({key for key, _ in attempts(one)}) == 1


def attempts(stage: Stage) -> list[tuple[str, int]]:
    """Key and attempt of every command, in log order."""
    return [
        (header(each, "idempotency-key"), int(header(each, "ce_attempt")))
        for each in stage.committed("commands", "pay")
    ]


def test_a_worker_without_rows_refuses_a_workflow_with_timers(one: Stage) -> None:
    with (
        pytest.raises(UsageError, match="wait") as caught,
        one.working(WAIT, worker={"rows": False}),
    ):
        pass
    assert caught.value.code is Code.BAD_SETTING


def test_a_clock_that_differs_or_steps_does_no_harm(stage_of: StageOf) -> None:
    """B045: the log says that a timer rang; a clock only says when it is written."""
    stage = stage_of(1)
    add_wait(stage)
    clock = Stepping()
    begun = now_ms()
    with stage.working(WAIT, wall=clock):
        clock.offset_s = -3_600.0
        ask(stage, "soon", remind=begun + 100, close=begun + FAR_MS)
        ask(stage, "later", remind=begun + 1_800_000, close=begun + FAR_MS)
        stage.until(lambda: stage.marks("wait").get("p0", 0) == 2, "saved")
        clock.offset_s = 0.0
        stage.until(lambda: "soon" in by_instance(stage), "what is due")
        assert set(by_instance(stage)) == {"soon"}
        clock.offset_s = 3_600.0
        stage.until(lambda: "later" in by_instance(stage), "a step forward")
        clock.offset_s = -3_600.0
        ask(stage, "last", remind=begun, close=begun + FAR_MS)
        clock.offset_s = 0.0
        stage.until(lambda: "last" in by_instance(stage), "and back")
    with stage.working(WAIT, wall=Stepping(300.0)):
        ask(stage, "other", remind=now_ms(), close=begun + FAR_MS)
        stage.until(lambda: "other" in by_instance(stage), "another owner")
    assert by_instance(stage) == {each: ["remind"] for each in ("soon", "later", "last", "other")}


class Stepping:
    """A wall clock that a test sets."""

    def __init__(self, offset_s: float = 0.0) -> None:
        self.offset_s = offset_s

    def __call__(self) -> float:
        return time() + self.offset_s
