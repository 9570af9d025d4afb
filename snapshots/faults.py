"""What an error of PostgreSQL means for us: try again, later, smaller, elsewhere, or never.

Law of this module: classification only, by exception class and SQLSTATE together, because a
connection that is lost inside COPY or COMMIT carries no SQLSTATE. Texts shown to people hold the
server's primary message and never its detail, which may quote data.
"""

from enum import Enum

import psycopg

from refold.schemas.errors import Code, ServerError


class Fault(Enum):
    """What to do about an error."""

    LOST = "the connection is gone: use a new one"
    READ_ONLY = "this server no longer takes writes: drop all connections, resolve again"
    CONFLICT = "another transaction won: run this one again"
    SLOW = "over the statement timeout: later and smaller"
    LOCKED = "somebody holds the row past the lock timeout"
    DATA = "a value that a column cannot hold"
    UNIQUE = "a row with this key stands, or comes twice"
    AWAY = "the server cannot serve now: later"
    REFUSED = "a person must act: rights, database, schema"


_BY_STATE = {
    "25006": Fault.READ_ONLY,
    "40001": Fault.CONFLICT,
    "40P01": Fault.CONFLICT,
    "57014": Fault.SLOW,
    "55P03": Fault.LOCKED,
    "23505": Fault.UNIQUE,
    "21000": Fault.UNIQUE,  # one batch brought one key twice
    "57P01": Fault.LOST,
    "57P02": Fault.LOST,
    "57P03": Fault.AWAY,
    "57P05": Fault.LOST,
}
_BY_CLASS = {
    "08": Fault.LOST,
    "22": Fault.DATA,
    "53": Fault.AWAY,
    "54": Fault.DATA,
    "55": Fault.AWAY,
    "57": Fault.AWAY,
    "58": Fault.AWAY,
}
_MISSING = {"42P01", "3F000", "42703"}
_CURES = {
    "28P01": "Check user and password of the connection string.",
    "28000": "Check user and pg_hba.conf.",
    "3D000": "Create the database first.",
    "42501": "Give the role its rights: `refold db grant`.",
    "42704": "Create the role first.",
}
_REFUSALS = ("password authentication failed", "no pg_hba.conf entry", "does not exist")


def fault(error: psycopg.Error) -> Fault:
    """Classify an error of psycopg."""
    state = error.sqlstate
    if state is not None:
        return _BY_STATE.get(state) or _BY_CLASS.get(state[:2], Fault.REFUSED)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        # A failed connection attempt has no SQLSTATE in psycopg; its text is all there is.
        refused = any(text in str(error) for text in _REFUSALS)
        return Fault.REFUSED if refused else Fault.LOST
    if isinstance(error, psycopg.DataError):
        return Fault.DATA
    return Fault.REFUSED


def server_error(error: psycopg.Error, doing: str) -> ServerError:
    """The error to raise to a caller who cannot repair it.

    Args:
        error: As raised by psycopg.
        doing: What was being done, as a noun: "the claim of order/3".
    """
    lines = [error.diag.message_primary or "", *str(error).strip().splitlines()]
    said = next(filter(None, (line.strip(" .") for line in lines)), "")
    said = said or f"no reason was given ({type(error).__name__})"
    where = {"sqlstate": error.sqlstate} if error.sqlstate else {}
    if error.sqlstate in _MISSING:
        return ServerError(
            Code.SCHEMA_VERSION,
            f"PostgreSQL has not the tables that this release needs ({said}) for {doing}.",
            "Run `refold db migrate`, for an executor's ledger `refold ledger migrate`, with a "
            "role that may create tables.",
        )
    if fault(error) in {Fault.REFUSED, Fault.DATA, Fault.UNIQUE}:
        return ServerError(
            Code.POSTGRES_REFUSED,
            f"PostgreSQL refused {doing}: {said}.",
            _CURES.get(error.sqlstate or "", "Look at the role, the rights and the address."),
            **where,
        )
    return ServerError(
        Code.POSTGRES_AWAY,
        f"PostgreSQL did not complete {doing}: {said}.",
        "It is tried again by itself; if it lasts, look at the server's log.",
        **where,
    )


def unfit(error: ServerError) -> bool:
    """Whether the server is there and cannot hold a value: tried again it is refused again."""
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and fault(cause) is Fault.DATA
