"""`refold graph`: forms of one definition, changes between two, and an answer to each mistake."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from refold.cli import graph as command
from refold.cli import telling
from refold.cli.load import load_workflows
from refold.cli.main import run
from refold.processors.definition import Definition
from refold.processors.draw import Standing
from refold.schemas.errors import Code, DefinitionError, RefoldError

ORDER = "refold.examples.order.graph:order"
SHOP = """
from refold.processors.graph import ANY, Late, StateGraph
from refold.schemas.types import Context, Event

class Empty(Context):
    pass

class Began(Event):
    pass

class Ended(Event):
    pass

def made(name, version, end="done"):
    graph = StateGraph(name, version=version, context=Empty, initial="new")
    graph.on("new", Began, to="open")
    graph.on("open", Ended, to=end)
    graph.final(end, late={ANY: Late.RECORD})
    return graph

one, two = made("shop", 1), made("shop", 2, "closed")
built = one.build()
versions = [one, two]
several = (one, made("other", 1))
twice = [made("shop", 1), made("shop", 1)]
lost = StateGraph("lost", version=1, context=Empty, initial="new")
number = 7
nothing = ()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"cli_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return name


def as_wide_as(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """A console keeps the width of the moment in which it was made."""
    console = Console(width=columns, markup=False, emoji=False)
    monkeypatch.setattr(telling, "out", console)


def test_the_table_is_shown_unless_another_form_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_wide_as(monkeypatch, 120)
    assert run(["graph", ORDER]) == 0
    shown = capsys.readouterr().out
    assert "order version 1" in shown
    assert "→ reserving" in shown
    assert run(["graph", ORDER, "--table"]) == 0
    assert capsys.readouterr().out == shown
    as_wide_as(monkeypatch, 40)
    assert run(["graph", ORDER]) == 0
    assert "All else is refused." in capsys.readouterr().out


def test_a_line_for_each_pair_leaves_out_what_has_no_effect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_wide_as(monkeypatch, 80)
    assert run(["graph", "refold.examples.travel.graph:trip", "--table"]) == 0
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    shown = [(event.strip(), does.strip()) for _, _, event, does, _ in rows]
    assert ("failed(Pay)", "→ undoing") in shown
    assert len([event for event, _ in shown if event.startswith("failed(")]) == 3
    assert {does for _, does in shown}.isdisjoint({"·", "–", ""})


def test_a_picture_is_written_to_a_file_or_to_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "order.svg"
    assert run(["graph", ORDER, "--svg", str(file)]) == 0
    assert ElementTree.parse(file).getroot().tag.endswith("svg")
    assert capsys.readouterr().out == ""
    assert run(["graph", "--svg", "-", ORDER]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_mermaid_markdown_and_json_go_to_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", ORDER, "--mermaid"]) == 0
    assert capsys.readouterr().out.startswith("stateDiagram-v2\n")
    assert run(["graph", ORDER, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| state |")
    assert run(["graph", ORDER, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["initial"] == "new"


def test_an_instance_is_located_through_the_seam(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def standing(definition: Definition, tenant: str, instance: str) -> Standing:
        return Standing(f"{tenant}/{instance}", "charging", frozenset({"new"}))

    monkeypatch.setattr(command, "locate", standing)
    asked = ["graph", ORDER, "--instance", "A-7", "--tenant", "acme"]
    assert run([*asked, "--mermaid"]) == 0
    assert "    class s2 here" in capsys.readouterr().out
    assert run([*asked, "--svg", "-"]) == 0
    assert "acme/A-7" in capsys.readouterr().out
    assert run(asked) == 0
    assert "acme/A-7" in capsys.readouterr().out


def test_the_highest_version_is_drawn_unless_another_is_named(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["graph", f"{shop}:versions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2
    assert run(["graph", f"{shop}:versions", "--json", "--version", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    assert run(["graph", f"{shop}:several", "--json", "--workflow", "other"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "other"


def test_what_changed_between_two_versions_is_told(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["graph", "diff", f"{shop}:one", f"{shop}:two"]) == 0
    shown = capsys.readouterr().out
    assert "~ transition open/Ended/0: → done ⇒ → closed" in shown
    assert "- state done" in shown
    assert run(["graph", "diff", f"{shop}:one", f"{shop}:one"]) == 0
    assert "nothing changed" in capsys.readouterr().out
    assert run(["graph", "diff", f"{shop}:one", f"{shop}:two", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["new"]["version"] == 2
    assert {"how": "added", "part": "state", "name": "closed", "before": "", "after": "final, "
            "completed"} in told["changes"]  # fmt: skip


def test_a_graph_a_definition_and_lists_of_them_are_loaded(shop: str) -> None:
    assert list(load_workflows([f"{shop}:one"])["shop"].versions) == [1]
    assert list(load_workflows([f"{shop}:built", f"{shop}:versions"])["shop"].versions) == [1, 2]
    assert sorted(load_workflows([f"{shop}:several"])) == ["other", "shop"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("{0}", Code.BAD_COMMAND_LINE, "Write MODULE:NAME"),
        (":one", Code.BAD_COMMAND_LINE, "Write MODULE:NAME"),
        ("{0}:", Code.BAD_COMMAND_LINE, "Write MODULE:NAME"),
        ("{0}:absent", Code.DEFINITION_NOT_FOUND, "Graphs in it: built, lost, one, two."),
        ("{0}.absent:one", Code.DEFINITION_NOT_FOUND, "There is no module"),
        ("absent_module:one", Code.DEFINITION_NOT_FOUND, "There is no module"),
        ("{0}:number", Code.DEFINITION_INVALID, "is a int"),
        ("{0}:Empty", Code.DEFINITION_INVALID, "is a class"),
        ("{0}:nothing", Code.DEFINITION_INVALID, "is an empty list"),
        ("{0}:twice", Code.DEFINITION_INVALID, "has version 1 twice"),
        ("{0}:lost", Code.DEFINITION_INVALID, "lost version 1"),
    ],
)
def test_a_wrong_name_is_answered_with_what_to_do(
    name: str, code: Code, said: str, shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["graph", name.format(shop)]) == 2
    shown = capsys.readouterr().err
    assert code in shown
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import shop_not_installed", "No module named 'shop_not_installed'"),
        ("x = 1\nraise ValueError('no rates')", "ValueError: no rates"),
        ("def broken(:\n    pass", "SyntaxError"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_does_not_import_is_named_with_its_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DefinitionError) as raised:
        load_workflows([f"{name}:graph"])
    assert raised.value.code is Code.DEFINITION_NOT_FOUND
    assert said in raised.value.what
    assert f"{name}.py:" in raised.value.what


@pytest.mark.parametrize(
    "arguments",
    [
        ["graph", ORDER, "--svg", "/nowhere/x.svg"],
        ["graph", ORDER, "--json", "--mermaid"],
        ["graph", ORDER, "--version", "9"],
        ["graph", ORDER, "--workflow", "absent"],
        ["graph", "diff", ORDER],
        ["graph", ORDER, "--wrong"],
    ],
)
def test_a_malformed_command_line_ends_with_a_message_and_no_traceback(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.strip()
    assert "Traceback" not in shown.err + shown.out


def test_several_workflows_under_one_name_need_a_choice(shop: str) -> None:
    with pytest.raises(RefoldError, match="Add --workflow"):
        command.chosen(f"{shop}:several", None, None)
