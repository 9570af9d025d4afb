"""Each verdict by example, and that what is not applied leaves the state untouched."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict
from tests.unit.processors.cases import (
    Cancelled,
    Case,
    Closed,
    Noted,
    Opened,
    Raised,
    Tell,
    code,
    graph,
    opened,
)

from refold import (
    ANY,
    Context,
    Event,
    Late,
    StateGraph,
    StepInfo,
    Workflow,
    replace,
)
from refold.processors.effects import Send, Step
from refold.processors.engine_events import REDRIVE
from refold.processors.fold import fold, needed
from refold.schemas.errors import Code, FenceError
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.testing.driver import Driver


def test_the_first_event_creates_and_sends() -> None:
    driver = opened()
    step = driver.log[0].step
    assert step.verdict is Verdict.APPLIED
    assert step.transition == "new/Opened/0"
    (sent,) = step.effects
    assert isinstance(sent, Send)
    assert (sent.type, sent.target, sent.action, sent.state) == ("Tell", "case", "Tell", "open")
    assert sent.key == "r1:test:case:c:open:Tell:%2Ftest%1Fe0:forward"
    record = driver.instance("c")
    assert (record.version, record.transitions, record.unchanged) == (1, 1, 0)
    assert (record.context, record.last_id, record.last_offset) == (Case(10.0), "e0", 0)


def test_a_repeated_event_is_a_duplicate_and_sends_nothing() -> None:
    driver = opened()
    before = driver.instance("c")
    step = driver.send("c", Opened(10.0), id="e0")
    assert step == Step(Verdict.DUPLICATE, before)
    assert step.instance is before


def test_another_body_under_the_same_id_is_a_conflict() -> None:
    driver = opened()
    before = driver.instance("c")
    step = driver.send("c", Opened(11.0), id="e0")
    assert (step.verdict, code(step)) == (Verdict.CONFLICT, Code.CONFLICT)
    assert step.instance is before


def test_the_same_id_of_another_source_is_another_event() -> None:
    driver = opened()
    assert driver.send("c", Noted("x"), id="e0", source="/else").verdict is Verdict.APPLIED


def test_an_event_without_a_transition_is_refused() -> None:
    driver = opened()
    step = driver.send("c", Cancelled())
    assert (step.verdict, code(step)) == (Verdict.REFUSED, Code.NO_TRANSITION)


def test_a_refused_first_event_makes_no_instance() -> None:
    driver = Driver(graph())
    step = driver.send("c", Closed())
    assert (step.verdict, step.instance) == (Verdict.REFUSED, None)
    assert not driver.instances


def test_an_event_type_that_no_state_knows_is_refused_unread() -> None:
    driver = opened()
    step = driver.send("c", ("Unheard", b"\x00\x01"))
    assert (step.verdict, code(step)) == (Verdict.REFUSED, Code.NO_TRANSITION)


def test_an_already_known_fact_succeeds_without_effect() -> None:
    driver = opened()
    step = driver.send("c", Opened(99.0))
    assert (step.verdict, step.effects) == (Verdict.ALREADY, ())
    assert driver.instance("c").context == Case(10.0)
    assert driver.send("c", Opened(99.0), id="e1").verdict is Verdict.DUPLICATE


def test_a_guard_that_does_not_hold_refuses() -> None:
    driver = opened()
    step = driver.send("c", Raised(11.0))
    assert (step.verdict, code(step)) == (Verdict.REFUSED, Code.NO_TRANSITION)


def test_staying_in_a_state_sends_nothing_and_keeps_since() -> None:
    driver = opened()
    since = driver.instance("c").since_ms
    driver.pass_ms(5_000)
    step = driver.send("c", Raised(5.0))
    assert (step.verdict, step.effects) == (Verdict.APPLIED, ())
    assert driver.instance("c").since_ms == since


def test_entering_a_state_again_sends_afresh_under_another_key() -> None:
    driver = opened()
    driver.pass_ms(5_000)
    driver.send("c", Noted("again"))
    assert driver.keys() == [
        "r1:test:case:c:open:Tell:%2Ftest%1Fe0:forward",
        "r1:test:case:c:open:Tell:%2Ftest%1Fe1:forward",
    ]
    assert driver.instance("c").since_ms == driver.log[1].event.log_time_ms


@pytest.mark.parametrize(
    ("event", "policy"),
    [(Closed(), "already"), (Cancelled(), "refuse"), (Noted("x"), "record")],
)
def test_an_event_after_the_end_is_late_with_its_policy(event: Event, policy: str) -> None:
    driver = opened()
    driver.send("c", Closed())
    context = driver.instance("c").context
    step = driver.send("c", event)
    assert (step.verdict, step.effects) == (Verdict.LATE, ())
    assert step.transition == f"closed/{type(event).__name__}/{policy}"
    assert (code(step) is Code.NO_TRANSITION) == (policy == "refuse")
    assert (driver.state("c"), driver.instance("c").context) == ("closed", context)
    assert driver.send("c", event, id="e2").verdict is Verdict.DUPLICATE


def test_an_unknown_type_after_the_end_takes_the_default_policy() -> None:
    driver = opened()
    driver.send("c", Closed())
    assert driver.send("c", ("Unheard", b"")).transition == "closed/Unheard/record"


# expectations


@pytest.mark.parametrize("expected", [{"expected_state": "new"}, {"expected_version": 0}])
def test_an_expectation_that_is_not_met_is_stale(expected: dict[str, object]) -> None:
    driver = opened()
    step = driver.send("c", Noted("x"), **expected)
    assert (step.verdict, code(step)) == (Verdict.REFUSED, Code.STALE)


def test_an_expectation_that_is_met_is_applied() -> None:
    driver = Driver(graph())
    first = driver.send("c", Opened(1.0), expected_state="new", expected_version=0)
    second = driver.send("c", Noted("x"), expected_state="open", expected_version=1)
    assert [first.verdict, second.verdict] == [Verdict.APPLIED] * 2


def test_a_refused_event_may_come_again() -> None:
    driver = Driver(graph())
    driver.send("c", Noted("early"), id="n")
    driver.send("c", Opened(1.0))
    assert driver.send("c", Noted("early"), id="n").verdict is Verdict.APPLIED


# poison


@pytest.mark.parametrize("value", [b"", b"\xc3", b"\xc3\x01", b"\xc3\x01" + b"\0" * 8])
def test_a_value_that_cannot_be_read_is_poison_for_a_new_instance(value: bytes) -> None:
    driver = Driver(graph())
    step = driver.send("c", ("Opened", value))
    assert (step.verdict, step.instance) == (Verdict.POISON, None)
    assert code(step) in {Code.UNDECODABLE, Code.SCHEMA_UNKNOWN}


def test_poison_leaves_an_instance_as_it_is_and_may_come_again() -> None:
    driver = opened()
    before = driver.instance("c")
    good = driver.record("c", Noted("x")).value
    step = driver.send("c", ("Noted", good[:-1]), id="n")
    assert (step.verdict, code(step)) == (Verdict.POISON, Code.UNDECODABLE)
    assert step.instance is before
    assert driver.send("c", Noted("x"), id="n").verdict is Verdict.APPLIED


def test_an_unknown_schema_parks_an_instance_that_exists() -> None:
    driver = opened()
    step = driver.send("c", ("Noted", b"\xc3\x01" + b"\7" * 8 + b"\0"))
    assert (step.verdict, code(step)) == (Verdict.PARKED, Code.SCHEMA_UNKNOWN)
    assert driver.send("c", Noted("behind")).verdict is Verdict.PARKED


def test_an_unknown_schema_after_the_end_is_late() -> None:
    driver = opened()
    driver.send("c", Closed())
    step = driver.send("c", ("Noted", b"\xc3\x01" + b"\7" * 8 + b"\0"))
    assert step.verdict is Verdict.LATE


# time


def test_fold_time_never_falls() -> None:
    driver = opened()
    first = driver.now_ms - 1
    driver.now_ms -= 60_000
    driver.send("c", Noted("earlier"))
    assert driver.instance("c").fold_ms == first
    driver.now_ms += 600_000
    driver.send("c", Noted("later"))
    assert driver.instance("c").fold_ms == driver.now_ms - 1


def test_fold_time_never_falls_whatever_the_verdict() -> None:
    """P25: an instance that is parked, told again or ended late grows no younger either."""
    driver = opened()
    first = driver.now_ms - 1
    driver.now_ms -= 60_000
    found = [
        (driver.send("c", event).verdict, driver.instance("c").fold_ms)
        for event in (Opened(10.0), Raised(0.0), Noted("behind"))
    ]
    assert found == [(each, first) for each in (Verdict.ALREADY, Verdict.PARKED, Verdict.PARKED)]
    assert driver.redrive("c").verdict is Verdict.APPLIED
    assert driver.instance("c").fold_ms == first
    ended = opened()
    ended.send("c", Closed())
    last = ended.now_ms - 1
    ended.now_ms -= 60_000
    assert ended.send("c", Noted("late")).verdict is Verdict.LATE
    assert ended.instance("c").fold_ms == last


def test_a_third_parameter_is_the_step() -> None:
    class Ticket(Context):
        number: str = ""
        at: int = 0

    graph = StateGraph("ticket", version=1, context=Ticket, initial="a")

    def early(ctx: Ticket, event: Noted, step: StepInfo) -> bool:
        return step.time_ms > 0

    @graph.on("a", Noted, to="b", guard=early)
    def _(ctx: Ticket, event: Noted, step: StepInfo) -> Ticket:
        return Ticket(step.new_id(), step.time_ms)

    def tell(ctx: Ticket, event: object, step: StepInfo) -> Tell:
        return Tell(step.new_id())

    graph.enter("b", send=tell)
    graph.final("b", late={ANY: Late.RECORD})
    driver = Driver(graph)
    driver.send("t", Noted("x"))
    assert driver.instance("t").context.at == driver.now_ms - 1
    assert driver.instance("t").context.number.encode() not in driver.sent[0].value
    driver.check_replay()


# dedup memory


def test_the_memory_forgets_the_oldest_event_over_its_bound() -> None:
    driver = opened(dedup=3)
    for number in range(3):
        driver.send("c", Noted(str(number)))
    assert len(driver.instance("c").dedup) == 3 * 24
    assert driver.send("c", Noted("0"), id="e1").verdict is Verdict.DUPLICATE
    forgotten = driver.send("c", Opened(10.0), id="e0")
    assert forgotten.verdict is Verdict.ALREADY  # the graph is the second net


def test_an_identity_across_two_entries_of_the_memory_is_not_found() -> None:
    driver = opened()
    record = driver.instance("c")
    event = driver.record("c", Noted("x"))
    astride = replace(record, dedup=b"\1" * 8 + event.identity + b"\2" * 24)
    step = fold(driver.workflow, 1, astride, event)
    assert step.verdict is Verdict.APPLIED
    aligned = replace(record, dedup=b"\1" * 24 + event.identity + event.body)
    assert fold(driver.workflow, 1, aligned, event).verdict is Verdict.DUPLICATE


# versions


def test_an_instance_stays_on_the_version_it_began_with() -> None:
    workflow = Workflow("case", [graph(version=1), graph(version=2)])
    driver = Driver(workflow, active=1)
    driver.send("old", Opened(1.0))
    driver.active = 2
    driver.send("new", Opened(1.0))
    driver.send("old", Noted("x"))
    assert (driver.instance("old").definition, driver.instance("new").definition) == (1, 2)


def test_a_missing_version_stops_the_worker_not_the_record() -> None:
    driver = opened()
    other = Workflow("case", [graph(version=2)])
    with pytest.raises(FenceError) as fenced:
        fold(other, 2, driver.instance("c"), driver.record("c", Noted("x")))
    assert fenced.value.code is Code.DEFINITION_MISSING


# decisions


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.CONFLICT, Verdict.POISON])
def test_a_recorded_decision_is_obeyed_without_asking_code(verdict: Verdict) -> None:
    driver = opened()
    before = driver.instance("c")
    reason = Reason(Code.SUSPECT, "as it was")
    event = driver.record("c", Noted("fine"))
    step = driver.fold(event, Decision(event.offset, verdict, reason))
    assert step == Step(verdict, before, reason=reason)
    assert step.instance is before


def test_a_recorded_parking_is_obeyed_without_asking_code() -> None:
    driver = Driver(graph())
    reason = Reason(Code.SUSPECT, "killed the worker twice")
    event = driver.record("c", Opened(1.0))
    step = driver.fold(event, Decision(0, Verdict.PARKED, reason))
    assert (step.verdict, step.reason) == (Verdict.PARKED, reason)
    assert driver.state("c") == "new"
    behind = driver.record("c", Noted("x"))
    why = Reason(Code.QUEUED_BEHIND, "behind it")
    driver.fold(behind, Decision(1, Verdict.PARKED, why))
    parked = driver.instance("c").more.parked
    assert parked is not None
    assert (parked.code, parked.queue) == ("SUSPECT", (0, 1))


def test_only_a_redrive_needs_other_records() -> None:
    driver = opened()
    assert needed(driver.instance("c"), driver.record("c", Noted("x"))) == ()
    assert needed(None, driver.record("c", (REDRIVE.name, b""))) == ()


# other kinds of types


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)
    __avro_name__: ClassVar[str] = "shop.Model"
    total: int = 0

    @property
    def double(self) -> int:
        return self.total * 2


@dataclass(frozen=True, slots=True)
class Paid:
    amount: int


@pytest.mark.parametrize("amount", [5, -3])
def test_models_and_dataclasses_fold_as_structs_do(amount: int) -> None:
    shop = StateGraph("shop", version=1, context=Model, initial="open")

    @shop.on("open", Paid)
    def paid(ctx: Model, event: Paid) -> Model:
        return ctx.model_copy(update={"total": ctx.total + event.amount})

    shop.on("open", Closed, to="closed")
    shop.final("closed", late={ANY: Late.RECORD})
    driver = Driver(shop)
    driver.send("s", Paid(amount))
    driver.kill_and_recover()
    driver.send("s", Paid(amount))
    assert driver.instance("s").context == Model(total=2 * amount)
    driver.check_replay()
