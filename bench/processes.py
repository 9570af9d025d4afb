"""One measured process: started fresh, its CPU time taken when it ends, never left behind.

Law of this module: a process that was started here is ended here, by its own id.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
"""`bench` is run from a checkout; its parent folder holds the modules that workers load."""


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    output: str
    error: str
    cpu_s: float
    """User and system time of all its threads, start-up included."""


class Process:
    """A child process with its output in files, so that no pipe can fill and stop it."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with log.with_suffix(".out").open("w") as out, log.with_suffix(".err").open("w") as err:
            self._popen = subprocess.Popen(
                command,
                stdout=out,
                stderr=err,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            )
        self.pid = self._popen.pid

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to a process that still runs."""
        if self.is_running():
            self._popen.send_signal(number)

    def wait(self, timeout_s: float) -> Ended:
        """Waits until it ends; kills it when it takes longer."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            code = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return Ended(code, self._read(".out"), self._read(".err"), cpu_s)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} has ended")

    def last_words(self) -> str:
        """The end of what it said on standard error."""
        return self._read(".err")[-600:]

    def _read(self, suffix: str) -> str:
        return self._log.with_suffix(suffix).read_text(errors="replace")


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """Runs a process for the length of a block; kills it if it still runs at the end."""
    process = Process(command, log, environment)
    try:
        yield process
    finally:
        if process.is_running():
            process.signal(signal.SIGKILL)
            process.wait(10)


def module(name: str, *arguments: str) -> list[str]:
    """The command line of a module of this checkout, under this interpreter."""
    return [sys.executable, "-m", name, *arguments]
