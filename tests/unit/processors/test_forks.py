"""Fork and join: distinct branches of one entry of a state, counted once, decided once (B048)."""

import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest

from refold import (
    ALL,
    ANY,
    Command,
    Context,
    DefinitionError,
    Event,
    Joined,
    Late,
    Limits,
    Retry,
    StateGraph,
    missed,
    replace,
    unknown,
)
from refold.processors.effects import Send
from refold.processors.instance_codec import encode
from refold.processors.keys import compensate_key
from refold.processors.projection import shown_forks
from refold.processors.spec import Everything
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


class Forked(Event):
    branches: tuple[str, ...]


class Looked(Event):
    what: str


class Missing(Event):
    pass


class Again(Event):
    pass


class Look(Command):
    branch: str


class Forget(Command):
    branch: str


class Tell(Command):
    text: str


class Search(Context):
    branches: tuple[str, ...] = ()
    seen: int = 0
    counts: tuple[int, ...] = ()


Graph = StateGraph[Search]


def forget(_: Search, look: Look) -> Forget:
    return Forget(look.branch)


def looks(ctx: Search, _: Event) -> list[Look]:
    return [Look(one) for one in ctx.branches]


def search(
    need: int | Everything = ALL,
    *,
    heavy: bool = False,
    cancel_rest: bool = False,
    otherwise: str | None = None,
    limits: Limits | None = None,
    taken: bool = True,
) -> Graph:
    """Looks everywhere at once."""
    graph = StateGraph(
        "search", version=1, context=Search, initial="new", tenant="acme", limits=limits
    )
    graph.command(
        Look,
        target="world",
        each="branch",
        answers=(Looked, Missing),
        retry=Retry(attempts=2, first_s=10, jitter=0) if heavy else None,
        compensate=forget if heavy else None,
    )
    graph.command(Forget, target="world", each="branch")

    @graph.on("new", Forked, to="looking")
    def forked(_: Search, event: Forked) -> Search:
        return Search(event.branches)

    graph.enter("looking", looks)
    if taken:

        @graph.on("looking", Looked)
        def looked(ctx: Search, _: Looked) -> Search:
            return replace(ctx, seen=ctx.seen + 1)

    @graph.join(
        "looking", Look, to="found", need=need, otherwise=otherwise, cancel_rest=cancel_rest
    )
    def found(ctx: Search, event: Joined) -> Search:
        counts = (event.asked, event.succeeded, event.failed, event.open)
        return replace(ctx, counts=counts)

    graph.enter("found", lambda ctx, _: Tell(str(ctx.seen)))
    graph.on("found", Again, to="looking")
    graph.on("found", Looked)
    graph.on(("looking", "found"), Forked, to="over")
    graph.final("over", late={ANY: Late.RECORD})
    if otherwise:
        graph.on(otherwise, Again, to="over")
    return graph


def driver(*branches: str, **given: object) -> Driver:
    made = Driver(search(**given), tenant="acme")  # type: ignore[arg-type]
    made.send("s", Forked(branches))
    return made


def checked(made: Driver) -> None:
    made.check_counts()
    made.check_replay()
    made.kill_and_recover()
    made.check_replay()


def asked(made: Driver, begin: int = 0) -> dict[str, Send]:
    """The branches' commands, by branch."""
    return {one.action.partition(".")[2]: one for one in made.sent[begin:] if one.type == "Look"}


def told(made: Driver) -> int:
    return sum(one.type == "Tell" for one in made.sent)


@pytest.mark.parametrize("heavy", [False, True])
def test_a_join_waits_for_each_branch_of_its_own_pass_b048(heavy: bool) -> None:
    made = driver("a", "b", "c", heavy=heavy)
    send = asked(made)
    made.done(send["a"], Looked("a"))
    made.kill_and_recover()
    assert made.done(send["a"], Looked("a")).verdict is Verdict.DUPLICATE
    answer = made.log[1].event.answer
    assert answer is not None
    made.send("s", Looked("a"), answer=answer, id="of another attempt")
    made.done(send["b"], Looked("b"))
    made.kill_and_recover()
    assert (made.state("s"), told(made)) == ("looking", 0)
    made.done(send["c"], Looked("c"))
    assert (made.state("s"), told(made)) == ("found", 1)
    assert made.instance("s").context.counts == (3, 3, 0, 0)
    made.kill_and_recover()
    made.send("s", Again())
    second = asked(made, 4)
    assert set(second) == {"a", "b", "c"}
    made.done(second["a"], Looked("a"))
    for old in send.values():
        made.send("s", Looked("old"), answer=replace(answer, key=old.key), id=f"old {old.key}")
    assert (made.state("s"), told(made)) == ("looking", 1)
    made.done(second["b"], Looked("b"))
    made.done(second["c"], Looked("c"))
    assert (made.state("s"), told(made)) == ("found", 2)
    checked(made)


