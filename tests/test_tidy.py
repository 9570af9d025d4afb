"""Properties of the code itself that no linter checks. Each limit has its reason beside it."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest
from tests.tree import ROOT, modules, packages, project, shown, tree, written_files

from refold.schemas.errors import Code

FUNCTION_LINES: Final = 60
"""A function is read at one sight; the median here is near ten."""
MODULE_LINES: Final = 500
"""Beyond that a module holds two nouns."""
IMPURE_CALLS: Final = re.compile(
    r"^(print|open|input|exec|eval|(datetime|date)\.(now|utcnow|today)|"
    r"(datetime\.)?(datetime|date)\.(now|utcnow|today)|time\.\w+|random\.\w+|secrets\.\w+|"
    r"(uuid\.)?uuid[14]|os\.\w+|threading\.\w+)$"
)
"""A fold that calls one of these is not the same fold tomorrow."""
MARKERS: Final = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b"
)
MACHINE: Final = re.compile(
    r"/root/|/home/\w+/|/Users/\w+/|pythonhosted\.org|pypi\.org/simple|maven\.org/maven2|"
    r"maven\.apache\.org/maven2|registry\.npmjs"
)
"""Places of one machine, and addresses that a lock file must not pin."""
LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_no_function_of_the_product_is_longer_than_sixty_lines() -> None:
    long = [
        f"{shown(path)}:{function.lineno} {function.name}: {length} lines"
        for path in modules().values()
        for function in _functions(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES
    ]
    assert not long


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    long = [
        f"{shown(path)}: {lines} lines"
        for path in written_files(".py")
        if (lines := path.read_text().count("\n")) > MODULE_LINES
    ]
    assert not long


def test_the_core_calls_no_clock_no_chance_and_no_outside_world() -> None:
    contracts = project()["tool"]["importlinter"]["contracts"]
    core = next(c["source_modules"] for c in contracts if c["name"] == "the core does no I/O")
    missing = [name for name in core if name not in modules()]
    assert not missing, "the contract names modules that are not there"
    impure = [
        f"{shown(modules()[name])}:{node.lineno} {called}"
        for name in core
        for node in ast.walk(tree(modules()[name]))
        if isinstance(node, ast.Call) and IMPURE_CALLS.match(called := ast.unparse(node.func))
    ]
    assert not impure


def test_nothing_is_left_over() -> None:
    left = [
        f"{shown(path)}:{number}"
        for path in written_files(".py", ".md", ".sql", ".toml", ".yaml", "")
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MARKERS.search(line)
    ]
    assert not left


def test_no_file_names_a_place_of_one_machine_or_a_registry() -> None:
    places = [
        f"{shown(path)}:{number} {line.strip()[:80]}"
        for path in written_files(".py", ".md", ".sql", ".toml", ".yaml", ".lock", ".json", "")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE.search(line)
    ]
    assert not places


def test_every_module_is_used_by_another_one() -> None:
    texts = {path: path.read_text() for path in written_files(".py", ".md", ".yaml", ".toml", "")}
    dead = []
    for name, path in modules().items():
        users = [other for other in texts if other != path]
        if name.split(".")[1] not in {"testing", "examples"}:  # those two are for users
            users = [other for other in users if "tests" not in other.parts]
        package, _, module = name.rpartition(".")
        use = re.compile(
            rf"\b{re.escape(name)}\b|from {re.escape(package)} import [^\n]*\b{module}\b"
        )
        if path.stem != "__main__" and not any(use.search(texts[user]) for user in users):
            dead.append(shown(path))
    assert not dead


def test_every_test_is_named_by_a_sentence() -> None:
    short = [
        f"{shown(path)}:{function.lineno} {function.name}"
        for path in written_files(".py")
        if path.name.startswith("test_")
        for function in _functions(path)
        if function.name.startswith("test_") and function.name.count("_") < 2
    ]
    assert not short


def test_every_relative_link_in_the_docs_leads_somewhere() -> None:
    broken = [
        f"{shown(path)}: {target}"
        for path in written_files(".md")
        for target in LINK.findall(path.read_text())
        if "://" not in target and not target.startswith("mailto:")
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_every_error_code_has_its_page_and_every_page_its_code() -> None:
    folder = ROOT / "docs" / "errors"
    if not (folder / "README.md").exists():
        pytest.skip("docs/errors/ has no index yet")
    pages = {path.stem for path in folder.glob("*.md")} - {"README"}
    assert pages == set(Code)


def test_every_package_says_what_it_is() -> None:
    silent = [
        folder
        for folder in packages().values()
        if not ast.get_docstring(tree(ROOT / folder / "__init__.py"))
    ]
    assert not silent
