"""What becomes of a parent whose child is parked, refuses or has ended: it never waits for ever."""

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
    cancel,
    checked,
    one_parcel,
    order,
    packs,
    pair,
    parcel,
    strange,
)

from refold import ANY, Late, RunStatus, StateGraph, succeeded
from refold.processors.effects import Publish
from refold.processors.engine_events import TERMINATE, Terminate
from refold.processors.spec import Rule
from refold.schemas.envelope import Parent
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver
from refold.testing.exchanging import exchange


def test_a_cancel_that_the_child_refuses_parks_its_parent() -> None:
    top, low = pair("p1", cancel=strange)
    top.send("o", Cancelled())
    exchange(top, low)
    assert low.verdicts()[-1] is Verdict.REFUSED
    parked = top.instance("o").more.parked
    assert parked is not None
    assert parked.code == Code.COMPENSATION_FAILED
    packs(low, "p1")
    assert [one.answer.outcome for _, one in low.published if one.answer] == ["failed", "succeeded"]
    checked(top, low)


def test_a_child_that_ended_is_not_begun_again_by_a_redrive_of_its_parent() -> None:
    graph = StateGraph("order", version=1, context=Order, initial="new", tenant="acme")
    graph.child("parcel", ParcelOrdered, answers=(Delivered,), cancel=cancel)
    graph.on("new", Placed, to="sending")
    graph.enter("sending", one_parcel)
    graph.on("sending", Delivered, to="done")
    graph.final("done", late={ANY: Late.RECORD})
    top, low = Driver(graph, tenant="acme"), Driver(parcel(), tenant="acme")
    top.send("o", Placed(()))
    exchange(top, low)
    low.send("only", Lost())
    exchange(top, low)
    top.redrive("o")
    assert (top.status("o"), top.sent) == (RunStatus.PARKED, [])
    checked(top, low)


def test_a_start_that_was_refused_is_asked_again_by_a_redrive() -> None:
    lacking = StateGraph("parcel", version=1, context=Parcel, initial="new", tenant="acme")
    lacking.on("new", Lost, to="lost")
    lacking.final("lost", late={ANY: Late.RECORD})
    mended = parcel()
    mended.spec.version = 2
    graph = order()
    graph.spec.joins.clear()
    graph.spec.rules = [rule for rule in graph.spec.rules if not of_a_join(rule)]
    graph.on("sending", succeeded("parcel"), to="done")
    top, low = Driver(graph, tenant="acme"), Driver([lacking, mended], tenant="acme", active=1)
    top.send("o", Placed(("p1",)))
    exchange(top, low)
    for _ in range(2):  # a refusal that comes again is another event than the first
        top.redrive("o")
        exchange(top, low)
        assert top.status("o") is RunStatus.PARKED
    low.active = 2
    top.redrive("o")
    exchange(top, low)
    assert (top.state("o"), low.state("p1"), top.sent) == ("sending", "packing", [])
    packs(low, "p1")
    exchange(top, low)
    assert top.instance("o").more.actions == ()
    checked(top, low)


def of_a_join(rule: Rule) -> bool:
    return rule.event.__name__ in ("joined(parcel)", "missed(parcel)")


def test_an_undoing_that_a_child_refused_is_asked_again_as_its_parent_would_say_it_now() -> None:
    graph = order(cancel=strange)
    mended = order()
    mended.spec.version = 2
    top = Driver([graph, mended], tenant="acme", active=1)
    low = Driver(parcel(), tenant="acme")
    top.send("o", Placed(("p1",)))
    top.send("o", Cancelled())
    exchange(top, low)
    top.redrive("o")
    exchange(top, low)
    assert top.status("o") is RunStatus.PARKED
    top.redrive("o", version=2)
    exchange(top, low)
    assert (low.state("p1"), top.sent) == ("unpacking", [])
    low.done(low.sent[-1])
    exchange(top, low)
    assert (top.state("o"), top.instance("o").more.actions) == ("undone", ())
    checked(top, low)


