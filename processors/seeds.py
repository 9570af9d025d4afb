"""The same function in two processes that differ in everything that a fold must not see.

Law of this module: it starts two Pythons and compares bytes; what it cannot start or what fails
there is an error with the text of that process.
"""

import os
import subprocess
import sys
import tempfile
from typing import Final

from refold.schemas.errors import Code, DefinitionError

_CHILD: Final = """
import os, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
module, name = sys.argv[1].split(":")
target = __import__(module, fromlist=["_"])
for part in name.split("."):
    target = getattr(target, part)
result = target(sys.stdin.buffer.read())
if not isinstance(result, bytes):
    sys.exit(f"{sys.argv[1]} gave a {type(result).__name__}, not bytes")
out.write(result)
out.flush()
"""
"""What a user's code prints goes to standard error, so that it cannot mix with the bytes."""
_WORLDS: Final = (
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Apia", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8"},
)
"""Hash seeds, zones that differ by a day and a half hour, locales (C stands in where one is not
installed)."""
_NEAR: Final = 24  # bytes shown on both sides of the first difference


def two_seeds(target: str, payload: bytes = b"", *, timeout_s: float = 120.0) -> bytes:
    """Run a function twice, in processes with another hash seed, zone, locale and folder.

    Args:
        target: `MODULE:FUNCTION`, bytes → bytes, such as a fold of recorded events that gives
            the canonical state. It is found with this process's `sys.path`.
        payload: What the function is given.
        timeout_s: Seconds that each process may take.

    Returns:
        What both gave.

    Raises:
        DefinitionError: `IMPURE_REDUCER`: the bytes differ, with the place of the first
            difference; `DEFINITION_INVALID`: the function raised or took too long.
    """
    first, second = (_run(target, payload, world, timeout_s) for world in _WORLDS)
    if first != second:
        raise DefinitionError(
            Code.IMPURE_REDUCER,
            f"{target} gives other bytes under another hash seed, time zone and locale: "
            f"{_difference(first, second)}.",
            "Look for sets whose order shows, hash(), the clock, the zone and the environment.",
        )
    return first


def _run(target: str, payload: bytes, world: dict[str, str], timeout_s: float) -> bytes:
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
    environment = {**os.environ, "PYTHONPATH": path, **world}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(  # noqa: S603  # this Python, no shell
                [sys.executable, "-c", _CHILD, target],
                input=payload,
                capture_output=True,
                env=environment,
                cwd=folder,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _failed(target, f"took longer than {timeout_s:g} s") from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
        raise _failed(target, f"ended with {last[0]!r}")
    return done.stdout


def _failed(target: str, how: str) -> DefinitionError:
    return DefinitionError(
        Code.DEFINITION_INVALID,
        f"{target} could not be compared: it {how}.",
        "It must be a function from bytes to bytes that can be imported.",
    )


def _difference(one: bytes, other: bytes) -> str:
    at = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    start = max(0, at - _NEAR)
    return f"at byte {at}, {one[start : at + _NEAR]!r} and {other[start : at + _NEAR]!r}"
