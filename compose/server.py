"""One server process of the local pair: started, found again, stopped, killed.

Law of this module: the pid file alone never proves that a server runs. A process is ours when its
pid, its start time and its command line all match what was written down, so that a pid given to
another program after a reboot is never signalled.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from refold.schemas.errors import Code, RefoldError, ServerError

START_TIMEOUT_S: Final = 120.0
"""A start takes 4 s on a free machine, tenfold on a crowded one; a death is seen at once."""
STOP_TIMEOUT_S: Final = 30.0
"""Kafka writes a clean-shutdown mark per log on SIGTERM; beyond this it is killed."""
DISK_MB: Final = 300
"""Free space without which a start is refused: two fresh servers take half of it."""
LOG_TAIL_BYTES: Final = 2000
"""How much of a server's log an error shows: enough for its last exception."""


@dataclass(frozen=True, slots=True)
class Started:
    """What is written down about a server process when it starts.

    Attributes:
        pid: Process id.
        created: Start time in seconds since the epoch, as the system keeps it.
        port: TCP port it listens on at 127.0.0.1.
    """

    pid: int
    created: float
    port: int


def free_port() -> int:
    """A TCP port that is free at this moment on 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def check_port_free(port: int, server: str, option: str) -> None:
    """Refuse a port that somebody listens on.

    Raises:
        ServerError: LOCAL_PORT_TAKEN; names the option that chooses another port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ServerError(
                Code.LOCAL_PORT_TAKEN,
                f"{server} was to listen on 127.0.0.1:{port}, but another program holds that port.",
                f"Stop that program or choose another port with {option}.",
                port=port,
            ) from error


