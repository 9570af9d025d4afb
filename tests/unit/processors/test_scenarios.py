"""Failures that people reported on systems like this one, as far as the fold alone holds them.

Named by their ids in tests/scenarios.md.
"""

import importlib
import itertools
from dataclasses import dataclass
from typing import Final

import pytest

from refold import (
    ANY,
    Command,
    Context,
    DefinitionError,
    Event,
    Late,
    RunStatus,
    StateGraph,
    Workflow,
    replace,
)
from refold.examples.order.graph import Charged, ChargeDeclined, OrderPlaced, Reserved, order
from refold.processors.definition import compiled
from refold.processors.projection import instance_row
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


def test_b016_repeats_conflicts_and_the_same_fact_under_a_new_id() -> None:
    driver = Driver(order)
    facts = [OrderPlaced(("a",), 5), Reserved(), Charged("r")]
    for _ in range(2):
        for number, fact in enumerate(facts, 1):
            driver.send("order-2", fact, id=f"e{number}")
        driver.kill_and_recover()
    assert driver.verdicts() == [Verdict.APPLIED] * 3 + [Verdict.DUPLICATE] * 3
    changed = driver.send("order-2", Charged("other"), id="e3")
    assert changed.verdict is Verdict.CONFLICT
    assert driver.send("order-2", Reserved(), id="e9").verdict is Verdict.LATE
    for number in range(50):
        driver.send("order-2", Reserved(), id=f"noise-{number}")
    assert driver.send("order-2", Reserved(), id="e2").verdict is Verdict.DUPLICATE
    assert len(driver.sent) == 2
    driver.check_counts()
    driver.check_replay()


def test_b016_a_repeat_outside_the_memory_meets_the_graph() -> None:
    forgetful = StateGraph("order", version=1, context=Gathering, initial="new", dedup=2)
    forgetful.on("new", Forked, to="gathering")
    forgetful.on("gathering", Arrived)
    forgetful.on("gathering", Looped, to="done")
    forgetful.enter("gathering", send=lambda ctx, event: Continue(ctx.pass_))
    forgetful.final("done", late={ANY: Late.RECORD})
    driver = Driver(forgetful)
    driver.send("o", Forked(), id="first")
    for number in range(5):
        driver.send("o", Arrived(str(number)))
    late = driver.send("o", Forked(), id="first")
    assert late.verdict is Verdict.REFUSED
    assert len(driver.sent) == 1


# B041: set order and the hash seed


class Tasks(Context):
    names: tuple[str, ...] = ()


class Fork(Event):
    names: tuple[str, ...]


class Do(Command):
    name: str


def _by_set(ctx: Tasks, event: Fork) -> list[Do]:
    return [Do(name) for name in set(event.names)]


def _by_hash(ctx: Tasks, event: Fork) -> Do:
    return Do(str(hash(event.names[0]) % 12))


def _in_order(ctx: Tasks, event: Fork) -> list[Do]:
    return [Do(name) for name in sorted(set(event.names))]


def _forking(send: object) -> StateGraph[Tasks]:
    graph = StateGraph("tasks", version=1, context=Tasks, initial="new")
    graph.on("new", Fork, to="working")
    graph.command(Do, each="name")
    graph.enter("working", send=send)  # type: ignore[call-overload]
    graph.final("working", late={ANY: Late.RECORD})
    return graph


@pytest.mark.parametrize("send", [_by_set, _by_hash])
def test_b041_set_order_and_hashes_do_not_register(send: object) -> None:
    with pytest.raises(DefinitionError) as refused:
        _forking(send).build()
    assert refused.value.code is Code.IMPURE_REDUCER


def test_b041_keys_do_not_depend_on_the_order_of_commands() -> None:
    names = ("pay", "ship", "notify", "audit")
    keys = set()
    for some in itertools.permutations(names):
        driver = Driver(_forking(_in_order))
        driver.send("t", Fork(some), id="e")
        keys.add(tuple(sorted(driver.keys())))
    assert len(keys) == 1
    assert len(keys.pop()) == 4


