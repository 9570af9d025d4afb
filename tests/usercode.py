"""Modules as a user would write them, made from text for one test."""

import importlib
import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from types import ModuleType

_numbers = itertools.count()


def written(folder: Path, text: str) -> ModuleType:
    """Write a module of its own package into a folder, and import it."""
    name = f"shop{next(_numbers)}"
    return package(folder, {f"{name}.py": text}, name)


def package(folder: Path, files: Mapping[str, str], name: str) -> ModuleType:
    """Write files into a folder, and import one of them by its dotted name."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(dedent(text), encoding="utf-8")
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
