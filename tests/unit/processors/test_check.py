"""What a definition must satisfy: each mistake is named with its state and its cure."""

import random
from collections.abc import Callable

import pytest

from refold import (
    ANY,
    Command,
    Context,
    DefinitionError,
    Event,
    Late,
    Limits,
    RunStatus,
    StateGraph,
    reopen,
)
from refold.examples.order.graph import order
from refold.schemas.errors import Code


class Go(Event):
    pass


class Stop(Event):
    pass


class Unused(Event):
    pass


class Ask(Command):
    what: str
    tags: tuple[str, ...] = ()


class Tell(Command):
    what: str


class Ctx(Context):
    n: int = 0


class Needs(Context):
    n: int


Graph = StateGraph[Ctx]


def good(**given: object) -> Graph:
    settings: dict[str, object] = {"version": 1, "context": Ctx, "initial": "a"} | given
    graph: Graph = StateGraph("flow", **settings)  # type: ignore[arg-type]
    graph.on("a", Go, to="b")
    graph.on("b", Stop, to="end")
    return graph


def ended(**given: object) -> Graph:
    graph = good(**given)
    graph.final("end", late={ANY: Late.RECORD})
    return graph


def refused(graph: Graph) -> str:
    with pytest.raises(DefinitionError) as wrong:
        graph.build()
    assert wrong.value.code in {Code.DEFINITION_INVALID, Code.IMPURE_REDUCER}
    assert wrong.value.cure
    return wrong.value.what


def test_a_good_definition_builds_once() -> None:
    graph = ended()
    assert graph.build() is graph.build()


def test_the_order_example_builds() -> None:
    definition = order.build()
    assert definition.states == ("new", "reserving", "charging", "done", "failed")
    assert definition.accepts("charging") == ("Charged", "ChargeDeclined", "Reserved")


def _unreachable(graph: Graph) -> None:
    graph.on("island", Go, to="end")


def _dead_end(graph: Graph) -> None:
    graph.on("b", Go, to="pit")


def _loop_only(graph: Graph) -> None:
    graph.on("b", Go, to="pit")
    graph.on("pit", Go, to="pit")


def _two_unguarded(graph: Graph) -> None:
    graph.on("a", Go, to="end")


def _guard_after(graph: Graph) -> None:
    graph.on("a", Go, to="end", guard=lambda ctx, event: ctx.n > 0)


def _leaving_final(graph: Graph) -> None:
    graph.on("end", Go, to="a")


def _deferring_final(graph: Graph) -> None:
    graph.defer("end", Go)


def _final_twice(graph: Graph) -> None:
    graph.final("end", late={ANY: Late.REFUSE})


def _reopening(graph: Graph) -> None:
    graph.on("b", Go, to="over")
    graph.final("over", late={Go: reopen("nowhere"), ANY: Late.RECORD})


def _uncovered(graph: Graph) -> None:
    graph.on("b", Go, to="over")
    graph.final("over", late={Go: Late.RECORD})


def _both(graph: Graph) -> None:
    graph.defer("a", Go)


def _deferred_for_ever(graph: Graph) -> None:
    graph.defer("a", Unused)


def _unknown_state(graph: Graph) -> None:
    graph.enter("nowhere", send=lambda ctx, event: Ask("x"))


def _unknown_wait(graph: Graph) -> None:
    graph.waits("nowhere", RunStatus.WAITING_INPUT)


def _ended_wait(graph: Graph) -> None:
    graph.waits("b", RunStatus.COMPLETED)


def _running_final(graph: Graph) -> None:
    graph.on("b", Go, to="over")
    graph.final("over", late={ANY: Late.RECORD}, status=RunStatus.RUNNING)


def _untold_send(graph: Graph) -> None:
    graph.enter("b", send=lambda ctx, event: None)


def _double_action(graph: Graph) -> None:
    graph.enter("b", send=lambda ctx, event: Ask("x"))
    graph.enter("b", send=lambda ctx, event: Ask("y"))


def _same_action(graph: Graph) -> None:
    graph.command(Ask, action="speak")
    graph.command(Tell, action="speak")
    graph.enter("b", send=lambda ctx, event: (Ask("x"), Tell("y")))


