"""A compiled definition answers for its picture: the table, its canonical form, its versions."""

import pytest

from refold import (
    ANY,
    Context,
    DefinitionError,
    Event,
    Late,
    Limits,
    RunStatus,
    StateGraph,
    Workflow,
)
from refold.examples.order.graph import order
from refold.processors.definition import TableRow
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict
from refold.testing.driver import Driver


class Tick(Event):
    pass


class Move(Event):
    to: int = 0


class End(Event):
    pass


class Count(Context):
    n: int = 0


def graph(limits: Limits, version: int = 1) -> StateGraph[Count]:
    flow = StateGraph("flow", version=version, context=Count, initial="a", limits=limits)
    flow.on("a", Move, to="b")
    flow.on("b", Move, to="a")
    flow.on(("a", "b"), Tick)
    flow.on(("a", "b"), End, to="end")
    flow.final("end", late={ANY: Late.RECORD})
    return flow


def test_the_table_of_states_and_event_types_is_complete() -> None:
    rows = {(row.state, row.event): row for row in order.build().rows()}
    assert len(rows) == 5 * 4
    assert rows[("new", "OrderPlaced")].kind == "transition"
    assert rows[("charging", "Reserved")].kind == "already"
    assert rows[("reserving", "Charged")] == TableRow("reserving", "Charged", "refused", (), "")
    assert rows[("done", "Charged")].policy == "already"
    assert rows[("done", "Reserved")].policy == "record"


def test_accepting_states_that_do_not_exist_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="has no state 'gone'"):
        order.build().accepts("gone")


def test_the_canonical_form_of_the_order_never_changes() -> None:
    text = order.build().to_json().decode()
    assert text.startswith('{"already":[{"event":"Reserved","state":"charging"}],"commands":[')
    assert (
        '{"event":"Charged","from":"charging","guard":null,"reducer":"charged","to":"done"}' in text
    )


def test_a_workflow_refuses_two_definitions_of_one_version() -> None:
    with pytest.raises(DefinitionError, match="has version 1 twice"):
        Workflow("flow", [graph(Limits()), graph(Limits())])


def test_a_workflow_refuses_a_definition_of_another_name() -> None:
    with pytest.raises(DefinitionError, match="got a definition of 'flow'"):
        Workflow("other", [graph(Limits())])


def test_a_workflow_needs_a_definition() -> None:
    with pytest.raises(DefinitionError, match="has no definition"):
        Workflow("flow", [])


def test_the_latest_version_is_the_highest() -> None:
    assert Workflow("flow", [graph(Limits(), 3), graph(Limits(), 2)]).latest.version == 3


# run status


def test_run_status_follows_what_a_state_declares() -> None:
    driver = Driver(order)
    driver.send("o", _placed())
    assert driver.status("o") is RunStatus.WAITING_CALLBACK


def _placed() -> object:
    from refold.examples.order.graph import OrderPlaced  # noqa: PLC0415  # one use

    return OrderPlaced(("apple",), 5)


def test_a_state_that_declares_nothing_is_running() -> None:
    driver = Driver(graph(Limits()))
    driver.send("f", Tick())
    assert driver.status("f") is RunStatus.RUNNING
    driver.send("f", End())
    assert driver.status("f") is RunStatus.COMPLETED


# limits


@pytest.mark.parametrize(
    ("limits", "events"),
    [
        (Limits(transitions=3), [Move(), Move(), Tick(), Tick()]),
        (Limits(visits=1), [Move(), Move(), Move()]),
        (Limits(unchanged=2), [Tick(), Tick(), Tick()]),
    ],
)
def test_a_limit_parks(limits: Limits, events: list[Event]) -> None:
    driver = Driver(graph(limits))
    for event in events:
        driver.send("f", event)
    assert driver.verdicts() == [Verdict.APPLIED] * (len(events) - 1) + [Verdict.PARKED]
    reason = driver.log[-1].step.reason
    assert reason is not None
    assert reason.code is Code.LIMIT_REACHED
    driver.check_replay()


@pytest.mark.parametrize("visits", [None, 5])
def test_a_limit_takes_its_declared_way_out(visits: int | None) -> None:
    driver = Driver(graph(Limits(transitions=2, visits=visits, over="end")))
    for event in (Move(), Move(), Tick()):
        step = driver.send("f", event)
    assert (step.verdict, step.transition) == (Verdict.APPLIED, "a/Tick/limit")
    assert driver.state("f") == "end"
    assert driver.send("f", Tick()).verdict is Verdict.LATE


def test_changing_something_begins_the_count_of_unchanged_events_again() -> None:
    driver = Driver(graph(Limits(unchanged=2)))
    for event in (Tick(), Tick(), Move(), Tick(), Tick()):
        driver.send("f", event)
    assert driver.verdicts() == [Verdict.APPLIED] * 5


def test_no_limit_means_no_limit() -> None:
    driver = Driver(graph(Limits(transitions=None, unchanged=None)))
    for _ in range(50):
        driver.send("f", Tick())
    assert driver.instance("f").unchanged == 50
    assert driver.instance("f").visits == ()


def test_versions_of_one_workflow_agree_on_the_default_tenant() -> None:
    first = StateGraph("flow", version=1, context=Count, initial="a", tenant="acme")
    second = StateGraph("flow", version=2, context=Count, initial="a")
    for one in (first, second):
        one.on("a", End, to="done")
        one.final("done", late={ANY: Late.RECORD})

    with pytest.raises(DefinitionError, match="default tenants"):
        Workflow("flow", [first, second])

    assert Workflow("flow", [first]).tenant == "acme"