@pytest.mark.parametrize("order", list(itertools.permutations("abcd")))
def test_so_many_of_many_fire_once_in_any_order(order: tuple[str, ...]) -> None:
    made = driver("a", "b", "c", "d", need=2)
    for number, branch in enumerate(order):
        made.done(asked(made)[branch], Looked(branch))
        assert told(made) == (number > 0)
    assert made.instance("s").context.counts == (4, 2, 0, 2)
    checked(made)


def test_the_first_is_enough_where_one_is_needed() -> None:
    made = driver("a", "b", need=1)
    made.declined(asked(made)["a"], Missing())
    assert made.state("s") == "looking"
    made.done(asked(made)["b"], Looked("b"))
    assert made.instance("s").context.counts == (2, 1, 1, 0)
    checked(made)


def test_a_branch_that_fails_ends_the_join_as_it_says() -> None:
    made = driver("a", "b", "c", otherwise="given_up")
    made.failed(asked(made)["a"], "BROKEN")
    assert made.state("s") == "given_up"
    assert made.instance("s").more.forks == ()
    checked(made)


def test_a_join_that_cannot_be_reached_parks_without_a_way_and_a_new_version_has_one() -> None:
    made = Driver([search(2), _next(search(2, otherwise="given_up"))], tenant="acme", active=1)
    made.send("s", Forked(("a", "b", "c")))
    made.declined(asked(made)["a"], Missing())
    step = made.declined(asked(made)["b"], Missing())
    assert step.reason is not None
    assert (step.reason.code, made.state("s")) == (Code.JOIN_FAILED, "looking")
    assert "joins 3 branches of Look and needs 2: 0 succeeded, 2 failed" in step.reason.text
    made.done(asked(made)["c"], Looked("c"))
    made.redrive("s")
    assert made.instance("s").more.parked is not None
    made.redrive("s", version=2)
    assert made.state("s") == "given_up"
    checked(made)


def _next(graph: Graph) -> Graph:
    graph.spec.version = 2
    return graph


def test_a_branch_with_a_retry_fails_when_no_attempt_is_left() -> None:
    made = driver("a", "b", heavy=True, otherwise="given_up")
    made.failed(asked(made)["a"])
    made.pass_time(timedelta(minutes=1))
    again = made.sent[-1]
    assert (again.key, again.attempt, made.state("s")) == (asked(made)["a"].key, 2, "looking")
    made.failed(again)
    assert made.state("s") == "given_up"
    checked(made)


def test_a_branch_of_unknown_outcome_is_still_waited_for() -> None:
    graph = search()

    @graph.on("looking", unknown(Look))
    def doubted(ctx: Search, _: Event) -> Search:
        return replace(ctx, seen=ctx.seen + 100)

    made = Driver(graph, tenant="acme")
    made.send("s", Forked(("a", "b")))
    made.unknown(asked(made)["a"])
    made.done(asked(made)["b"], Looked("b"))
    assert made.state("s") == "looking"
    made.done(asked(made)["a"], Looked("a"))
    assert (made.state("s"), made.instance("s").context.seen) == ("found", 102)
    checked(made)