# B043: batch boundaries


def test_b043_where_a_batch_ends_changes_nothing() -> None:
    whole = Driver(order)
    facts: list[Event] = [
        OrderPlaced(("a",), 5), Reserved(), ChargeDeclined("no"), Charged("late"), Reserved(),
    ]  # fmt: skip
    for fact in facts:
        whole.send("o", fact)
    for size in (1, 2, 500):
        cut = Driver(order)
        for number, entry in enumerate(whole.log):
            if number % size == 0:
                cut.kill_and_recover()
            assert cut.fold(entry.event) == entry.step
        assert cut.hash() == whole.hash()


def test_b043_what_comes_after_the_end_in_one_batch_meets_the_late_policy() -> None:
    for events in itertools.permutations([Charged("r"), ChargeDeclined("no")]):
        driver = Driver(order)
        for fact in (OrderPlaced(("a",), 5), Reserved(), *events):
            driver.send("o", fact)
        first = "done" if isinstance(events[0], Charged) else "failed"
        assert driver.state("o") == first
        assert driver.verdicts()[2:] == [Verdict.APPLIED, Verdict.LATE]
        driver.check_replay()


# B047: late events, cancel against complete


class Cancel(Event):
    pass


class Complete(Event):
    pass


class Job(Context):
    pass


def job() -> StateGraph[Job]:
    graph = StateGraph("job", version=1, context=Job, initial="new")
    graph.on("new", Cancel, to="cancelled")
    graph.on("new", Complete, to="done")
    graph.final("cancelled", late={Cancel: Late.ALREADY, ANY: Late.REFUSE}, status=RunStatus.FAILED)
    graph.final("done", late={Cancel: Late.REFUSE, ANY: Late.RECORD})
    return graph


@pytest.mark.parametrize(
    ("first", "state", "cancel", "complete"),
    [(Complete(), "done", "refuse", "record"), (Cancel(), "cancelled", "already", "refuse")],
)
def test_b047_the_first_in_log_order_wins_and_the_end_stands(
    first: Event, state: str, cancel: str, complete: str
) -> None:
    driver = Driver(job())
    driver.send("order-4", first)
    for event, policy in ((Cancel(), cancel), (Complete(), complete), (Cancel(), cancel)):
        step = driver.send("order-4", event)
        assert step.verdict is Verdict.LATE
        assert step.transition.endswith(f"/{policy}")
        assert (step.reason is not None) == (policy == "refuse")
        assert driver.state("order-4") == state
    driver.check_counts()
    driver.check_replay()


# B048: a join built with a context


class Forked(Event):
    pass


class Arrived(Event):
    branch: str


class Failed(Event):
    branch: str


class Looped(Event):
    pass


class Continue(Command):
    pass_: int


class Gathering(Context):
    """Branches that arrived in this pass: a sorted tuple of distinct names, never a count."""

    pass_: int = 0
    arrived: tuple[str, ...] = ()


BRANCHES: Final = ("a", "b", "c")


def join() -> StateGraph[Gathering]:
    graph = StateGraph("join", version=1, context=Gathering, initial="new")

    @graph.on(("new", "joined"), Forked, to="gathering")
    def forked(ctx: Gathering, event: Forked) -> Gathering:
        return Gathering(ctx.pass_ + 1)

    def last(ctx: Gathering, event: Arrived) -> bool:
        return tuple(sorted({*ctx.arrived, event.branch})) == BRANCHES

    def arrived(ctx: Gathering, event: Arrived) -> Gathering:
        return replace(ctx, arrived=tuple(sorted({*ctx.arrived, event.branch})))

    graph.on("gathering", Arrived, to="joined", guard=last)(arrived)
    graph.on("gathering", Arrived)(arrived)
    graph.on("gathering", Failed, to="failed")
    graph.enter("joined", send=lambda ctx, event: Continue(ctx.pass_))
    graph.already("joined", Arrived)
    graph.on("joined", Looped, to="done")
    graph.final("failed", late={ANY: Late.RECORD}, status=RunStatus.FAILED)
    graph.final("done", late={ANY: Late.RECORD})
    return graph


