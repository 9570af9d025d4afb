"""What an author may say by mistake about actions, timers, forks, children and ends: each is told
with its cure when the graph is built, and none waits until an event comes."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from refold import (
    ANY,
    Command,
    Context,
    DefinitionError,
    Event,
    Late,
    Limits,
    Retry,
    Start,
    StateGraph,
    failed,
    forward,
    missed,
    start,
)
from refold.schemas.errors import Code


class Begun(Event):
    pass


class Done(Event):
    pass


class Other(Event):
    pass


class Do(Command):
    n: int = 0


class Undo(Command):
    n: int = 0


class Ctx(Context):
    n: int = 0


Graph = Any
"""Untyped here: what a type checker would tell is said on purpose."""


def do(_: Ctx, __: Event) -> Do:
    return Do(1)


def several(_: Ctx, __: Event) -> list[Do]:
    return [Do(1)]


def begin(_: Ctx, __: Event) -> Start:
    return start("child", "c", Begun())


def undo(_: Ctx, __: Do) -> Undo:
    return Undo(1)


def undo_twice(_: Ctx, __: Do) -> list[Undo]:
    return [Undo(1), Undo(2)]


def undo_by_event(_: Ctx, __: Do) -> Other:
    return Other()


def cancel_by_command(_: Ctx, __: Begun) -> Do:
    return Do()


def graph(**given: Any) -> Graph:
    settings: dict[str, Any] = {"version": 1, "context": Ctx, "initial": "new"} | given
    made: Graph = StateGraph("flow", **settings)
    made.on("new", Begun, to="doing")
    made.on("doing", Done, to="end")
    made.final("end", late={ANY: Late.RECORD})
    return made


def acting(**given: Any) -> Callable[[Graph], None]:
    def declare(made: Graph) -> None:
        made.command(Do, **given)
        made.enter("doing", do)

    return declare


def undoing(*more: Callable[[Graph], None]) -> Callable[[Graph], None]:
    def declare(made: Graph) -> None:
        acting(compensate=undo)(made)
        made.on("doing", Other, to="undoing")
        made.undo("undoing", to="end")
        for one in more:
            one(made)

    return declare


def joining(**given: Any) -> Callable[[Graph], None]:
    def declare(made: Graph) -> None:
        made.command(Do, each="n")
        made.enter("doing", several)
        made.join("doing", Do, **given)

    return declare


def parent(**given: Any) -> Callable[[Graph], None]:
    def declare(made: Graph) -> None:
        made.child(**({"workflow": "child", "event": Begun} | given))
        made.enter("doing", begin)

    return declare


def ending(late: Any) -> Callable[[Graph], None]:
    def declare(made: Graph) -> None:
        made.on("doing", Other, to="over")
        made.final("over", late=late)

    return declare


RETRIES: dict[str, Any] = {
    "text": Retry(attempts="5"),  # type: ignore[arg-type]
    "none": Retry(attempts=None),  # type: ignore[arg-type]
    "half": Retry(attempts=1.5),  # type: ignore[arg-type]
    "endless": Retry(first_s=float("inf")),
    "longer than a life": Retry(first_s=1e300, most_s=1e300),
    "growing without end": Retry(first_s=0, factor=float("inf")),
    "below zero": Retry(elapsed_s=-1),
    "no number": Retry(elapsed_s=float("nan")),
    "a timedelta": Retry(first_s=timedelta(1)),  # type: ignore[arg-type]
    "one text": Retry(never="BUSY"),  # type: ignore[arg-type]
    "codes that are no texts": Retry(never=(5,)),  # type: ignore[arg-type]
    "a number": 5,
    "the class": Retry,
}


@pytest.mark.parametrize("retry", RETRIES.values(), ids=RETRIES.keys())
def test_a_retry_out_of_range_is_told(retry: Any) -> None:
    made = graph()
    acting(retry=retry)(made)
    assert "the retry of Do is out of range" in refused(made)


DURATIONS: dict[str, Any] = {
    "seconds": 5,
    "text": "2h",
    "nothing": None,
    "an instant": datetime(2030, 1, 1),
    "zero": timedelta(0),
    "backwards": timedelta(seconds=-1),
    "a microsecond": timedelta(microseconds=1),
    "200 years": timedelta(days=200 * 366),
    "for ever": timedelta.max,
}


@pytest.mark.parametrize("duration", DURATIONS.values(), ids=DURATIONS.keys())
def test_a_duration_that_is_none_is_told(duration: Any) -> None:
    made = graph()
    made.after("doing", duration, to="end", name="slow")
    assert "timer 'slow' of state 'doing' lasts" in refused(made)


MISTAKES: list[tuple[str, Callable[[Graph], object], str]] = [
    ("a timer's name is a number",
     lambda made: made.after("doing", timedelta(1), to="end", name=5), "timer 5 is no text"),
    ("a timer's name is a list",
     lambda made: made.after("doing", timedelta(1), to="end", name=["x"]), "is no text"),
    ("an answer is a command", acting(answers=(Undo,)), "is no event type"),
    ("an answer is an object", acting(answers=(Done(),)), "is no event type"),
    ("a lone answer is not taken", acting(answers=Other), "does not take its answer Other"),
    ("a target is a number", acting(target=5), "target 5 is no text"),
    ("several undo one", acting(compensate=undo_twice), "returns several commands"),
    ("an event undoes", acting(compensate=undo_by_event), "Other undoes Do and is an Event"),
    ("a pivot is misspelt", undoing(lambda made: made.pivot("donig")),
     "pivot names state 'donig', which no transition has"),
    ("a pivot is a class", undoing(lambda made: made.pivot(Done)), "a state of pivot(…) is the"),
    ("what undoes is a pivot", undoing(lambda made: made.pivot("undoing")),
     "undoes and is a pivot"),
    ("what leads to an undoing is a number",
     lambda made: (acting(compensate=undo)(made), made.undo("undoing", to="end", when=5)),
     "is no event type"),
    ("a join leads nowhere", joining(to=None), "leads nowhere"),
    ("a child's name is a number", parent(workflow=5), "child 5 is no text"),
    ("a child begins with a command", parent(event=Do), "which is a Command"),
    ("a lone answer of a child is not taken", parent(answers=Other), "does not take its answer"),
    ("a child is cancelled by a command", parent(cancel=cancel_by_command), "gives Do, which is"),
    ("late= is missing", ending(None), "has late=None"),
    ("late= is a list", ending([ANY]), "has late="),
    ("a late event is a text", ending({"Done": Late.REFUSE, ANY: Late.RECORD}), "no event type"),
    ("a late event is an object", ending({Done(): Late.REFUSE, ANY: Late.RECORD}), "no event type"),
    ("a late event is a command", ending({Do: Late.REFUSE, ANY: Late.RECORD}), "no event type"),
    ("it is handed on to a number", ending({Done: forward(5), ANY: Late.RECORD}),  # type: ignore[arg-type]
     "5 is no text"),
    ("an event is a command", lambda made: made.on("doing", Do, to="end"), "is a Command"),
    ("renew is a text", lambda made: made.on("doing", Other, to="doing", renew="yes"),
     "neither True nor False"),
    ("the first state sends", lambda made: made.enter("new", do), "it is never entered"),
    ("a reducer's parameters cannot be told", lambda made: made.on("doing", Other, to="end")(max),
     "cannot be told"),
    ("an invariant has no name", lambda made: made.invariant(5, lambda _, __: True), "has no name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "told"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES]
)
def test_a_mistake_is_told(mistake: Callable[[Graph], object], told: str) -> None:
    made = graph()
    mistake(made)
    assert told in refused(made)


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"version": 2**31}, "the version is not 1 or more"),
    ({"dedup": "5"}, "dedup='5' is no whole number"),
    ({"limits": 5}, "limits=5 is no Limits(…)"),
    ({"limits": Limits(actions=None)}, "limit actions=None"),  # type: ignore[arg-type]
    ({"limits": Limits(deferred=None)}, "limit deferred=None"),  # type: ignore[arg-type]
    ({"limits": Limits(transitions="x")}, "limit transitions='x'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("given", "told"), SETTINGS)
def test_a_setting_of_another_kind_is_told(given: dict[str, Any], told: str) -> None:
    assert told in refused(graph(**given))


@pytest.mark.parametrize("command", [5, None, Do(), (Do, Undo), [Do]])
def test_a_trigger_about_no_command_is_told_where_it_is_written(command: Any) -> None:
    for trigger in (failed, missed):
        with pytest.raises(DefinitionError, match="names no command"):
            trigger(command)


def test_a_join_is_of_a_command_and_not_of_any() -> None:
    any_: Any = ANY
    with pytest.raises(DefinitionError, match="names no command"):
        missed(any_)


def refused(made: Graph) -> str:
    with pytest.raises(DefinitionError) as error:
        made.build()
    assert error.value.code is Code.DEFINITION_INVALID
    assert error.value.cure
    return error.value.what