def test_the_rest_is_cancelled_and_what_comes_of_it_late_is_undone_once() -> None:
    made = driver("a", "b", "c", "d", heavy=True, need=1, cancel_rest=True)
    send = asked(made)
    made.failed(send["d"])  # waits for another attempt: it certainly did nothing
    made.done(send["a"], Looked("a"))
    assert made.state("s") == "found"
    undone = [one for one in made.sent if one.type == "Forget"]
    assert [one.key for one in undone] == [compensate_key(send[one].key) for one in "bc"]
    assert made.instance("s").more.timers == ()
    made.done(send["b"], Looked("b"))
    made.done(undone[0])
    made.done(undone[1])
    more = made.instance("s").more
    assert (more.actions, [one.action for one in more.done]) == ((), ["Look.a"])
    assert sum(one.type == "Forget" for one in made.sent) == 2
    checked(made)


@pytest.mark.parametrize(("need", "state"), [(ALL, "found"), (1, "nowhere")])
def test_a_fork_without_branches_is_decided_at_once(need: int | Everything, state: str) -> None:
    made = driver(need=need, otherwise="nowhere")
    assert made.state("s") == state
    assert made.instance("s").version == 1
    checked(made)


def test_an_entry_that_forks_anew_may_be_caused_by_any_event() -> None:
    """Reopened, reached by a timer, or by another join: a fork with no branch is decided."""
    graph = search(otherwise="given_up")

    @graph.on("given_up", Looked, to="looking")
    def none(ctx: Search, _: Event) -> Search:
        return replace(ctx, branches=())

    made = Driver(graph, tenant="acme")
    made.send("s", Forked(("a",)))
    made.failed(asked(made)["a"], "NO", retry=False)
    made.send("s", Looked("x"))
    assert made.state("s") == "found"
    checked(made)


def test_answers_that_the_state_does_not_take_are_counted_all_the_same() -> None:
    made = driver("a", "b", taken=False)
    made.done(asked(made)["a"], Looked("a"))
    made.done(asked(made)["b"])
    assert made.state("s") == "found"
    checked(made)


def test_what_is_open_is_shown_and_rows_that_no_event_has_are_not() -> None:
    made = driver("a", "b", "c", need=2)
    made.done(asked(made)["a"], Looked("a"))
    made.declined(asked(made)["b"], Missing())
    (fork,) = shown_forks(made.instance("s").more)
    assert (fork.branches, fork.asked, fork.succeeded, fork.failed, fork.open) == (
        "Look",
        3,
        1,
        1,
        1,
    )
    assert made.workflow.latest.accepts("looking") == ("Looked", "Forked")


def test_leaving_the_state_forgets_its_branches() -> None:
    made = driver("a", "b")
    made.send("s", Forked(()))
    assert made.instance("s").more.forks == ()
    assert made.done(asked(made)["a"], Looked("a")).verdict is Verdict.LATE
    checked(made)


MANY = 10_000


