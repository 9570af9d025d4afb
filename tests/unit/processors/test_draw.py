"""Pictures, tables and differences of definitions: complete, readable, the same every time."""

from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tree import ROOT

from refold.examples.order.graph import (
    Charge,
    Charged,
    ChargeDeclined,
    Order,
    OrderPlaced,
    Reserve,
    Reserved,
    order,
)
from refold.processors import draw
from refold.processors.definition import Definition
from refold.processors.diff import Change, How, diff
from refold.processors.graph import ANY, Late, Limits, RunStatus, StateGraph
from refold.processors.layered import Edge, Placed, Size, place
from refold.processors.mermaid import mermaid
from refold.processors.outline import Arrow, Box, Outline, Sent, Standing, guard_words
from refold.processors.svg import svg
from refold.schemas.errors import UsageError

GOLDEN: Final = ROOT / "tests" / "golden" / "draw"
SVG: Final = "{http://www.w3.org/2000/svg}"


def box(state: str, **said: object) -> Box:
    nothing = {"initial": False, "final": False, "status": "", "sends": (), "stays": ()}
    nothing |= {"deferred": (), "already": (), "late": ()}
    return Box(state=state, **{**nothing, **said})  # type: ignore[arg-type]


def arrow(source: str, target: str, event: str, guard: str = "", n: int = 0) -> Arrow:
    return Arrow(f"{source}/{event}/{n}", source, target, event, guard)


INCIDENT: Final = Outline(
    "incident",
    3,
    "0123456789abcdef",
    (
        box("new", initial=True),
        box("assigned", sends=(Sent("PageOnCall", "paging"),), stays=("Updated", "Commented")),
        box(
            "waiting_for_the_caller_to_answer_us",
            status="waiting_input",
            sends=(Sent("AskForInformation", "mail"),),
            deferred=("Resolved",),
        ),
        box("waiting_vendor", status="waiting_callback", already=("VendorAsked",)),
        box("in_progress", stays=("Updated",)),
        box("resolved", status="waiting_timer", sends=(Sent("TellCaller", "mail"),)),
        box(
            "closed",
            final=True,
            status="completed",
            late=(("Reopened", "record"), ("*", "refuse")),
        ),
        box("cancelled", final=True, status="failed", late=(("*", "refuse"),)),
        box("merged", final=True, status="continued", late=(("*", "record"),)),
    ),
    (
        arrow("new", "assigned", "Opened", "priority is known"),
        arrow("new", "in_progress", "Opened", n=1),
        arrow("new", "cancelled", "Cancelled"),
        arrow("assigned", "in_progress", "WorkStarted"),
        arrow("assigned", "assigned", "Reassigned"),
        arrow("assigned", "cancelled", "Cancelled"),
        arrow("in_progress", "waiting_for_the_caller_to_answer_us", "InformationRequested"),
        arrow("waiting_for_the_caller_to_answer_us", "in_progress", "CallerAnswered"),
        arrow("in_progress", "waiting_vendor", "VendorAsked"),
        arrow("waiting_vendor", "in_progress", "VendorAnswered"),
        arrow("waiting_vendor", "cancelled", "Cancelled"),
        arrow("in_progress", "resolved", "Resolved"),
        arrow("in_progress", "merged", "MergedIntoAnother"),
        arrow("resolved", "in_progress", "Reopened", "reopened less than 3 times"),
        arrow("resolved", "closed", "Closed"),
    ),
    (),
)
STANDING: Final = Standing(
    "INC-0012345",
    "resolved",
    frozenset({"new", "assigned", "in_progress"}),
    frozenset({"new/Opened/0", "assigned/WorkStarted/0", "in_progress/Resolved/0"}),
    "parked: REDUCER_RAISED",
)


def texts(picture: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["incident.svg", "incident-standing.svg", "incident.mmd"])
def test_the_picture_is_the_one_that_people_looked_at(name: str) -> None:
    """After a wanted change: look at the new picture, then store it."""
    drawn = {
        "incident.svg": svg(INCIDENT),
        "incident-standing.svg": svg(INCIDENT, STANDING),
        "incident.mmd": mermaid(INCIDENT, STANDING),
    }
    assert drawn[name] == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_picture_says_everything_that_the_graph_declares() -> None:
    words = " ".join(texts(svg(INCIDENT, STANDING)))
    for one in INCIDENT.boxes:
        assert one.state in words.replace("_ ", "_")
        assert all(f"{sent.command} → {sent.target}" in words for sent in one.sends)
        assert all(event in words for event in (*one.stays, *one.deferred, *one.already))
        assert all(policy in words for _, policy in one.late)
    for line in INCIDENT.arrows:
        assert line.event in words
        assert line.guard.split(" ", maxsplit=1)[0] in words
    assert "INC-0012345" in words
    assert "parked: REDUCER_RAISED" in words