class Server(ABC):
    """A server process with its own folder: data, log and pid file.

    Args:
        home: Folder of this server alone; created when missing.
        port: TCP port at 127.0.0.1; None takes the port of the last start, else a free one.

    The process survives its parent. Start it under a lock when several programs may.
    """

    name: str
    option: str

    def __init__(self, home: Path, port: int | None = None) -> None:
        self.home = home
        self._wanted_port = port

    @abstractmethod
    def prepare(self, port: int) -> None:
        """Make the data folder ready for the next start."""

    @abstractmethod
    def command(self, port: int) -> Sequence[str]:
        """The command line; it holds the path of `home`, by which the process is recognised."""

    @abstractmethod
    def probe(self) -> None:
        """One round trip that proves the server does its work; raises when it does not yet."""

    def environment(self) -> Mapping[str, str]:
        """Variables of the process."""
        return dict(os.environ)

    def account(self) -> tuple[int | None, int | None]:
        """User and group id to run under, where they differ from ours."""
        return None, None

    @property
    def log_file(self) -> Path:
        """What the process wrote to its standard output and error."""
        return self.home / "log.txt"

    @property
    def _pid_file(self) -> Path:
        return self.home / "process.json"

    @property
    def port(self) -> int:
        """The port of the running server or of its last start; 0 when it never started."""
        started = self._started()
        return started.port if started else (self._wanted_port or 0)

    @property
    def pid(self) -> int | None:
        """Process id when it runs, else None."""
        process = self._process()
        return process.pid if process else None

    def is_running(self) -> bool:
        """Whether the process that was started last is alive and is really this server."""
        return self._process() is not None

    def choose_port(self) -> int:
        """The port of the running server, else the one that the next start takes.

        Raises:
            ServerError: LOCAL_PORT_TAKEN.
        """
        if self.is_running():
            return self.port
        last = self._started()
        port = self._wanted_port or (last.port if last else free_port())
        check_port_free(port, self.name, self.option)
        return port

    def answers(self) -> bool:
        """Whether one `probe` succeeds now."""
        try:
            self.probe()
        except Exception:  # each client raises its own kinds, and all of them mean no
            return False
        return True

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the server, if it does not run, and wait until it does its work.

        Raises:
            ServerError: LOCAL_PORT_TAKEN; LOCAL_DISK when the disk is full; LOCAL_START when it
                died or did not answer in time, with the end of its log.
        """
        if not self.is_running():
            port = self.choose_port()
            with disk_errors(self.home):
                self.home.mkdir(parents=True, exist_ok=True)
                check_disk(self.home)
                self.prepare(port)
                self._spawn(port)
        self.wait_ready(timeout_s)

    def _spawn(self, port: int) -> None:
        user, group = self.account()
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - a command line of our own making
                list(self.command(port)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(self.environment()),
                cwd="/",
                user=user,
                group=group,
            )
        created = psutil.Process(process.pid).create_time()
        self._pid_file.write_text(json.dumps(asdict(Started(process.pid, created, port))))
        # The process outlives this object on purpose: take from Popen the duty to wait for it.
        process.returncode = 0

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until `probe` succeeds.

        Raises:
            ServerError: LOCAL_START when the process ended or the time is over.
        """
        attempts = Retrying(
            stop=stop_after_delay(timeout_s),
            wait=wait_fixed(0.1),
            retry=retry_if_exception(lambda _: self.is_running()),
            reraise=True,
        )
        try:
            attempts(self.probe)
        except Exception as error:
            if isinstance(error, RefoldError):
                raise
            if "No space left on device" in self._log_tail():
                raise _disk_error(self.home, "No space left on device") from error
            state = "did not answer in time" if self.is_running() else "ended while it started"
            raise ServerError(
                Code.LOCAL_START,
                f"{self.name} {state} ({error}). Its log ends with:\n{self._log_tail()}\n",
                f"Read {self.log_file}; `refold local reset` starts from nothing.",
                timeout_s=timeout_s,
            ) from error

    def stop(self) -> None:
        """End the server in order; kill it when it takes longer than `STOP_TIMEOUT_S`."""
        process = self._process()
        if process is None:
            return
        try:
            process.send_signal(self.stop_signal())
            process.wait(STOP_TIMEOUT_S)
        except psutil.NoSuchProcess:
            return  # it ended by itself in between
        except psutil.TimeoutExpired:
            self.kill()

    def stop_signal(self) -> signal.Signals:
        """The signal that asks for an orderly end."""
        return signal.SIGTERM

    def kill(self) -> None:
        """End the server as a power cut would: SIGKILL to it and its children."""
        process = self._process()
        if process is None:
            return
        family = _family(process)
        _signal(family, signal.SIGKILL)
        psutil.wait_procs(family, timeout=STOP_TIMEOUT_S)

    def pause(self) -> None:
        """Freeze the server and its children (SIGSTOP): it holds its port and answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal_all(signal.SIGCONT)

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start(timeout_s)

    def _signal_all(self, what: signal.Signals) -> None:
        process = self._process()
        if process is not None:
            _signal(_family(process), what)

    def _started(self) -> Started | None:
        try:
            fields = json.loads(self._pid_file.read_text())
            return Started(int(fields["pid"]), float(fields["created"]), int(fields["port"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never started, or the file was cut off by a crash: nothing is known

    def _process(self) -> psutil.Process | None:
        started = self._started()
        if started is None:
            return None
        try:
            process = psutil.Process(started.pid)
            ours = (
                abs(process.create_time() - started.created) < 1.0
                and process.status() != psutil.STATUS_ZOMBIE
                and any(str(self.home) in part for part in process.cmdline())
            )
        except psutil.Error:
            return None
        return process if ours else None

    def _log_tail(self) -> str:
        try:
            return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        except OSError as error:
            return f"(no log: {error})"


def _family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(family: Sequence[psutil.Process], what: signal.Signals) -> None:
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # ended by itself in between
            member.send_signal(what)


def check_disk(folder: Path, needed_mb: int = DISK_MB) -> None:
    """Refuse to start where the disk is nearly full.

    Raises:
        ServerError: LOCAL_DISK.
    """
    free_mb = shutil.disk_usage(folder).free // 1_000_000
    if free_mb < needed_mb:
        raise _disk_error(folder, f"{free_mb} MB are free, {needed_mb} MB are needed")


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk or a folder without rights into an error that says what to do.

    Raises:
        ServerError: LOCAL_DISK.
    """
    try:
        yield
    except OSError as error:
        raise _disk_error(folder, error.strerror or str(error)) from error


def _disk_error(folder: Path, reason: str) -> ServerError:
    return ServerError(
        Code.LOCAL_DISK,
        f"cannot write to {folder}: {reason}.",
        "Free some space, or choose another folder with --dir.",
    )
