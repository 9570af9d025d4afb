"""Connections to PostgreSQL: few, named, checked, thrown away at the first doubt.

Law of this module: a connection is handed to one thread at a time and comes back idle or not at
all. After a lost connection or a read-only answer every idle one is dropped too, so that the host
name is resolved again and a demoted primary is left (B036). A pool of psycopg_pool connects in
threads of its own and turns the cause of a failure into a time-out; here the caller gets the
cause at once, which the worker needs to tell "away" from "refused".
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.types.string import BytesBinaryDumper

from refold.schemas.errors import Code, InvariantViolation, UsageError
from refold.snapshots.faults import Fault, fault

NAME_BYTES: Final = 63
"""PostgreSQL cuts an application_name after this many bytes: a cut one would name strangers."""
IDLE: Final = 4
"""Connections kept: loads, snapshots, one for the command line's sake, one to spare."""

NOT_TUNED: Final[Mapping[str, str]] = MappingProxyType({})

Connection = psycopg.Connection[tuple[Any, ...]]

_DEFAULTS: Final[dict[str, str | int]] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,  # a silent network is noticed in 5 + 3 * 2 s
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # bytes that nobody acknowledges: broken after 10 s
}

# A user's stronger setting (remote_apply) stands; a weaker one would let a marker be forgotten.
# A plan is made for the table as it is now: one kept from when it was small would read it whole.
_PREPARE: Final = """
SELECT set_config('statement_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', '60000', false),
       set_config('synchronous_commit',
                  CASE WHEN current_setting('synchronous_commit') = 'remote_apply'
                       THEN 'remote_apply' ELSE 'on' END, false),
       set_config('plan_cache_mode', 'force_custom_plan', false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('TimeZone', 'UTC', false)
"""


class CommitUnknownError(Exception):
    """The connection was lost between sending COMMIT and its answer: it may stand or not."""


class Sessions:
    """A handful of connections with one name.

    Args:
        dsn: Connection string or URL; several hosts are allowed, the writable one is taken.
        name: `application_name` of every session, shortened by `session_name` where need be.
        statement_timeout_s: Longest run of one statement, in seconds.
        writable: False for readers, which a standby may serve.
        idle: Connections that are kept, at least one for each thread that works all the time.
        tuned: The server's settings of each session that are to differ from ours.

    Raises:
        UsageError: BAD_SETTING when the connection string cannot be read.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        *,
        statement_timeout_s: float = 10.0,
        writable: bool = True,
        idle: int = IDLE,
        tuned: Mapping[str, str] = NOT_TUNED,
    ) -> None:
        self._most_idle = idle
        self._tuned = tuned
        self.name = session_name(name)
        self._timeout = f"{int(statement_timeout_s * 1000)}"
        self._conninfo = _conninfo(dsn, self.name, writable=writable)
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, *, fresh: bool = False) -> Iterator[Connection]:
        """A connection in autocommit mode, for one thread.

        Args:
            fresh: Open a new one even if an idle one is at hand: for reading back what became
                of a COMMIT.
        """
        connection = (None if fresh else self._take()) or self._connect()
        try:
            yield connection
        except BaseException as error:
            self._after_error(connection, error)
            raise
        self._give(connection)

    def discard(self) -> None:
        """Drop every idle connection."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    close = discard

    def _connect(self) -> Connection:
        connection = psycopg.connect(self._conninfo, autocommit=True)
        # COPY looks dumpers up by type, and finds the slow one that DB-API's Binary has for bytea.
        connection.adapters.register_dumper(bytes, BytesBinaryDumper)
        try:
            connection.execute(_PREPARE, [self._timeout])
            for setting in self._tuned.items():
                connection.execute("SELECT set_config(%s, %s, false)", setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _take(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status is not TransactionStatus.IDLE:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < self._most_idle:
                self._idle.append(connection)
                return
        connection.close()

    def _after_error(self, connection: Connection, error: BaseException) -> None:
        if isinstance(error, psycopg.Error):
            what = fault(error)
            if what in {Fault.LOST, Fault.READ_ONLY}:
                connection.close()
                self.discard()
                return
        elif isinstance(error, CommitUnknownError):
            connection.close()
            self.discard()
            return
        self._give(connection)


@contextmanager
def transaction(connection: Connection, begin: str = "BEGIN") -> Iterator[None]:
    """One transaction whose commit is verified (B037).

    Raises:
        CommitUnknownError: When the connection was lost at COMMIT.
        InvariantViolation: When the server answered COMMIT with a rollback.
    """
    connection.execute(begin, prepare=False)
    try:
        yield
    except BaseException:
        _roll_back(connection)
        raise
    try:
        answer = connection.execute("COMMIT", prepare=False).statusmessage
    except psycopg.OperationalError as error:
        if fault(error) is Fault.CONFLICT:
            raise
        raise CommitUnknownError(str(error)) from error
    if answer != "COMMIT":
        msg = f"PostgreSQL was asked to COMMIT and answered {answer}."
        raise InvariantViolation(msg)


def _roll_back(connection: Connection) -> None:
    """End the transaction; a connection that cannot is closed, which ends it on the server."""
    if connection.closed:
        return
    try:
        connection.execute("ROLLBACK", prepare=False)
    except psycopg.Error:
        connection.close()


def address_of(dsn: str) -> str:
    """Where a connection string leads, without who and with what password: for logs.

    Raises:
        UsageError: BAD_SETTING when it cannot be read.
    """
    given = _parsed(dsn)
    hosts = str(given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = str(given.get("port") or "").split(",")
    several = zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False)
    places = ",".join(f"{host}:{port or 5432}" for host, port in several)
    return f"{places}/{given.get('dbname') or ''}"


def session_name(name: str) -> str:
    """The name as PostgreSQL keeps it: 63 bytes of printable ASCII, still one of its own.

    PostgreSQL would cut a longer one and replace other characters, so that two workers might
    bear one name; here the end becomes a digest of the whole.
    """
    if len(name) <= NAME_BYTES and name.isascii() and name.isprintable():
        return name
    kept = "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:NAME_BYTES])
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{kept[: NAME_BYTES - 17]}~{digest}"


def _parsed(dsn: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.Error as error:
        raise UsageError(
            Code.BAD_SETTING,
            f"The PostgreSQL connection string cannot be read: {str(error).strip()}.",
            "Expected postgresql://user@host:5432/database or key=value pairs.",
        ) from None


def _conninfo(dsn: str, name: str, *, writable: bool) -> str:
    given = _parsed(dsn)
    forced: dict[str, str] = {"application_name": name}
    if writable:
        forced["target_session_attrs"] = "read-write"
    merged = {**_DEFAULTS, **given, **forced}
    return make_conninfo(**{key: str(value) for key, value in merged.items() if value is not None})