def test_the_picture_marks_the_start_the_ends_and_where_an_instance_is() -> None:
    root = ElementTree.fromstring(svg(INCIDENT, STANDING))
    classes = [one.get("class", "") for one in root.iter()]
    assert len(list(root.iter(f"{SVG}circle"))) == 1
    assert classes.count("inner") == 3
    assert (classes.count("here"), classes.count("been")) == (1, 3)
    assert classes.count("arrow taken") == 3
    assert "bad" in classes
    assert "good" in classes


def test_names_that_look_like_markup_are_text() -> None:
    odd = Outline(
        "a<b>&\"c'",
        1,
        "f" * 64,
        (box("s", initial=True, status="<i>"), box("t", final=True, late=(("*", "&"),))),
        (arrow("s", "t", "E<script>", 'x < 1 and y["k"] & z'),),
        (),
    )
    standing = Standing("<id>&", "s", note="<note>")
    words = texts(svg(odd, standing))
    assert "a<b>&\"c'" in words
    assert "E<script>" in words
    assert "<id>&" in words


def test_mermaid_text_holds_no_sign_that_mermaid_would_read() -> None:
    odd = Outline(
        "w",
        1,
        "f",
        (box("a-b", initial=True, sends=(Sent("C", "t"),)), box("end", final=True)),
        (arrow("a-b", "end", "E", 'x["k"] > 1; y: z # %%'),),
        (),
    )
    lines = mermaid(odd).splitlines()
    assert '    state "a-b" as s0' in lines
    (line,) = (one for one in lines if one.startswith("    s0 --> s1"))
    assert line == "    s0 --> s1 : E [x[#34;k#34;] #62; 1#59; y#58; z #35; #37;#37;]"
    assert "    [*] --> s0" in lines
    assert "    s1 --> [*]" in lines


def test_a_long_word_is_broken_and_nothing_of_it_is_lost() -> None:
    name = "x" * 64
    picture = svg(Outline("w", 1, "f", (box(name, initial=True),), (), ()))
    assert name in "".join(texts(picture))
    assert max(len(text) for text in texts(picture)) < 64


SIZES = st.builds(Size, st.floats(20, 300), st.floats(20, 200))


@st.composite
def graphs(draw_: st.DrawFn) -> tuple[dict[str, Size], list[Edge]]:
    count = draw_(st.integers(1, 9))
    sizes = {f"n{index}": draw_(SIZES) for index in range(count)}
    names = st.sampled_from(sorted(sizes))
    pairs = draw_(st.lists(st.tuples(names, names), max_size=18, unique=True))
    labels = st.builds(Size, st.floats(10, 160), st.floats(16, 60))
    return sizes, [Edge(one, other, draw_(labels)) for one, other in pairs if one != other]


def overlapping(one: tuple[float, float], a: Size, other: tuple[float, float], b: Size) -> bool:
    return (
        abs(one[0] - other[0]) < (a.width + b.width) / 2 - 0.01
        and abs(one[1] - other[1]) < (a.height + b.height) / 2 - 0.01
    )


def outside(placed: Placed, at: tuple[float, float], size: Size) -> bool:
    return not (
        at[0] - size.width / 2 >= -0.01
        and at[0] + size.width / 2 <= placed.width + 0.01
        and at[1] - size.height / 2 >= -0.01
        and at[1] + size.height / 2 <= placed.height + 0.01
    )


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_no_box_or_label_covers_another_or_leaves_the_page(
    graph: tuple[dict[str, Size], list[Edge]],
) -> None:
    sizes, edges = graph
    placed = place(sizes, edges)
    things = [(placed.nodes[name], size) for name, size in sizes.items()]
    things += [(placed.labels[index], edge.label) for index, edge in enumerate(edges)]
    assert not [
        (one, other)
        for index, one in enumerate(things)
        for other in things[index + 1 :]
        if overlapping(*one, *other)
    ]
    assert not [one for one in things if outside(placed, *one)]


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_every_arrow_leads_from_its_source_to_its_target(
    graph: tuple[dict[str, Size], list[Edge]],
) -> None:
    sizes, edges = graph
    placed = place(sizes, edges)
    for index, edge in enumerate(edges):
        for point, name in ((0, edge.source), (-1, edge.target)):
            x, y = placed.routes[index][point]
            at, size = placed.nodes[name], sizes[name]
            assert abs(x - at[0]) <= size.width / 2
            assert abs(abs(y - at[1]) - size.height / 2) < 0.01
    assert place(sizes, edges) == placed