def _many(ctx: Ctx, event: object) -> list[Ask]:
    return [Ask("x")]


def _fan_out(graph: Graph) -> None:
    graph.enter("b", send=_many)


def _bad_discriminator(graph: Graph) -> None:
    graph.command(Ask, each="tags")


def _no_discriminator(graph: Graph) -> None:
    graph.command(Ask, each="missing")


def _declared_twice(graph: Graph) -> None:
    graph.command(Ask)
    graph.command(Ask)


def _long_state(graph: Graph) -> None:
    graph.on("b", Go, to="x" * 65)


def _odd_state(graph: Graph) -> None:
    graph.on("b", Go, to="two words")


def _odd_target(graph: Graph) -> None:
    graph.command(Ask, target="a.b")


def _odd_action(graph: Graph) -> None:
    graph.command(Ask, action="a:b")


def _three_of_invariant(graph: Graph) -> None:
    graph.invariant("odd", lambda state, ctx, step: True)  # type: ignore[misc,arg-type]


def _lonely_reducer(graph: Graph) -> None:
    graph.on("b", Go, to="end")(lambda ctx: ctx)  # type: ignore[misc,arg-type]


async def _later(ctx: Ctx, event: Go) -> Ctx:
    return ctx


def _async_reducer(graph: Graph) -> None:
    graph.on("b", Go, to="end")(_later)  # type: ignore[arg-type]


def _impure(graph: Graph) -> None:
    @graph.on("b", Go, to="end")
    def _(ctx: Ctx, event: Go) -> Ctx:
        return Ctx(random.randint(1, 6))


class Twin(Event):
    __avro_name__ = "Go"


def _twins(graph: Graph) -> None:
    graph.on("b", Twin, to="end")


class Mine(Event):
    __avro_name__ = "refold.mine"


def _reserved(graph: Graph) -> None:
    graph.on("b", Mine, to="end")


class Odd(Event):
    what: object


def _schemaless(graph: Graph) -> None:
    graph.on("b", Odd, to="end")


class OddCommand(Command):
    what: object


def _schemaless_command(graph: Graph) -> None:
    graph.enter("b", send=lambda ctx, event: OddCommand("x"))


def _class_as_target(graph: Graph) -> None:
    graph.on("b", Go, to=Ctx)  # type: ignore[call-overload]


def _class_as_state(graph: Graph) -> None:
    graph.enter(Ctx, send=lambda ctx, event: Ask("x"))  # type: ignore[call-overload]


def _text_as_event(graph: Graph) -> None:
    graph.on("b", "Go", to="end")  # type: ignore[call-overload]


def _unknown_late(graph: Graph) -> None:
    graph.on("b", Go, to="over")
    graph.final("over", late={ANY: "recrod"})  # type: ignore[dict-item]


def _event_sent(graph: Graph) -> None:
    graph.enter("b", send=lambda ctx, event: Unused())


def _sends_event(ctx: Ctx, event: object) -> Unused:
    return Unused()


def _event_annotated(graph: Graph) -> None:
    graph.enter("b", send=_sends_event)


def _event_as_command(graph: Graph) -> None:
    graph.command(Unused)


