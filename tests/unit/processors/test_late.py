"""What comes after the end: undone, opened again, handed on; always late (B047, P24)."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from refold import (
    ANY,
    Command,
    Context,
    DefinitionError,
    Event,
    Late,
    LatePolicies,
    LatePolicy,
    Limits,
    Retry,
    RunStatus,
    StateGraph,
    failed,
    forward,
    reopen,
    replace,
)
from refold.processors.keys import compensate_key
from refold.processors.spec import Forward
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver
from refold.testing.exchanging import receive


class Placed(Event):
    amount: int


class Paid(Event):
    receipt: str


class Complained(Event):
    text: str


class Pay(Command):
    amount: int


class Refund(Command):
    amount: int


class Bill(Context):
    amount: int = 0
    receipt: str = ""
    complaints: int = 0


Graph = StateGraph[Bill]


def refund(_: Bill, pay: Pay) -> Refund:
    return Refund(pay.amount)


def complained(ctx: Bill, event: Complained) -> Bill:
    if event.text == "!":
        raise ValueError("too loud")
    return replace(ctx, complaints=ctx.complaints + 1)


def bill(late: object = Late.COMPENSATE) -> Graph:
    """A payment that may come after its time."""
    graph = StateGraph("bill", version=1, context=Bill, initial="new", tenant="acme")
    retry = Retry(attempts=2, first_s=1, jitter=0)
    graph.command(Pay, target="bank", answers=(Paid,), retry=retry, compensate=refund)
    graph.command(Refund, target="bank", retry=Retry(attempts=2, first_s=1, jitter=0))

    @graph.on("new", Placed, to="paying")
    def placed(_: Bill, event: Placed) -> Bill:
        return Bill(event.amount)

    @graph.on("paying", Paid, to="paid")
    def paid(ctx: Bill, event: Paid) -> Bill:
        return replace(ctx, receipt=event.receipt)

    graph.enter("paying", lambda ctx, _: Pay(ctx.amount))
    graph.on("paying", failed(Pay), to="expired")
    graph.after("paying", timedelta(hours=2), to="expired")
    graph.final("paid", late={Complained: reopen("paying", complained), ANY: Late.RECORD})
    named = {Paid: late, Complained: forward("desk"), ANY: Late.RECORD}
    graph.final("expired", late=named, status=RunStatus.FAILED)  # type: ignore[arg-type]
    return graph


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()
    made.check_replay()


def expired(late: object = Late.COMPENSATE) -> Driver:
    made = Driver(bill(late), tenant="acme")
    made.send("b", Placed(300))
    made.pass_time(timedelta(hours=3))
    assert made.state("b") == "expired"
    return made


def test_late_paid_after_the_time_out_triggers_the_refund_once() -> None:
    made = expired()
    pay = made.sent[0]
    step = made.done(pay, Paid("r"))
    assert step.verdict is Verdict.LATE
    assert step.transition == "expired/Paid/compensate"
    assert [(one.type, one.key) for one in made.sent[1:]] == [("Refund", compensate_key(pay.key))]
    assert codec_of(Refund).decode(made.sent[1].value) == Refund(300)
    assert made.done(pay, Paid("r")).verdict is Verdict.DUPLICATE
    made.kill_and_recover()
    again = made.send("b", Paid("another id"), answer=made.log[-1].event.answer)
    assert (again.verdict, again.effects) == (Verdict.LATE, ())
    made.done(made.sent[1])
    assert made.instance("b").more.actions == made.instance("b").more.done == ()
    assert made.state("b") == "expired"
    checked(made)


def test_a_persons_word_that_it_was_done_is_a_late_answer_like_its_event() -> None:
    made = expired()
    pay = made.sent[0]
    made.unknown(pay)
    step = made.done(pay)  # `refold ledger settle KEY --as succeeded`, without an event
    assert step.verdict is Verdict.LATE
    assert [(one.type, one.key) for one in made.sent[1:]] == [("Refund", compensate_key(pay.key))]
    made.done(made.sent[1])
    assert made.instance("b").more.actions == made.instance("b").more.done == ()
    checked(made)
    noted = expired(Late.RECORD)
    assert noted.done(noted.sent[0]).effects == ()
    checked(noted)


def test_an_answer_without_the_name_of_its_action_undoes_nothing() -> None:
    made = expired()
    assert made.send("b", Paid("whose?")).effects == ()
    assert len(made.instance("b").more.actions) == 1
    checked(made)


def test_what_the_end_itself_waited_for_is_not_undone() -> None:
    made = Driver(bill(), tenant="acme")
    made.send("b", Placed(300))
    made.done(made.sent[0], Paid("r"))
    answer = made.log[-1].event.answer
    assert made.send("b", Paid("r"), answer=answer).effects == ()
    assert len(made.sent) == 1
    checked(made)


def test_a_late_refund_that_fails_is_tried_again_and_at_last_parks() -> None:
    made = expired()
    made.done(made.sent[0], Paid("r"))
    made.failed(made.sent[1])
    made.pass_time(timedelta(seconds=2))
    assert (made.sent[2].type, made.sent[2].attempt) == ("Refund", 2)
    step = made.failed(made.sent[2])
    assert step.reason is not None
    assert step.reason.code is Code.COMPENSATION_FAILED
    checked(made)


def raising(_: Bill, __: Pay) -> Refund:
    raise ValueError("no")


def test_a_late_undoing_that_cannot_be_made_parks_with_the_answer_first_in_its_queue() -> None:
    graph = bill()
    object.__setattr__(graph.spec.commands[0], "compensate", raising)
    made = Driver(graph, tenant="acme")
    made.send("b", Placed(300))
    made.pass_time(timedelta(hours=3))
    step = made.done(made.sent[0], Paid("r"))
    assert step.verdict is Verdict.PARKED
    assert len(made.instance("b").more.actions) == 1
    checked(made)


def test_a_late_event_opens_the_instance_again_and_that_is_counted() -> None:
    made = Driver(bill(), tenant="acme")
    made.send("b", Placed(300))
    made.done(made.sent[0], Paid("r"))
    step = made.send("b", Complained("?"))
    assert step.verdict is Verdict.LATE
    assert step.transition == "paid/refold.reopen:Complained/0"
    assert [one.type for one in step.effects] == ["Pay"]
    record = made.instance("b")
    assert (record.state, record.more.reopened, record.context.complaints) == ("paying", 1, 1)
    assert [one.name for one in record.more.timers] == ["2h"]
    assert made.sent[0].key != made.sent[1].key
    made.kill_and_recover()
    made.done(made.sent[1], Paid("s"))
    made.send("b", Complained("?"))
    assert made.instance("b").more.reopened == 2
    checked(made)


def settled(late: LatePolicy) -> Driver:
    """Paid, with a policy of its own for complaints."""
    graph = bill()
    graph.on("paying", Complained, to="other")
    policies: LatePolicies = {Complained: late, ANY: Late.RECORD}
    graph.final("other", late=policies)
    made = Driver(graph, tenant="acme")
    made.send("b", Placed(300))
    made.send("b", Complained("first"))
    assert made.state("b") == "other"
    return made


def is_loud(ctx: Bill, event: Complained) -> bool:
    return len(event.text) > ctx.complaints


@pytest.mark.parametrize(
    ("otherwise", "transition"),
    [
        (Late.RECORD, "other/Complained/record"),
        (Late.REFUSE, "other/Complained/refuse"),
        (Late.ALREADY, "other/Complained/already"),
        (forward("desk"), "other/Complained/forward desk"),
    ],
)
def test_an_instance_is_opened_again_only_where_the_guard_holds(
    otherwise: Late | Forward, transition: str
) -> None:
    made = settled(reopen("paying", complained, when=is_loud, otherwise=otherwise))
    step = made.send("b", Complained(""))
    assert (step.verdict, step.transition, made.state("b")) == (
        Verdict.LATE, transition, "other",
    )  # fmt: skip
    assert [one.type for one in step.effects] == ["Complained"] * isinstance(otherwise, Forward)
    assert made.instance("b").more.reopened == 0
    step = made.send("b", Complained("louder"))
    assert (step.verdict, made.state("b")) == (Verdict.LATE, "paying")
    assert made.instance("b").more.reopened == 1
    checked(made)


def test_a_guard_of_an_opening_that_raises_parks_and_the_end_stands() -> None:
    made = settled(reopen("paying", when=lambda _, event: 1 / len(event.text) > 0))
    assert made.send("b", Complained("")).verdict is Verdict.PARKED
    assert made.state("b") == "other"
    checked(made)


def test_an_opening_whose_reducer_raises_parks_and_the_end_stands() -> None:
    made = Driver(bill(), tenant="acme")
    made.send("b", Placed(300))
    made.done(made.sent[0], Paid("r"))
    step = made.send("b", Complained("!"))
    assert (step.verdict, made.state("b")) == (Verdict.PARKED, "paid")
    checked(made)


def test_what_a_person_ended_is_not_opened_again() -> None:
    made = Driver(bill(), tenant="acme")
    made.send("b", Placed(300))
    made.terminate("b")
    assert made.send("b", Complained("?")).transition.endswith("/terminated")
    assert made.status("b") is RunStatus.TERMINATED
    checked(made)


class Case(Context):
    texts: tuple[str, ...] = ()


def desk(to: str = "closed") -> StateGraph[Case]:
    graph = StateGraph("desk", version=1, context=Case, initial="new", tenant="acme")

    @graph.on("new", Complained, to=to)
    def heard(case: Case, event: Complained) -> Case:
        return Case((*case.texts, event.text))

    graph.final(to, late={ANY: forward("bill")})
    return graph


def test_a_late_event_goes_to_another_workflow_under_a_derived_id_and_once() -> None:
    made, other = expired(), Driver(desk(), tenant="acme")
    step = made.send("b", Complained("late"), time="2026-11-30T07:00:00Z")
    assert (step.verdict, step.transition) == (Verdict.LATE, "expired/Complained/forward desk")
    (publish,) = step.effects
    assert publish.key.startswith("forward-")
    receive(other, made)
    assert (other.state("b"), other.instance("b").context) == ("closed", Case(("late",)))
    event = other.log[0].event
    assert (event.source, event.time) == ("/refold/workflow/bill", "2026-11-30T07:00:00Z")
    assert made.replay().published == made.published
    again = made.replay()
    receive(other, again)
    assert other.verdicts() == [Verdict.APPLIED, Verdict.DUPLICATE]
    checked(made)
    checked(other)


def test_what_was_handed_on_is_not_handed_on_again() -> None:
    made, other = expired(), Driver(desk(), tenant="acme")
    other.send("b", Complained("first"))
    made.send("b", Complained("late"))
    (step,) = receive(other, made)
    assert (step.verdict, step.effects) == (Verdict.LATE, ())
    checked(other)


def test_types_that_the_graph_does_not_know_are_handed_on_as_they_came() -> None:
    other = Driver(desk(), tenant="acme")
    other.send("b", Complained("first"))
    step = other.send("b", ("Strange", b"\1\2"))
    assert [(one.type, one.value) for one in step.effects] == [("Strange", b"\1\2")]
    checked(other)


MISTAKES: list[tuple[Callable[[], Graph], str]] = [
    (
        lambda: bill(reopen("paying", when=is_loud, otherwise=Late.COMPENSATE)),
        "otherwise compensate, cannot be kept",
    ),
    (lambda: bill(reopen("paying", otherwise=forward("bill"))), "hands it to this workflow"),
    (lambda: bill(forward("bill")), "hands it to this workflow"),
    (lambda: bill(forward("no name")), "Name a workflow"),
    (lambda: bill(reopen("nowhere")), "Name a state that goes on: new, paying"),
    (lambda: bill(reopen("payin")), "Did you mean paying"),
    (lambda: bill(reopen("paid")), "names no state to go on in"),
    (lambda: _any(Late.COMPENSATE), "nothing to undo"),
    (lambda: _any(reopen("paying")), "does not say for which event"),
    (lambda: _complained(Late.COMPENSATE), "nothing to undo"),
    (lambda: bill("compensat"), "Did you mean compensate"),
]


def _any(late: object) -> Graph:
    graph = bill()
    graph.on("paying", Complained, to="other")
    graph.final("other", late={ANY: late})  # type: ignore[dict-item]
    return graph


def _complained(late: object) -> Graph:
    graph = bill()
    graph.on("paying", Complained, to="other")
    graph.final("other", late={Complained: late, ANY: Late.RECORD})  # type: ignore[dict-item]
    return graph


@pytest.mark.parametrize(("make", "told"), MISTAKES)
def test_a_policy_that_cannot_hold_does_not_register(make: Callable[[], Graph], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        make().build()


def test_policies_stand_in_the_table_and_in_the_form() -> None:
    made = bill().build()
    rows = {(row.state, row.event): row.policy for row in made.rows()}
    assert rows["expired", "Paid"] == "compensate"
    assert rows["expired", "Complained"] == "forward desk"
    assert rows["paid", "Complained"] == "reopen paying"
    assert b'"reopen paying"' in made.to_json()
    graph = bill(reopen("paying", when=is_loud))
    rows = {(row.state, row.event): row.policy for row in graph.build().rows()}
    assert rows["expired", "Paid"] == "reopen paying, else record"
    assert made.fingerprint != bill(Late.RECORD).build().fingerprint


class Poked(Event):
    pass


class Rang(Command):
    pass


def test_an_end_that_a_limit_leads_to_is_not_entered_again_by_what_opens_it() -> None:
    graph = StateGraph(
        "bell", version=1, context=Case, initial="new", tenant="acme",
        limits=Limits(transitions=2, over="over"),
    )  # fmt: skip
    graph.on("new", Poked, to="over")
    graph.enter("over", lambda _, __: Rang())
    graph.final("over", late={Poked: reopen("again"), ANY: Late.RECORD})
    graph.on("again", Poked, to="over")
    made = Driver(graph, tenant="acme")
    made.send("b", Poked())
    made.send("b", Poked())
    assert made.send("b", Poked()).verdict is Verdict.APPLIED  # by the limit
    step = made.send("b", Poked())
    assert step.verdict is Verdict.PARKED
    assert step.reason is not None
    assert step.reason.code is Code.LIMIT_REACHED
    assert [send.type for send in made.sent] == ["Rang", "Rang"]
    checked(made)