def test_an_undoing_is_asked_again_also_of_a_child_that_has_answered_meanwhile() -> None:
    top, low = pair("p1")
    top.send("o", Cancelled())
    packs(low, "p1")  # it completes before it hears of it
    exchange(top, low)
    assert top.status("o") is RunStatus.PARKED
    assert [one.type for one in top.instance("o").more.done] == ["child:parcel"]
    before = len(low.log)
    top.redrive("o")
    exchange(top, low)
    assert [entry.event.type for entry in low.log[before:]] == ["ParcelCancelled"]
    assert top.status("o") is RunStatus.PARKED
    checked(top, low)


@pytest.mark.parametrize("first", ["the start", "the cancel"])
def test_an_undoing_that_waits_behind_a_parked_record_is_answered_when_the_child_is_ended(
    first: str,
) -> None:
    graph = parcel()
    graph.on("packing", ParcelCancelled, to="unpacking", guard=cannot_tell)
    rules = graph.spec.rules
    rules.insert(0, rules.pop())
    rules.remove(next(one for one in rules[1:] if one.event is ParcelCancelled))
    name = "broken" if first == "the start" else "p1"
    top, low = Driver(order(), tenant="acme"), Driver(graph, tenant="acme")
    top.send("o", Placed((name,)))
    exchange(top, low)
    top.send("o", Cancelled())
    exchange(top, low)
    assert low.instance(name).more.parked is not None
    assert top.state("o") == "undoing"
    low.terminate(name)
    exchange(top, low)
    assert (top.state("o"), top.instance("o").more.actions) == ("undone", ())
    checked(top, low)


def cannot_tell(_: Parcel, __: ParcelCancelled) -> bool:
    raise ValueError("cannot tell")


def test_what_is_refused_when_it_is_released_is_answered_once() -> None:
    graph, lacking = parcel(), parcel()
    lacking.spec.version = 2
    lacking.spec.rules[0].reducer = lambda _, event: Parcel(event.article)
    cancels = next(one for one in lacking.spec.rules if one.event is ParcelCancelled)
    lacking.spec.rules.remove(cancels)
    lacking.on("packing", Cancelled, to="unpacking")
    top = Driver(order(), tenant="acme")
    low = Driver([graph, lacking], tenant="acme", active=1)
    top.send("o", Placed(("broken",)))
    exchange(top, low)
    top.send("o", Cancelled())
    exchange(top, low)
    low.redrive("broken", version=2)
    exchange(top, low)
    parked = top.instance("o").more.parked
    assert parked is not None
    assert parked.code == Code.COMPENSATION_FAILED
    packs(low, "broken")
    answers = [(one.answer.key[-4:], one.answer.outcome) for _, one in low.published if one.answer]
    assert answers == [("sate", "failed"), ("ward", "succeeded")]
    checked(top, low)


def test_an_act_in_a_parents_name_is_decided_alike_by_a_fold_and_by_its_replay() -> None:
    low = Driver(parcel(), tenant="acme")
    parent = Parent("order", "o", "r1:acme:order:o:sending:parcel.p1:e:forward")
    for fact in ((TERMINATE.name, TERMINATE.encode(Terminate("no", "me"))), (TERMINATE.name, b"")):
        step = low.send("p1", fact, parent=parent)
        (told,) = step.effects
        assert isinstance(told, Publish)
        assert told.type == "refold.failed"
    checked(low)


@pytest.mark.parametrize("wanted", [Pack("x"), Terminate("no", "me")])
def test_a_cancel_that_is_no_event_of_the_childs_parks(wanted: object) -> None:
    top, low = pair("p1", cancel=lambda _, __: wanted)
    step = top.send("o", Cancelled())
    assert step.reason is not None
    assert step.reason.code is Code.COMMAND_INVALID
    checked(top, low)


def test_others_that_mean_a_parked_child_are_answered_at_once() -> None:
    top, low = pair("broken")
    top.send("other", Placed(("broken",)))
    exchange(top, low)
    assert top.state("other") == "undone"
    assert len(low.instance("broken").more.parked.queue) == 1  # type: ignore[union-attr]
    checked(top, low)
