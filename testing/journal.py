"""`Journal`: what the outside world has done, been asked and said, in an SQLite file.

Law of this module: rows are added and never changed, but for answers that were fetched; what
stands here is the truth that a test compares everything else with.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Final

import msgspec

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS effect (number INTEGER PRIMARY KEY, system TEXT, action TEXT,"
    " key TEXT, request TEXT, reference TEXT, done_s REAL, shown_s REAL)",
    "CREATE INDEX IF NOT EXISTS effect_key ON effect (system, key)",
    "CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY, system TEXT, kind TEXT,"
    " action TEXT, key TEXT, outcome TEXT, at_s REAL)",
    "CREATE INDEX IF NOT EXISTS request_key ON request (system, kind, key)",
    "CREATE TABLE IF NOT EXISTS answer (number INTEGER PRIMARY KEY, system TEXT, key TEXT,"
    " reference TEXT, due_s REAL, times INTEGER)",
)


class Effect(msgspec.Struct, frozen=True):
    """Something that was done outside."""

    number: int
    """Order of doing, over all systems."""
    system: str
    action: str
    key: str
    request: Mapping[str, Any]
    reference: str
    """The system's own name for it."""
    done_s: float
    shown_s: float
    """Not shown to who asks before that."""


class Request(msgspec.Struct, frozen=True):
    """A call or a question that reached a system, or was lost on the way, and what it came to."""

    number: int
    system: str
    kind: str
    """`call` or `ask`."""
    action: str
    key: str
    outcome: str
    at_s: float


class Late(msgspec.Struct, frozen=True):
    """An answer of a system that had only accepted, as it comes by itself."""

    system: str
    key: str
    reference: str


class Journal:
    """The journal of one world.

    Args:
        path: File that it is kept in, and found again after a restart; None: in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.lock = RLock()
        """Held from looking at a key to writing what was done about it."""
        where = ":memory:" if path is None else str(path)
        self._file = sqlite3.connect(where, check_same_thread=False, isolation_level=None)
        if path is not None:
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=OFF")  # it outlives processes, not the machine
        for table in _TABLES:
            self._file.execute(table)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def done(
        self, system: str, action: str, key: str, request: bytes, reference: str,
        done_s: float, shown_s: float,
    ) -> None:  # fmt: skip
        """Note an effect."""
        self._run(
            "INSERT INTO effect (system, action, key, request, reference, done_s, shown_s)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            system, action, key, request.decode(), reference, done_s, shown_s,
        )  # fmt: skip

    def note(
        self, system: str, kind: str, action: str, key: str, outcome: str, at_s: float
    ) -> None:
        """Note a call or a question and what it came to."""
        self._run(
            "INSERT INTO request (system, kind, action, key, outcome, at_s)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            system, kind, action, key, outcome, at_s,
        )  # fmt: skip

    def times(self, system: str, kind: str, key: str) -> int:
        """How often a key was called or asked about so far."""
        ((found,),) = self._run(
            "SELECT count(*) FROM request WHERE system = ? AND kind = ? AND key = ?",
            system, kind, key,
        )  # fmt: skip
        return int(found)

    def count(self) -> int:
        """How many calls and questions there were."""
        ((found,),) = self._run("SELECT count(*) FROM request")
        return int(found)

    def effects(self, system: str = "", key: str = "") -> list[Effect]:
        """Effects in the order of doing; of one system, or under one key, if given."""
        return [
            Effect(number, name, action, under, msgspec.json.decode(request), *rest)
            for number, name, action, under, request, *rest in self._picked("effect", system, key)
        ]

    def requests(self, system: str = "", key: str = "") -> list[Request]:
        """Calls and questions in order; of one system, or about one key, if given."""
        return [Request(*row) for row in self._picked("request", system, key)]

    def doubles(self) -> dict[tuple[str, str], int]:
        """(system, key) → how often it was done, where that is more than once."""
        found = self._run(
            "SELECT system, key, count(*) FROM effect GROUP BY system, key HAVING count(*) > 1"
        )
        return {(system, key): int(times) for system, key, times in found}

    def promise(self, system: str, key: str, reference: str, due_s: float, times: int) -> None:
        """Note an answer that comes later, so often."""
        self._run(
            "INSERT INTO answer (system, key, reference, due_s, times) VALUES (?, ?, ?, ?, ?)",
            system, key, reference, due_s, times,
        )  # fmt: skip

    def fetch(self, now_s: float) -> list[Late]:
        """Answers that are due and have not come yet; each comes as often as it was promised."""
        with self.lock:
            found = self._run(
                "DELETE FROM answer WHERE due_s <= ? RETURNING number, system, key, reference,"
                " times",
                now_s,
            )
        return [
            Late(system, key, reference)
            for _, system, key, reference, times in sorted(found)
            for _ in range(times)
        ]

    def _picked(self, table: str, system: str, key: str) -> Sequence[Any]:
        return self._run(
            f"SELECT * FROM {table} WHERE (? = '' OR system = ?) AND (? = '' OR key = ?)"
            " ORDER BY number",
            system, system, key, key,
        )  # fmt: skip

    def _run(self, text: str, *values: object) -> list[Any]:
        with self.lock:
            return self._file.execute(text, values).fetchall()