def test_a_fan_out_of_ten_thousand_costs_eight_bytes_a_branch_and_shrinks() -> None:
    made = driver(*map(str, range(MANY)), need=MANY * 9 // 10, taken=False)
    definition, sends = made.workflow.latest, list(made.sent)

    def beside() -> int:
        """Bytes of everything but the context and the memory of events."""
        record = made.instance("s")
        return len(encode(replace(record, context=Search(), dedup=b""), definition))

    assert made.instance("s").more.actions == ()
    assert 8 * MANY < beside() < 8 * MANY + 1_000
    for number, send in enumerate(sends):
        if number == MANY // 2:
            assert 4 * MANY < beside() < 4 * MANY + 1_000
        if number % 10 == 9:
            made.declined(send, Missing())
        else:
            made.done(send, Looked("x"))
    assert made.state("s") == "found"
    assert made.instance("s").context.counts == (MANY, MANY * 9 // 10, 999, 1)
    assert beside() < 1_000


def none(_: Search, __: Event) -> list[Look]:
    return []


def first_time(ctx: Search, _: Event) -> list[Look]:
    return [Look("a")] if ctx.counts else []


def tell(ctx: Search, _: Event) -> Tell:
    return Tell(f"{len(ctx.counts)} times")


def round_and_round(send: Callable[[Search, Event], list[Look]], **limits: object) -> Graph:
    """A join that leads back to its own state."""
    graph = StateGraph("search", version=1, context=Search, initial="new", tenant="acme",
                       limits=Limits(**limits))  # type: ignore[arg-type]  # fmt: skip
    graph.command(Look, target="world", each="branch")
    graph.on("new", Forked, to="looking")
    graph.enter("looking", send)
    graph.join("looking", Look, to="looking")(lambda ctx, _: replace(ctx, counts=(1,)))
    graph.on("looking", Again, to="found")
    graph.final("found", late={ANY: Late.RECORD})
    return graph


@pytest.mark.parametrize("limits", [{}, {"transitions": None, "unchanged": None}])
def test_what_follows_from_itself_for_ever_parks_whatever_the_limits(
    limits: dict[str, object],
) -> None:
    driver = Driver(round_and_round(none, **limits), tenant="acme")
    step = driver.send("s", Forked(()))
    assert step.reason is not None
    assert (step.reason.code, driver.sent) == (Code.LIMIT_REACHED, [])
    checked(driver)


def test_a_limit_leads_where_it_says_also_from_what_follows_from_itself() -> None:
    driver = Driver(round_and_round(none, over="found"), tenant="acme")
    driver.send("s", Forked(()))
    assert driver.state("s") == "found"
    checked(driver)


def test_a_state_that_one_event_enters_twice_sends_nothing_under_one_key_twice() -> None:
    graph = round_and_round(first_time)
    driver = Driver(graph, tenant="acme")
    driver.send("s", Forked(()))
    assert [send.action for send in driver.sent] == ["Look.a"]
    graph = round_and_round(first_time)
    graph.enter("looking", tell)  # its text is another one the second time
    driver = Driver(graph, tenant="acme")
    step = driver.send("s", Forked(()))
    assert step.reason is not None
    assert (step.reason.code, driver.sent) == (Code.COMMAND_INVALID, [])
    assert "entered twice by one event" in step.reason.text
    checked(driver)


def test_branches_over_the_limit_park() -> None:
    made = Driver(search(limits=Limits(branches=3)), tenant="acme")
    step = made.send("s", Forked(("a", "b", "c", "d")))
    assert step.reason is not None
    assert (step.reason.code, step.effects) == (Code.LIMIT_REACHED, ())
    checked(made)


def test_answers_without_effect_on_the_context_are_no_standstill() -> None:
    graph = search(limits=Limits(unchanged=2), taken=False)
    graph.on("looking", Looked)
    made = Driver(graph, tenant="acme")
    made.send("s", Forked(tuple("abcdef")))
    for one in asked(made).values():
        made.done(one, Looked("x"))
    assert made.state("s") == "found"
    checked(made)


def _twice(graph: Graph) -> None:
    graph.join("looking", Look, to="found")


def _nothing(graph: Graph) -> None:
    graph.join("found", Look, to="over")


def _none(graph: Graph) -> None:
    object.__setattr__(graph.spec.joins[0], "need", 0)


def _cancels(graph: Graph) -> None:
    object.__setattr__(graph.spec.joins[0], "cancel_rest", True)


def _deferred(graph: Graph) -> None:
    graph.defer("looking", Missing)
    graph.on("found", Missing)


def _unjoined(graph: Graph) -> None:
    graph.on("found", missed(Look), to="over")


def _branchless(graph: Graph) -> None:
    graph.spec.limits = Limits(branches=0)


MISTAKES: list[tuple[Callable[[Graph], None], str]] = [
    (_twice, "two unguarded transitions"),
    (_nothing, "has no branches"),
    (_none, "needs 0"),
    (_cancels, "cancels the rest, which cannot be undone"),
    (_deferred, "counts Missing, which is deferred"),
    (_unjoined, r"missed\(Look\) in state 'found' is about no join"),
    (_branchless, "limit branches=0"),
]


@pytest.mark.parametrize(("spoil", "told"), MISTAKES)
def test_a_join_that_cannot_hold_does_not_register(
    spoil: Callable[[Graph], None], told: str
) -> None:
    graph = search()
    spoil(graph)
    with pytest.raises(DefinitionError, match=told):
        graph.build()


def test_a_join_is_part_of_form_and_fingerprint() -> None:
    made = search(2).build()
    assert b'"joins":[{"cancel_rest":false,"command":"Look","need":2' in made.to_json()
    assert made.fingerprint != search(3).build().fingerprint
    assert ("looking", "refold.joined:Look") in {(row.state, row.event) for row in made.rows()}
