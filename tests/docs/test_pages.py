"""The documentation is true: its made parts are fresh, its code runs, its commands exist."""

import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from tests.docs.blocks import MADE, MARKED, PICTURES, pages
from tests.tree import ROOT, modules, project, shown

from refold.cli.main import ENTRIES, _load
from refold.processors.batch import LETTERS
from refold.processors.health import PartitionStatus
from refold.schemas.errors import Code
from refold.schemas.verdicts import Verdict

TOLD: Final = [path for path in pages() if path.parent.name != "errors"]
ON_SERVERS: Final = {"services.md", "ledger.md"}
"""Pages whose code needs servers; it runs in tests/kafka/test_services_page.py and
tests/executors/test_ledger_page.py."""
SHELL: Final = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SPAN: Final = re.compile(r"`(refold [^`]+)`")
EXPANSION: Final = re.compile(r"\"\$\((.*?)\)\"")
CITED: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
TARGET: Final = re.compile(r"`make (\w+)`|^make (\w+)", re.MULTILINE)


@pytest.mark.parametrize("path", TOLD, ids=shown)
def test_every_made_part_is_what_the_code_says(path: Path) -> None:
    text = path.read_text()
    found = list(MARKED.finditer(text))
    assert text.count("<!-- made:") == len(found), "a made part does not end"
    for each in found:
        assert each[2] == MADE[each[1]](), f"{each[1]}: run `python -m tests.docs.blocks`"


def test_every_part_that_can_be_made_stands_somewhere() -> None:
    told = {found[1] for path in TOLD for found in MARKED.finditer(path.read_text())}
    assert told == set(MADE)


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_the_one_that_the_code_draws(name: str) -> None:
    drawn = (ROOT / "docs" / "pictures" / name).read_text()
    assert drawn == PICTURES[name](), "run `python -m tests.docs.blocks`"


def test_the_picture_of_the_layers_has_the_arrows_of_the_contract() -> None:
    arrows = set(re.findall(r"^    (\w+) --> (\w+)$", MADE["layers"](), re.MULTILINE))
    contracts = project()["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    rank = {
        name: place for place, layer in enumerate(layers) for name in re.findall(r"\.(\w+)", layer)
    }
    assert {name for arrow in arrows for name in arrow} == set(rank)
    assert all(rank[lower] == rank[upper] + 1 for upper, lower in arrows)
    assert len(arrows) == sum(
        len(above.split("|")) * len(below.split("|")) for above, below in pairwise(layers)
    )


RUNNABLE: Final = [path for path in TOLD if "```python\n" in path.read_text()]


@pytest.mark.parametrize("path", [p for p in RUNNABLE if p.name not in ON_SERVERS], ids=shown)
def test_the_python_code_of_a_page_runs(path: Path) -> None:
    document = Sybil([PythonCodeBlockParser()], pattern="*.md", path=str(ROOT)).parse(path)
    document.namespace["__name__"] = "page"
    for example in document.examples():
        example.evaluate()


@cache
def _command(*names: str) -> Any:
    if len(names) == 1:
        return _load(names[0]) if names[0] in ENTRIES else None
    group = _command(*names[:-1])
    return getattr(group, "commands", {}).get(names[-1])


def _faults(line: str) -> str | None:
    """What is wrong with a command line of refold's, as far as words and options go."""
    words = shlex.split(line, comments=True)[1:]
    if words[:1] == ["COMMAND"] or words[:1] in (["--help"], ["--version"], ["-h"]):
        return None
    command, rest = _command(words[0]), words[1:]
    if command is None:
        return f"there is no `refold {words[0]}`"
    if words[0] != "graph" or words[1:2] == ["diff"]:
        while rest and getattr(command, "commands", None):
            command = _command(*words[: len(words) - len(rest) + 1])
            if command is None:
                return f"there is no `refold {' '.join(words[: len(words) - len(rest) + 1])}`"
            rest = rest[1:]
    else:
        command = _command("graph", "show")
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    known |= {"--help", "-h"}
    unknown = [word for word in rest if word.startswith("-") and word not in known]
    return f"{words[0]} has no option {', '.join(unknown)}" if unknown else None


def _lines(text: str) -> list[str]:
    found = []
    for block in SHELL.findall(text):
        for line in EXPANSION.sub(lambda each: f"x\n{each[1]}\n", block).splitlines():
            words = line.strip()
            if words.startswith("refold "):
                found.append(words)
    return found + list(SPAN.findall(text))