def test_b048_a_join_waits_for_each_branch_of_its_own_pass() -> None:
    driver = Driver(join())

    def send(event: Event, event_id: str) -> Verdict:
        verdict = driver.send("j", event, id=event_id).verdict
        driver.kill_and_recover()
        return verdict

    send(Forked(), "f1")
    assert send(Arrived("a"), "a1") is Verdict.APPLIED
    assert send(Arrived("a"), "a1") is Verdict.DUPLICATE
    assert send(Arrived("a"), "a2") is Verdict.APPLIED
    assert send(Arrived("b"), "b1") is Verdict.APPLIED
    assert (driver.state("j"), driver.sent) == ("gathering", [])
    assert send(Arrived("c"), "c1") is Verdict.APPLIED
    assert (driver.state("j"), len(driver.sent)) == ("joined", 1)
    assert send(Arrived("c"), "c2") is Verdict.ALREADY
    send(Forked(), "f2")
    assert send(Arrived("a"), "a3") is Verdict.APPLIED
    assert (driver.state("j"), len(driver.sent)) == ("gathering", 1)
    driver.check_replay()


def test_b048_a_failed_branch_ends_the_join() -> None:
    driver = Driver(join())
    for event in (Forked(), Arrived("a"), Failed("b"), Arrived("c")):
        driver.send("j", event)
    assert (driver.state("j"), driver.sent) == ("failed", [])
    assert driver.verdicts()[-1] is Verdict.LATE


# an instance without a context


@dataclass(frozen=True, slots=True)
class Needs:
    total: int


