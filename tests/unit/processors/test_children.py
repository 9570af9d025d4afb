"""Sub-workflows: started once, answered once; cancel goes down, failure comes up."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.unit.processors.parcels import (
    Cancelled,
    Delivered,
    Lost,
    Order,
    Pack,
    Parcel,
    ParcelCancelled,
    ParcelOrdered,
    Placed,
    checked,
    one_parcel,
    order,
    packs,
    pair,
    parcel,
    strange,
)

from refold import (
    ANY,
    DefinitionError,
    Event,
    Late,
    Limits,
    RunStatus,
    Start,
    StateGraph,
    failed,
    reopen,
    start,
    succeeded,
)
from refold.processors.effects import Publish
from refold.processors.fold import obey
from refold.processors.instance_codec import encode
from refold.processors.keys import compensate_key
from refold.schemas.errors import Code
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.testing.driver import Driver
from refold.testing.exchanging import exchange, receive


def test_a_child_is_started_once_and_answers_once_with_an_event_of_its_own() -> None:
    top, low = pair("p1", "p2")
    assert [one.action for one in top.instance("o").more.actions] == ["parcel.p1", "parcel.p2"]
    assert low.instance("p1").context.article == "article p1"
    parent = low.instance("p1").more.parent
    assert parent is not None
    assert (parent.workflow, parent.instance) == ("order", "o")
    packs(low, "p1")
    low.kill_and_recover()
    exchange(top, low)
    assert low.instance("p1").more.owed == ()
    assert (top.state("o"), top.instance("o").context.weight) == ("sending", 5)
    packs(low, "p2")
    exchange(top, low)
    assert (top.state("o"), top.instance("o").context.weight) == ("done", 10)
    assert top.log[-1].event.source == "/refold/workflow/parcel"
    checked(top, low)


def test_what_is_published_again_by_a_fold_that_is_made_again_is_a_duplicate() -> None:
    top, low = pair("p1")
    packs(low, "p1")
    exchange(top, low)
    receive(low, again := top.replay())
    receive(top, low.replay())
    assert again.published == top.published
    assert low.verdicts()[-1] is top.verdicts()[-1] is Verdict.DUPLICATE
    checked(top, low)


def test_a_second_start_by_the_same_action_is_a_duplicate_also_when_it_is_forgotten() -> None:
    top, low = pair("p1")
    (_, publish), *_ = top.published
    event = low.log[0].event
    forgotten = low.send(
        "p1", (event.type, event.value), source=event.source, id="x", parent=publish.parent
    )
    assert (forgotten.verdict, forgotten.effects) == (Verdict.DUPLICATE, ())
    checked(low)


def test_a_second_start_by_another_action_is_refused_and_answered_as_failed() -> None:
    top, low = pair("p1")
    top.send("other", Placed(("p1", "p2")))
    receive(low, top)
    assert low.log[1].step.verdict is Verdict.REFUSED
    assert low.log[1].step.reason is not None
    assert low.log[1].step.reason.code is Code.CHILD_EXISTS
    exchange(top, low)
    assert top.state("other") == "undoing"  # what else it had started is cancelled
    low.done(low.sent[-1])
    exchange(top, low)
    assert top.state("other") == "undone"
    assert (top.state("o"), low.state("p1"), low.state("p2")) == (
        "sending",
        "packing",
        "given_back",
    )
    checked(top, low)


def test_an_instance_that_began_by_itself_is_nobodys_child() -> None:
    top, low = Driver(order(), tenant="acme"), Driver(parcel(), tenant="acme")
    low.send("p1", ParcelOrdered("mine"))
    top.send("o", Placed(("p1",)))
    exchange(top, low)
    assert (top.state("o"), low.state("p1")) == ("undone", "packing")
    packs(low, "p1")
    assert not [one for _, one in low.published if one.answer and one.answer.key.endswith("ss")]
    checked(top, low)


@pytest.mark.parametrize("how", ["lost", "terminated"])
def test_a_child_that_fails_is_a_failed_action_of_its_parent(how: str) -> None:
    top, low = pair("p1", "p2")
    if how == "lost":
        low.send("p1", Lost())
    else:
        low.terminate("p1")
    exchange(top, low)
    assert low.instance("p1").more.owed == ()
    assert (low.state("p2"), top.state("o")) == ("unpacking", "undoing")
    low.done(low.sent[-1])
    exchange(top, low)
    assert (low.state("p2"), top.state("o")) == ("given_back", "undone")
    assert top.instance("o").more.actions == ()
    checked(top, low)


def test_without_a_way_for_a_failed_child_the_parent_parks_and_says_why() -> None:
    graph = StateGraph("order", version=1, context=Order, initial="new", tenant="acme")
    graph.child("parcel", ParcelOrdered)
    graph.on("new", Placed, to="sending")
    graph.enter("sending", one_parcel)
    graph.on("sending", succeeded("parcel"), to="done")
    graph.final("done", late={ANY: Late.RECORD})
    top, low = Driver(graph, tenant="acme"), Driver(parcel(), tenant="acme")
    top.send("o", Placed(()))
    exchange(top, low)
    low.send("only", Lost())
    exchange(top, low)
    parked = top.instance("o").more.parked
    assert parked is not None
    assert "CHILD_FAILED parcel 'only' ended in state 'lost' as failed" in parked.text
    checked(top, low)


def test_a_start_that_the_child_refuses_or_cannot_read_is_answered_as_failed() -> None:
    low = Driver(parcel(), tenant="acme")
    top, _ = pair("p1")
    (_, begun), *_ = top.published
    given = {"source": "/refold/workflow/order", "parent": begun.parent}
    for number, fact in enumerate([("Strange", b"x"), ("ParcelOrdered", b"damaged")]):
        step = low.send(f"q{number}", fact, **given)
        (told,) = step.effects
        assert isinstance(told, Publish)
        assert (told.type, told.instance, step.instance) == ("refold.failed", "o", None)
    checked(low)


def test_a_start_on_a_wrong_partition_is_refused_without_an_answer_also_by_decision() -> None:
    top, low = pair("p1")
    (_, begun), *_ = top.published
    event = low.record(
        "q", (begun.type, begun.value), source="/refold/workflow/order", parent=begun.parent
    )
    for code, count in ((Code.WRONG_PARTITION, 0), (Code.NO_TRANSITION, 1)):
        decision = Decision(event.offset, Verdict.REFUSED, Reason(code, "as decided"))
        assert len(obey(low.workflow, 1, None, event, decision).effects) == count


def test_a_child_that_parks_answers_when_it_is_redriven_to_its_end() -> None:
    top, low = pair("broken")
    assert low.instance("broken").more.parked is not None
    fixed = parcel()
    fixed.spec.version = 2
    fixed.spec.rules[0].reducer = lambda _, event: Parcel(event.article)
    repaired = Driver([parcel(), fixed], tenant="acme", active=1)
    for entry in low.log:
        repaired.fold(entry.event)
    repaired.redrive("broken", version=2)
    assert repaired.state("broken") == "packing"
    packs(repaired, "broken")
    receive(top, repaired)
    assert top.state("o") == "done"
    checked(top, repaired)


def test_undoing_goes_down_and_its_end_comes_up() -> None:
    top, low = pair("p1")
    top.send("o", Cancelled())
    exchange(top, low)
    assert (top.state("o"), top.status("o"), low.state("p1")) == (
        "undoing", RunStatus.COMPENSATING, "unpacking",
    )  # fmt: skip
    key = top.instance("o").more.actions[0].key
    assert low.instance("p1").more.owed == (key, compensate_key(key))
    low.kill_and_recover()
    low.done(low.sent[-1])
    exchange(top, low)
    assert (top.state("o"), low.state("p1")) == ("undone", "given_back")
    answers = [one.answer for _, one in low.published if one.answer]
    assert [(one.key, str(one.outcome)) for one in answers] == [
        (key, "failed"), (compensate_key(key), "succeeded"),
    ]  # fmt: skip
    checked(top, low)


def test_a_child_that_was_completed_opens_again_to_undo_or_its_parent_is_told() -> None:
    for late, state in ((reopen("unpacking"), "undone"), (Late.RECORD, "undoing")):
        top, low = pair("p1", "p2", late=late)
        packs(low, "p1")
        exchange(top, low)
        top.send("o", Cancelled())
        exchange(top, low)
        for _ in range(2):
            low.done(low.sent[-1])
            exchange(top, low)
        assert top.state("o") == state
        parked = top.instance("o").more.parked
        if parked is not None:
            assert parked.code == Code.COMPENSATION_FAILED
            assert "CHILD_COMPLETED" in parked.text
        assert (parked is None) == (state == "undone")
        checked(top, low)


def raising(_: Order, __: ParcelOrdered) -> ParcelCancelled:
    raise ValueError("no")


@pytest.mark.parametrize("how", ["expired", "terminated"])
def test_children_do_not_outlive_the_end_of_their_parent(how: str) -> None:
    top, low = pair("p1")
    if how == "expired":
        top.pass_time(timedelta(days=10))
    else:
        top.terminate("o")
    exchange(top, low)
    assert low.state("p1") == "unpacking"
    low.done(low.sent[-1])
    exchange(top, low)
    assert low.state("p1") == "given_back"
    assert top.instance("o").more.actions == ()
    checked(top, low)


def test_children_without_a_cancel_go_their_own_way() -> None:
    top, low = pair("p1", cancel=None)
    top.send("o", Cancelled())
    exchange(top, low)
    assert (top.state("o"), low.state("p1")) == ("undone", "packing")
    packs(low, "p1")
    exchange(top, low)
    assert top.verdicts()[-1] is Verdict.LATE
    checked(top, low)


def test_a_person_ends_a_parent_also_where_its_cancel_raises() -> None:
    top, low = pair("p1", cancel=raising)
    step = top.terminate("o")
    assert (step.verdict, step.effects) == (Verdict.APPLIED, ())
    assert step.reason is not None
    assert step.reason.code is Code.REDUCER_RAISED
    assert "parcel 'parcel.p1' was not asked to undo" in step.reason.text
    assert len(top.instance("o").more.actions) == 1
    checked(top, low)


def test_an_answer_that_cannot_be_made_parks_the_child_and_its_end_did_not_come() -> None:
    top, low = pair("p1")
    packs(low, "p1", 13)
    assert low.state("p1") == "packing"
    parked = low.instance("p1").more.parked
    assert parked is not None
    assert "the answer of final state 'delivered': ValueError: thirteen" in parked.text
    assert low.published == []
    checked(top, low)


def test_many_children_without_a_cancel_are_branches_of_eight_bytes() -> None:
    names = [f"p{number}" for number in range(200)]
    top, low = pair(*names, cancel=None)
    assert top.instance("o").more.actions == ()
    size = len(encode(top.instance("o"), top.workflow.latest))
    for name in names:
        packs(low, name, 1)
    exchange(top, low)
    assert (top.state("o"), top.instance("o").context.weight) == ("done", 200)
    assert size < 200 * (8 + 5) + 600
    checked(top, low)


def test_b043_where_a_batch_ends_changes_nothing_between_workflows() -> None:
    top, low = pair("p1", "p2", late=reopen("unpacking"))
    packs(low, "p1")
    exchange(top, low)
    top.send("o", Cancelled())
    exchange(top, low)
    for _ in range(2):
        low.done(low.sent[-1])
        exchange(top, low)
    assert top.state("o") == "undone"
    for whole in (top, low):
        for size in (1, 2, 500):
            cut = Driver(whole.workflow, tenant="acme")
            for number, entry in enumerate(whole.log):
                if number % size == 0:
                    cut.kill_and_recover()
                assert cut.fold(entry.event) == entry.step
            assert (cut.hash(), cut.published) == (whole.hash(), whole.published)


def not_declared(ctx: Order, _: Event) -> Start:
    return start("other", "x", ParcelOrdered("x"))


def wrong_event(ctx: Order, _: Event) -> Start:
    return start("parcel", "x", Cancelled())


def wrong_id(ctx: Order, _: Event) -> Start:
    return start("parcel", "a\nb", ParcelOrdered("x"))


def too_long(ctx: Order, _: Event) -> Start:
    return start("parcel", "x", ParcelOrdered("x" * 300))


def twice(ctx: Order, _: Event) -> list[Start]:
    return [start("parcel", "x", ParcelOrdered("x")), start("parcel", "x", ParcelOrdered("y"))]


@pytest.mark.parametrize(
    ("send", "told"),
    [
        (not_declared, "starts an instance of 'other'; declare it with child"),
        (wrong_event, "with Cancelled, its child"),
        (wrong_id, "has control characters"),
        (too_long, "the definition allows 256"),
        (twice, "starts 'x' of 'parcel' twice in one step"),
    ],
)
def test_a_start_that_cannot_be_parks(send: Callable[..., object], told: str) -> None:
    graph = order()
    graph.spec.limits = Limits(command_bytes=256)
    object.__setattr__(graph.spec.entries[0], "send", send)
    made = Driver(graph, tenant="acme")
    step = made.send("o", Placed(()))
    assert step.verdict is Verdict.PARKED
    assert step.reason is not None
    assert told in step.reason.text
    checked(made)


def small(
    *children: str, send: Callable[..., object] = one_parcel, **given: object
) -> StateGraph[Order]:
    graph = StateGraph("order", version=1, context=Order, initial="new", tenant="acme")
    for one in children:
        graph.child(one, ParcelOrdered, **given)  # type: ignore[arg-type]
    graph.on("new", Placed, to="sending")
    graph.enter("sending", send)
    graph.on("sending", Cancelled, to="done")
    graph.final("done", late={ANY: Late.RECORD})
    return graph


def _unknown() -> StateGraph[Order]:
    graph = small("parcel")
    graph.on("sending", failed("parsel"), to="done")
    return graph


def _two_parameters() -> StateGraph[Order]:
    graph = small("parcel")
    graph.on("sending", failed("parcel"), to="gone")
    graph.final("gone", late={ANY: Late.RECORD}, answer=lambda ctx, event: event)  # type: ignore[arg-type,misc]
    return graph


def nothing(ctx: Order, _: Event) -> Pack:
    return Pack("")


MISTAKES: list[tuple[Callable[[], StateGraph[Order]], str]] = [
    (small, "starts a child that is not declared"),
    (lambda: small("parcel", send=nothing), "no state starts child 'parcel'"),
    (_unknown, r"failed\(parsel\) is about a command that no state sends"),
    (lambda: small("parcel", "parcel"), "declared twice"),
    (lambda: small("no name"), "child 'no name'"),
    (lambda: small("parcel", answers=(Delivered,)), "does not take its answer Delivered"),
    (lambda: small("parcel", answers=(failed("parcel"),)), "is no event type"),
    (lambda: small("parcel", cancel=len), "cancel of child 'parcel' takes 1 parameters"),
    (_two_parameters, "the answer of final state 'gone' takes 2 parameters"),
]


@pytest.mark.parametrize(("make", "told"), MISTAKES)
def test_a_child_that_cannot_hold_does_not_register(
    make: Callable[[], StateGraph[Order]], told: str
) -> None:
    with pytest.raises(DefinitionError, match=told):
        make().build()


def test_children_and_answers_are_part_of_form_and_fingerprint() -> None:
    made, other = order().build(), order(cancel=strange).build()
    assert b'"children":[{"answers":["Delivered"],"cancel":"cancel"' in made.to_json()
    assert made.fingerprint != other.fingerprint
    assert b'"answers":[{"answer":"arrived","state":"delivered"}]' in parcel().build().to_json()
