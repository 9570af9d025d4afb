"""What parks an instance: whatever a function does, whole or not at all, with a reason."""

import pytest
from tests.unit.processors.cases import (
    Cancelled,
    Case,
    Noted,
    Opened,
    Raised,
    code,
    graph,
    opened,
)

from refold import ANY, Context, Event, Late, Limits, StateGraph, replace
from refold.processors.effects import Send
from refold.schemas.errors import Code
from refold.schemas.limits import REASON_BYTES
from refold.schemas.verdicts import Reason, Verdict
from refold.testing.driver import Driver


def test_a_reducer_that_raises_parks_with_a_reason_alike_everywhere() -> None:
    driver = Driver(graph())
    step = driver.send("c", Opened(13.0))
    assert step.verdict is Verdict.PARKED
    assert step.reason == Reason(
        Code.REDUCER_RAISED,
        "the reducer of Opened in state 'new' raised ValueError: thirteen at <object at 0x…>"
        " in …/where.py",
    )
    record = driver.instance("c")
    assert (record.state, record.context, record.version) == ("new", Case(), 1)
    assert record.more.parked is not None
    assert record.more.parked.queue == (0,)


def test_a_long_reason_is_bounded() -> None:
    class Loud(Context):
        text: str = ""

    loud = StateGraph("loud", version=1, context=Loud, initial="a")

    @loud.on("a", Noted, to="b")
    def _(ctx: Loud, event: Noted) -> Loud:
        raise ValueError(event.text)

    loud.final("b", late={ANY: Late.RECORD})
    step = Driver(loud).send("l", Noted("ü" * 5000))
    assert step.reason is not None
    assert len(step.reason.text.encode()) <= REASON_BYTES


@pytest.mark.parametrize("error", [RecursionError, MemoryError, BaseException, AssertionError])
def test_whatever_a_function_raises_parks(error: type[BaseException]) -> None:
    case = graph()

    @case.on("open", Cancelled, to="closed")
    def _(ctx: Case, _: Cancelled) -> Case:
        raise error

    driver = Driver(case)
    driver.send("c", Opened(1.0))
    assert code(driver.send("c", Cancelled())) is Code.REDUCER_RAISED


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes(error: type[BaseException]) -> None:
    case = graph()

    @case.on("open", Cancelled, to="closed")
    def _(ctx: Case, _: Cancelled) -> Case:
        raise error

    driver = Driver(case)
    driver.send("c", Opened(1.0))
    with pytest.raises(error):
        driver.send("c", Cancelled())


def test_a_guard_that_raises_parks() -> None:
    case = graph()
    case.on("open", Cancelled, to="closed", guard=lambda ctx, _: ctx.amount / 0 > 1)
    driver = Driver(case)
    driver.send("c", Opened(1.0))
    step = driver.send("c", Cancelled())
    assert code(step) is Code.REDUCER_RAISED
    assert step.reason is not None
    assert "a guard of Cancelled" in step.reason.text


@pytest.mark.parametrize("amount", [float("inf"), float("nan"), "text", None, 1])
def test_a_context_that_cannot_be_stored_parks(amount: object) -> None:
    case = graph()

    @case.on("open", Cancelled)
    def _(ctx: Case, __: Cancelled) -> Case:
        return replace(ctx, amount=amount)

    driver = Driver(case)
    driver.send("c", Opened(1.0))
    before = driver.instance("c")
    step = driver.send("c", Cancelled())
    assert code(step) is Code.NOT_STORABLE
    assert step.reason is not None
    assert "Case.amount" in step.reason.text
    assert driver.instance("c").context is before.context


def test_a_reducer_that_returns_nothing_parks() -> None:
    case = graph()

    @case.on("open", Cancelled)
    def _(ctx: Case, __: Cancelled) -> Case:
        return None  # type: ignore[return-value]

    driver = Driver(case)
    driver.send("c", Opened(1.0))
    step = driver.send("c", Cancelled())
    assert code(step) is Code.NOT_STORABLE
    assert step.reason is not None
    assert "returned nothing: is a `return` missing?" in step.reason.text


def test_two_commands_with_one_discriminator_are_named_with_its_value() -> None:
    step = opened().send("c", Noted("same pages"))
    assert step.reason is not None
    assert "two of them have item='x'; merge them" in step.reason.text


def test_a_broken_invariant_parks_and_is_named() -> None:
    driver = opened(-1.0)
    step = driver.log[0].step
    assert code(step) is Code.INVARIANT_BROKEN
    assert step.reason is not None
    assert "'amounts are not negative'" in step.reason.text
    assert step.effects == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twice", Code.COMMAND_INVALID),
        ("same pages", Code.COMMAND_INVALID),
        ("number", Code.COMMAND_INVALID),
        ("surrogate", Code.COMMAND_INVALID),
        ("string", Code.COMMAND_INVALID),
        ("raise", Code.REDUCER_RAISED),
    ],
)
def test_a_command_that_cannot_be_sent_parks(text: str, expected: Code) -> None:
    driver = opened()
    before = driver.instance("c")
    step = driver.send("c", Noted(text))
    assert (step.verdict, code(step), step.effects) == (Verdict.PARKED, expected, ())
    after = driver.instance("c")
    assert (after.state, after.context, after.transitions) == (
        before.state,
        before.context,
        before.transitions,
    )


def test_a_command_over_the_bound_parks() -> None:
    driver = opened(limits=Limits(command_bytes=10))
    assert code(driver.log[0].step) is Code.COMMAND_TOO_LARGE


def test_a_discriminator_tells_commands_of_one_step_apart() -> None:
    step = opened().send("c", Noted("pages"))
    assert [(send.action, send.target) for send in step.effects if isinstance(send, Send)] == [
        ("page.x", "pager"),
        ("page.y", "pager"),
    ]
    assert step.effects[0].key == "r1:test:case:c:open:page.x:%2Ftest%1Fe1:forward"


def test_sending_nothing_is_fine() -> None:
    step = opened().send("c", Noted("nothing"))
    assert (step.verdict, step.effects) == (Verdict.APPLIED, ())


ILLEGAL = [
    ("refused", Cancelled(), Verdict.REFUSED),
    ("guarded", Raised(100.0), Verdict.REFUSED),
    ("raising send", Noted("raise"), Verdict.PARKED),
    ("double action", Noted("twice"), Verdict.PARKED),
    ("dividing by zero", Raised(0.0), Verdict.PARKED),
]


@pytest.mark.parametrize(("name", "event", "verdict"), ILLEGAL)
def test_an_illegal_step_leaves_the_state_untouched(
    name: str, event: Event, verdict: Verdict
) -> None:
    driver = opened()
    before = driver.instance("c")
    step = driver.send("c", event)
    assert (step.verdict, step.effects) == (verdict, ())
    after = driver.instance("c")
    for field in ("state", "context", "transitions", "unchanged", "since_ms", "visits"):
        assert getattr(after, field) == getattr(before, field), name
    driver.kill_and_recover()
    driver.check_replay()