def _needing(version: int, bad: int) -> StateGraph[Needs]:
    graph = StateGraph("needs", version=version, context=Needs, initial="new")

    @graph.on("new", Arrived, to="end")
    def arrived(_: Needs, event: Arrived) -> Needs:
        return Needs(12 // (len(event.branch) - bad))

    graph.final("end", late={ANY: Late.RECORD})
    return graph


def test_an_instance_parked_by_its_first_event_is_shown_saved_and_redriven() -> None:
    driver = Driver(Workflow("needs", [_needing(1, 1), _needing(2, 0)]), active=1)
    assert driver.send("n", Arrived("x")).verdict is Verdict.PARKED
    record = driver.instance("n")
    assert record.context is None
    row = instance_row(driver.workflow.version(1), record)
    assert (row.context, row.failure_code) == (b"null", "REDUCER_RAISED")
    driver.kill_and_recover()
    driver.redrive("n", version=2)
    assert (driver.state("n"), driver.instance("n").context) == ("end", Needs(12))
    driver.check_replay()


# faults that other engines had in replay


class Tally(Context):
    total: int = 0


def _tally(version: int, worth: int) -> StateGraph[Tally]:
    graph = StateGraph("tally", version=version, context=Tally, initial="new")
    graph.on("new", Forked, to="open")

    @graph.on("open", Arrived, to="open")
    def _(ctx: Tally, event: Arrived) -> Tally:
        return Tally(ctx.total + worth)

    graph.on("open", Looped, to="done")
    graph.final("done", late={ANY: Late.RECORD})
    return graph


def test_an_upgrade_of_a_reducer_does_not_change_what_old_instances_did() -> None:
    """P14: an old instance is folded by the code it began with, whatever is active now."""
    driver = Driver([_tally(1, worth=1), _tally(2, worth=100)], active=1)
    driver.send("old", Forked())
    driver.send("old", Arrived("a"))
    driver.active = 2
    for instance, fact in (("old", Arrived("b")), ("new", Forked()), ("new", Arrived("a"))):
        driver.send(instance, fact)
    found = [
        (driver.instance(each).definition, driver.instance(each).context) for each in ("old", "new")
    ]
    assert found == [(1, Tally(2)), (2, Tally(100))]
    driver.kill_and_recover()
    assert driver.send("old", Arrived("c")).verdict is Verdict.APPLIED
    assert driver.instance("old").context == Tally(3)
    assert driver.replay().hash() == driver.hash()


def test_a_record_that_failed_is_passed_and_not_folded_again() -> None:
    """The error path moves on too: the next record queues, the failed one is not repeated."""
    graph = StateGraph("bad", version=1, context=Job, initial="new")

    @graph.on("new", Cancel, to="end")
    def _(ctx: Job, event: Cancel) -> Job:
        raise ValueError("always")

    graph.on("new", Complete, to="end")
    graph.final("end", late={ANY: Late.RECORD})
    driver = Driver(graph)
    first = driver.send("b", Cancel())
    assert first.instance is not None
    assert first.instance.last_offset == 0
    driver.kill_and_recover()
    assert driver.fold(driver.log[0].event).verdict is Verdict.DUPLICATE
    assert driver.send("b", Complete()).verdict is Verdict.PARKED


def test_two_tenants_may_use_one_instance_id() -> None:
    driver = Driver(order)
    for tenant in ("acme", "globex"):
        driver.send("order-1", OrderPlaced(("a",), 5), id="e1", tenant=tenant)
    driver.send("order-1", Reserved(), tenant="acme")
    assert driver.state("order-1", "acme") == "charging"
    assert driver.state("order-1", "globex") == "reserving"
    assert len(set(driver.keys())) == 3


def test_a_list_in_a_context_cannot_be_changed_behind_the_folds_back() -> None:
    driver = Driver(_listing())
    driver.send("l", Arrived("z"))
    step = driver.send("l", Arrived("boom"))
    assert step.verdict is Verdict.PARKED
    assert driver.instance("l").context == Listing(["z"], {"z": 1})
    driver.check_replay()


def test_a_map_in_a_context_has_one_order_live_and_after_a_reload() -> None:
    live, killed = Driver(_listing()), Driver(_listing())
    for branch in ("z", "a", "m"):
        live.send("l", Arrived(branch))
        killed.send("l", Arrived(branch))
        killed.kill_and_recover()
    assert live.send("l", Looped()) == killed.send("l", Looped())
    assert b"amz" in live.sent[0].value


class Listing(Context):
    names: list[str] = []  # noqa: RUF012  # msgspec copies an empty list for each object
    counts: dict[str, int] = {}  # noqa: RUF012


class Say(Command):
    text: str


def _listing() -> StateGraph[Listing]:
    graph = StateGraph("listing", version=1, context=Listing, initial="open")

    @graph.on("open", Arrived)
    def arrived(ctx: Listing, event: Arrived) -> Listing:
        ctx.names.append(event.branch)  # legal Python, and still only a copy
        ctx.counts[event.branch] = len(ctx.names)
        if event.branch == "boom":
            raise ValueError("after changing")
        return ctx

    graph.on("open", Looped, to="end")
    graph.enter("end", send=lambda ctx, event: Say("".join(ctx.counts)))
    graph.final("end", late={ANY: Late.RECORD})
    return graph


# the guard while it runs


def _hidden(ctx: Gathering, event: Arrived) -> Gathering:
    """Reads the clock where no static check looks: through a name made at run time."""
    clock = importlib.import_module("ti" + "me")
    return replace(ctx, pass_=int(clock.time() * 0))


def test_b042_a_hidden_clock_is_seen_while_it_runs() -> None:
    graph = join()
    graph.on("joined", Failed)(_hidden)  # type: ignore[arg-type]
    spec = graph.spec
    driver = Driver(compiled(spec), guarded=True)
    driver.send("j", Forked())
    for branch in BRANCHES:
        driver.send("j", Arrived(branch))
    with pytest.raises(DefinitionError, match="the fold of Failed reads the clock") as found:
        driver.send("j", Failed("x"))
    assert found.value.code is Code.IMPURE_REDUCER


def test_b042_the_engines_own_code_is_pure_under_the_guard() -> None:
    driver = Driver(order, guarded=True)
    for fact in (OrderPlaced(("a",), 5), Reserved(), Charged("r"), Charged("again")):
        driver.send("o", fact)
    driver.terminate("o")
    driver.check_replay()
