"""Several processes of one kind on one machine: started, restarted with growing pauses, stopped.

Law of this module: the children are ordinary `refold worker` or `refold executor` processes of
one group; this parent does nothing else, so that its end is not theirs: they stop when it is told
to.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from time import monotonic
from types import FrameType
from typing import Final

import structlog

_LOG = structlog.get_logger("refold.supervisor")
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
HEALTHY_S: Final = 60.0
"""A child that ran for so long starts again at once."""
TURN_S: Final = 0.2


@dataclass(slots=True)
class Child:
    """One process and when it may start again."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    start_at_s: float = 0.0
    failures: int = 0


def supervise(
    arguments: Sequence[str], processes: int, http_port: int, *, command: str = "worker"
) -> int:
    """Run processes until SIGTERM or Ctrl-C.

    Args:
        arguments: Command line of each child behind the command.
        processes: How many, 2 or more.
        http_port: Port of the first child's health endpoint, the next ones follow; 0: each takes
            a free one, -1: none.
        command: What each child is: `worker` or `executor`.

    Returns:
        Exit code: 0 when every child ended cleanly after the stop.
    """
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    children = [Child(number) for number in range(processes)]
    while not stop.wait(TURN_S):
        for child in children:
            _tend(child, [command, *arguments], http_port)
    return _end(children)


def _tend(child: Child, arguments: Sequence[str], http_port: int) -> None:
    now_s = monotonic()
    process = child.process
    if process is None:
        if now_s >= child.start_at_s:
            child.process, child.started_s = _start(child, arguments, http_port), now_s
        return
    code = process.poll()
    if code is None:
        return
    child.failures = 0 if now_s - child.started_s > HEALTHY_S else child.failures + 1
    pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**child.failures) if child.failures else 0.0
    _LOG.error(
        "a process ended", command=arguments[0], number=child.number, exit_code=code,
        pause_s=pause_s,
    )  # fmt: skip
    child.process, child.start_at_s = None, now_s + pause_s


def _start(child: Child, arguments: Sequence[str], http_port: int) -> subprocess.Popen[bytes]:
    port = http_port + child.number if http_port > 0 else http_port
    environment = {**os.environ, f"REFOLD_{arguments[0].upper()}_HTTP_PORT": str(port)}
    command = [sys.executable, "-m", "refold.cli.main", *arguments]
    return subprocess.Popen(command, env=environment)  # noqa: S603  # our own command line


def _end(children: Sequence[Child]) -> int:
    running = [child.process for child in children if child.process is not None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    return max([abs(process.wait()) for process in running], default=0)