@pytest.mark.parametrize(
    "path", [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=shown
)
def test_every_command_and_option_on_a_page_exists(path: Path) -> None:
    wrong = [
        f"{line}: {fault}"
        for line in _lines(path.read_text())
        if " | " not in line
        if (fault := _faults(line.replace("…", ""))) is not None
    ]
    assert not wrong


def test_a_command_or_option_that_does_not_exist_would_be_found() -> None:
    assert _faults("refold nothing") is not None
    assert _faults("refold rejected nothing order") is not None
    assert _faults("refold worker a:b --nothing") is not None
    assert _faults("refold rejected list order --code CONFLICT") is None
    assert isinstance(_command("graph"), typer.core.TyperGroup)


@pytest.mark.parametrize("path", TOLD, ids=shown)
def test_every_make_target_on_a_page_exists(path: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {one or other for one, other in TARGET.findall(path.read_text())}
    assert named <= targets


@cache
def _tests(path: str) -> frozenset[str]:
    found = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE)
    return frozenset(found)


CITING: Final = [*TOLD, ROOT / "tests" / "scenarios.md"]


@pytest.mark.parametrize("path", [each for each in CITING if "::" in each.read_text()], ids=shown)
def test_every_test_that_a_page_names_is_there(path: Path) -> None:
    missing = [
        f"{file}::{name}"
        for file, name in CITED.findall(path.read_text())
        if not (ROOT / file).exists() or name not in _tests(file)
    ]
    assert not missing


def test_every_module_that_a_page_names_is_there() -> None:
    files = {shown(path) for path in modules().values()}
    named = {
        (shown(path), f"{found.removesuffix('.py')}.py")
        for path in TOLD
        for found in re.findall(
            r"`((?:processors|topics|schemas|snapshots|cli|testing)/\w+(?:\.py)?)`",
            path.read_text(),
        )
    }
    assert not sorted(where for where in named if where[1] not in files)


def test_every_rule_of_the_protocol_has_its_place_and_its_tests() -> None:
    text = (ROOT / "docs/protocol.md").read_text()
    parts = re.split(r"^### P(\d+): ", text, flags=re.MULTILINE)
    rules = {int(number): body for number, body in zip(parts[1::2], parts[2::2], strict=True)}
    assert sorted(rules) == list(range(1, 34))
    without = [number for number, body in rules.items() if not CITED.search(body)]
    assert without == []


def test_the_glossary_has_each_term_once_in_order_and_every_verdict() -> None:
    text = (ROOT / "docs/glossary.md").read_text()
    terms = re.findall(r"^\| \*([^*]+)\* \|", text, re.MULTILINE)
    assert terms == sorted(set(terms), key=str.lower)
    assert set(Verdict) <= set(terms)


def test_the_index_of_errors_names_each_code_once() -> None:
    text = (ROOT / "docs/errors/README.md").read_text()
    assert sorted(re.findall(r"^\| \[([A-Z_]+)\]", text, re.MULTILINE)) == sorted(Code)


def test_every_page_of_an_error_begins_with_its_code_and_says_what_to_do() -> None:
    silent = [
        shown(path)
        for path in (ROOT / "docs/errors").glob("[A-Z]*.md")
        if path.stem != "README"
        and not (
            path.read_text().startswith(f"# {path.stem}\n")
            and "\n## What to do" in path.read_text()
        )
    ]
    assert not silent


def test_the_fields_of_a_status_are_told() -> None:
    text = (ROOT / "docs/metrics.md").read_text().partition("## /status")[2]
    told = set(re.findall(r"`(\w+)`", text))
    assert told == set(PartitionStatus.__struct_fields__)


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        for target in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            found = (page.parent / target).resolve()
            if found not in reached and found.exists():
                reached.add(found)
                ahead.append(found)
    lost = [shown(path) for path in pages() if path not in reached and path.name != "README.md"]
    assert not lost


def test_every_scenario_has_its_line_with_a_test_or_what_it_waits_for() -> None:
    text = (ROOT / "tests/scenarios.md").read_text()
    lines = dict(re.findall(r"^\| (B\d{3}) \|(.*)$", text, re.MULTILINE))
    assert {f"B{number:03}" for number in range(1, 49)} <= set(lines)
    empty = [name for name, line in lines.items() if not CITED.search(line)]
    assert [name for name in empty if "waits for" not in lines[name]] == []


def test_the_letters_of_the_fold_digest_are_those_of_the_code() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    told = re.findall(r"`([a-z])` (\w+)", text.partition("## Fold digest")[2].partition("\n## ")[0])
    assert {name: letter for letter, name in told} == dict(LETTERS)


def test_every_page_that_the_code_names_is_there() -> None:
    named = {
        (shown(path), found)
        for path in (*modules().values(), ROOT / "pyproject.toml")
        for found in re.findall(r"docs/[\w/]+\.md", path.read_text())
    }
    assert not sorted(where for where in named if not (ROOT / where[1]).exists())
