"""Moving a watermark: the marker with its snapshots, `rows_to` with its rows.

Law of this module: one transaction, whose first statement moves the watermark under the epoch and
meets exactly one row. What became of a COMMIT without an answer is read back on a new connection
before anything is said: (mine, new) is done, (mine, previous) is tried again, all else is a fence
(P7, P20).
"""

from collections.abc import Callable, Mapping

import psycopg

from refold.schemas.errors import InvariantViolation
from refold.snapshots.faults import Fault, fault
from refold.snapshots.model import Cut, Flush
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import CommitUnknownError, Connection, transaction
from refold.snapshots.writer import RowWriter

Write = Callable[[Connection, Fault | None], bool]
"""Moves and writes inside an open transaction, the careful way once a fault is given; False when
the watermark met no row."""


class Watermarks:
    """Moves watermarks.

    Args:
        runner: Runs each attempt.
        sql: Of `statements.statements`.
        writer: Told when a statement was over its time-out, and when all went well.
    """

    def __init__(self, runner: Runner, sql: Mapping[str, bytes], writer: RowWriter) -> None:
        self._runner = runner
        self._sql = sql
        self._writer = writer

    def advance(
        self,
        doing: str,
        what: Cut | Flush,
        new: int,
        write: Write,
    ) -> bool:
        """Move a watermark and write what stands below it; say only what is known.

        Args:
            doing: What it is, as a noun, for the error.
            what: The cut or the flush.
            new: Where its watermark goes.
            write: Does it, inside the transaction.

        Returns:
            True when it is committed, False when the caller is fenced.

        Raises:
            InvariantViolation: When the watermark would move back (O4).
            ServerError: POSTGRES_AWAY or POSTGRES_REFUSED; calling again is right.
        """
        _forward(what, new)
        careful: Fault | None = None

        def act() -> bool:
            nonlocal careful
            try:
                with self._runner.sessions.borrow() as connection:
                    return self._try(connection, write, careful)
            except psycopg.Error as error:
                if careful is None and fault(error) in {Fault.UNIQUE, Fault.DATA}:
                    careful = fault(error)
                    return act()
                if fault(error) is Fault.SLOW:
                    self._writer.smaller()
                raise
            except UnicodeEncodeError:
                if careful is not None:
                    raise
                careful = Fault.DATA
                return act()
            except CommitUnknownError:
                return False

        def settle() -> bool:
            if act():
                self._writer.larger()
                return True
            standing = self._standing(what)
            if standing == (what.epoch, what.previous):  # also where nothing was to move
                raise CommitUnknownError(doing)
            return standing == (what.epoch, new)

        return self._runner.patiently(doing, settle)

    def _try(
        self,
        connection: Connection,
        write: Write,
        careful: Fault | None,
    ) -> bool:
        with transaction(connection):
            return write(connection, careful)

    def _standing(self, what: Cut | Flush) -> tuple[int, int]:
        """(epoch, watermark) as they stand, read on a new connection."""
        with self._runner.sessions.borrow(fresh=True) as connection:
            found = connection.execute(
                self._sql["standing"], [what.topic, what.partition]
            ).fetchone()
        if found is None:
            return -1, -1
        epoch, marker, rows_to = found
        return epoch, marker if isinstance(what, Cut) else rows_to


def _forward(what: Cut | Flush, new: int) -> None:
    if new < what.previous:
        msg = f"A watermark at {what.previous} was asked to move back to {new}."
        raise InvariantViolation(msg, topic=what.topic, partition=what.partition)