def test_the_table_holds_every_pair_of_state_and_event() -> None:
    table = draw.table(order.build())
    cells = {
        (state, event): cell
        for state, row in zip(table.states, table.cells, strict=True)
        for event, cell in zip(table.events, row, strict=True)
    }
    assert cells["new", "OrderPlaced"] == "→ reserving"
    assert cells["new", "Charged"] == draw.REFUSED
    assert cells["charging", "Reserved"] == "already"
    assert cells["done", "Charged"] == "late: already"
    assert cells["done", "OrderPlaced"] == "late: record"
    assert cells["failed", "Charged"] == "late: refuse"
    assert len(cells) == len(table.states) * len(table.events)


def test_the_table_as_markdown_has_one_line_a_state() -> None:
    lines = draw.to_markdown(order.build()).splitlines()
    assert lines[0].startswith("| state | OrderPlaced |")
    assert len(lines) == 2 + len(order.build().states)
    assert {line.count(" | ") for line in lines[2:]} == {len(order.build().events)}


def test_an_instance_in_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError):
        draw.to_svg(order.build(), Standing("7", "nowhere"))
    with pytest.raises(UsageError):
        draw.to_mermaid(order.build(), Standing("7", "nowhere"))


def test_commands_and_guards_are_drawn_from_the_code() -> None:
    def is_large_order(ctx: Order, event: Reserved) -> bool:
        return ctx.total > 100

    graph = varied()
    graph.on("reserving", Reserved, to="checking", guard=is_large_order)
    graph.on("reserving", Reserved, to="charging")
    graph.on("checking", Reserved, to="charging", guard=lambda ctx, event: ctx.total > 1)
    words = texts(draw.to_svg(graph.build()))
    assert "[is large order]" in words
    assert "[ctx.total > 1]" in words
    assert "Charge → order" in words
    assert guard_words(lambda ctx, event: ctx.total_of_everything > 10**ctx.digits).endswith("…")


def varied(
    version: int = 1, over: str | None = None, late: Late = Late.RECORD
) -> StateGraph[Order]:
    graph = StateGraph(
        "order", version=version, context=Order, initial="new", limits=Limits(over=over)
    )
    graph.on("new", OrderPlaced, to="reserving")
    graph.enter("reserving", send=lambda ctx, event: Reserve(items=ctx.items))
    graph.enter("charging", send=lambda ctx, event: Charge(amount=ctx.total))
    graph.on("charging", Charged, to="done")
    graph.on("charging", ChargeDeclined, to="failed")
    graph.final("done", late={ANY: late})
    graph.final("failed", late={ANY: Late.REFUSE}, status=RunStatus.FAILED)
    return graph


def first() -> Definition:
    graph = varied()
    graph.on("reserving", Reserved, to="charging")
    return graph.build()


def test_nothing_changed_between_equal_definitions() -> None:
    assert diff(first(), first()) == ()


def test_each_kind_of_change_is_told_with_before_and_after() -> None:
    graph = varied(2, over="failed", late=Late.REFUSE)
    graph.on("reserving", Reserved, to="checking")
    graph.on("checking", Reserved, to="charging", guard=lambda ctx, event: ctx.total > 1)
    graph.defer("checking", ChargeDeclined)
    graph.command(Charge, target="bank")
    graph.invariant("total", lambda state, ctx: ctx.total >= 0)
    changes = diff(first(), graph.build())
    assert set(changes) == {
        Change(How.ADDED, "state", "checking"),
        Change(How.CHANGED, "transition", "reserving/Reserved/0", "→ charging", "→ checking"),
        Change(How.ADDED, "transition", "checking/Reserved/0", "", "→ charging [ctx.total > 1]"),
        Change(How.CHANGED, "command", "Charge", "to order as Charge", "to bank as Charge"),
        Change(How.CHANGED, "policy", "done/*", "late: record", "late: refuse"),
        Change(How.ADDED, "policy", "checking/ChargeDeclined", "", "deferred"),
        Change(How.ADDED, "invariant", "total", "", "everywhere"),
        Change(How.CHANGED, "setting", "limits.over", "None", "failed"),
    }
    back = diff(graph.build(), first())
    assert Change(How.REMOVED, "state", "checking") in back


def test_changed_code_is_told_by_its_place() -> None:
    one, other = varied(), varied()
    one.on("reserving", Reserved, to="charging")(lambda ctx, event: ctx)
    other.on("reserving", Reserved, to="charging")(lambda ctx, event: Order())
    (change,) = diff(one.build(), other.build())
    assert (change.how, change.part) == (How.CHANGED, "code")
    assert change.name == "reducer of reserving/Reserved/0"


def test_a_change_can_be_written_as_json() -> None:
    change = Change(How.ADDED, "state", "x")
    assert msgspec.json.decode(msgspec.json.encode(change), type=Change) == change


def test_the_golden_pictures_are_all_in_use() -> None:
    names = {path.name for path in Path(GOLDEN).iterdir()}
    assert names == {"incident.svg", "incident-standing.svg", "incident.mmd"}