MISTAKES: list[tuple[Callable[[Graph], None], str]] = [
    (_unreachable, "no way leads from 'a' to state 'island'"),
    (_dead_end, "no way leads out of state 'pit'"),
    (_loop_only, "no way leads out of state 'pit'"),
    (_two_unguarded, "Go in state 'a' has two unguarded transitions"),
    (_guard_after, "Go in state 'a' has a guard after the last resort"),
    (_leaving_final, "final state 'end' does something on Go"),
    (_deferring_final, "final state 'end' does something on Go"),
    (_final_twice, "state 'end' is declared final twice"),
    (_reopening, "final state 'over': reopen nowhere for Go names no state to go on in"),
    (_uncovered, "final state 'over' has no late policy for Stop"),
    (_both, "Go in state 'a' is both a transition and deferred"),
    (_deferred_for_ever, "state 'a' defers Unused, which no state takes"),
    (_unknown_state, "enter names state 'nowhere', which no transition has"),
    (_unknown_wait, "waits names state 'nowhere', which no transition has"),
    (_ended_wait, "state 'b' cannot wait as completed"),
    (_running_final, "final state 'over' cannot end as running"),
    (_untold_send, "which commands state 'b' sends cannot be told from its code"),
    (_double_action, "state 'b' sends action 'Ask' twice in one step"),
    (_same_action, "state 'b' sends action 'speak' twice in one step"),
    (_fan_out, "state 'b' sends action 'Ask' twice in one step"),
    (_bad_discriminator, "each='tags' of command Ask is tuple[str, ...]"),
    (_no_discriminator, "each='missing' of command Ask is not a field"),
    (_declared_twice, "command Ask is declared twice"),
    (_long_state, "is longer than 64 bytes"),
    (_odd_state, "state 'two words' does not match"),
    (_odd_target, "target 'a.b' does not match"),
    (_odd_action, "action 'a:b' does not match"),
    (_three_of_invariant, "invariant 'odd' takes 3 parameters, not 2"),
    (_lonely_reducer, "the reducer of Go in state 'b' takes 1 parameters, not 2 or 3"),
    (_async_reducer, "the reducer of Go in state 'b' is async"),
    (_impure, "random.randint"),
    (_twins, "two event types are called 'Go'"),
    (_class_as_target, "to= of Go in state 'b' is the class Ctx"),
    (_class_as_state, "the state of enter(…) is the class Ctx"),
    (_text_as_event, "'Go' in state 'b' is no event type"),
    (_unknown_late, "final state 'over': 'recrod' for ANY is no late policy"),
    (_event_sent, "state 'b' sends Unused, which is an Event"),
    (_event_annotated, "state 'b' sends Unused, which is an Event"),
    (_event_as_command, "command(Unused) names an Event"),
    (_reserved, "event type 'refold.mine' begins with 'refold.'"),
]


@pytest.mark.parametrize(("mistake", "text"), MISTAKES, ids=[m.__name__ for m, _ in MISTAKES])
def test_a_mistake_is_named(mistake: Callable[[Graph], None], text: str) -> None:
    graph = ended()
    mistake(graph)
    assert text in refused(graph)


def test_a_misspelt_state_is_named_with_the_one_that_it_looks_like() -> None:
    graph: Graph = StateGraph("flow", version=1, context=Ctx, initial="waiting")
    graph.on("waiting", Go, to="chargng")
    graph.on("charging", Stop, to="end")
    graph.final("end", late={ANY: Late.RECORD})
    with pytest.raises(DefinitionError) as wrong:
        graph.build()
    assert "look alike: is one misspelt?" in wrong.value.cure


@pytest.mark.parametrize("mistake", [_schemaless, _schemaless_command])
def test_a_type_without_a_schema_is_named(mistake: Callable[[Graph], None]) -> None:
    graph = ended()
    mistake(graph)
    with pytest.raises(DefinitionError, match="what") as wrong:
        graph.build()
    assert wrong.value.code is Code.SCHEMA_INVALID


def test_every_state_without_a_way_out_must_be_final() -> None:
    assert "no way leads out of state 'end'" in refused(good())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"version": 0}, "the version is not 1 or more"),
        ({"dedup": 0}, "dedup=0 is out of range"),
        ({"limits": Limits(visits=0)}, "limit visits=0 is not 1 or more"),
        ({"limits": Limits(over="b")}, "limit over='b' is not a final state"),
    ],
)
def test_a_setting_out_of_range_is_named(given: dict[str, object], text: str) -> None:
    assert text in refused(ended(**given))


def test_a_first_transition_must_make_a_context_that_cannot_make_itself() -> None:
    text = refused(ended(context=Needs))
    assert "Go in the initial state 'a' has no reducer" in text


def test_a_list_of_several_types_may_be_one_of_each() -> None:
    graph = ended()
    graph.enter("b", send=_one_each)
    assert [one.name for one in graph.build().commands.values()] == ["Ask", "Tell"]


def _one_each(ctx: Ctx, event: object) -> list[Ask | Tell]:
    return [Ask("x"), Tell("y")]


def test_commands_made_by_a_helper_are_found() -> None:
    graph = ended()
    graph.enter("b", send=lambda ctx, event: _made("x"))
    assert list(graph.build().commands) == [Ask]


def _made(what: str) -> Ask:
    return Ask(what)
