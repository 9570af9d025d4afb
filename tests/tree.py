"""The repository as data for tests about the repository: its files, packages and syntax trees."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
MADE: Final = {"build", "dist", "node_modules", "__pycache__", "refold.egg-info"}
"""Folders that tools make; nobody wrote what is in them."""


@cache
def project() -> dict[str, Any]:
    """The text of pyproject.toml as data."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> dict[str, str]:
    """Import name of each package → its folder, as setuptools is told."""
    folders: dict[str, str] = project()["tool"]["setuptools"]["package-dir"]
    return {name: folder for name, folder in folders.items() if name}


def written_files(*suffixes: str) -> Iterator[Path]:
    """Every file of the repository with one of these suffixes that a person wrote."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part not in {".ci", ".github"} for part in parts[:-1])
        made = MADE.intersection(parts) or parts[:2] == ("bench", "results")
        linked = parts[:2] == ("src", "refold") and len(parts) > 3
        if path.suffix in suffixes and not (hidden or made or linked) and path.is_file():
            yield path


def modules() -> dict[str, Path]:
    """Import name → file of every module that ships, without the packages' own `__init__`."""
    found = {}
    for package, folder in packages().items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.stem != "__init__":
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found[".".join((package, *parts))] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


def shown(path: Path) -> str:
    """A path as messages show it."""
    return str(path.relative_to(ROOT))
