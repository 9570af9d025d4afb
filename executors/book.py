"""A ledger as any service may use it: record a call, hear an answer, decide, forget.

Law of this module: PostgreSQL only, no Kafka, no call; no transaction is open during one. Every
method is one transaction and may run twice. What an executor does beside is `executors.ledger`.
"""

from collections.abc import Collection, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from refold.executors import words
from refold.executors.arrays import packed
from refold.executors.model import Ended, Heard, Settled, Word
from refold.executors.outcome import reference_fault
from refold.executors.recording import DEADLINE_S, Recording
from refold.executors.statements import SCHEMA, statements
from refold.executors.truth import Truth
from refold.executors.words import Ending
from refold.schemas.errors import Code, UsageError
from refold.schemas.limits import KEY_BYTES, id_fault
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import Connection, Sessions, transaction

IDLE: Final = 8
"""Connections kept: one for each thread of an executor, some for local actions."""
TUNED: Final = MappingProxyType(
    {
        # Every statement finds its rows by index, whatever the table was like when it was planned.
        # Planning anew took longer than running, for batches of a few rows.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }
)


class Book:
    """The actions of one database.

    Args:
        dsn: Of the service's own database.
        worker: Name of this process in the rows.
        schema: Where the tables stand.

    Contract: from any thread.
    """

    def __init__(self, dsn: str, worker: str, schema: str = SCHEMA) -> None:
        self.worker = worker
        self.schema = schema
        self._sql = statements(schema)
        self.runner = Runner(Sessions(dsn, f"refold:executor:{worker}", idle=IDLE, tuned=TUNED))

    def close(self) -> None:
        """Close the connections."""
        self.runner.sessions.close()

    def settle(self, ended: Sequence[Ended], published: Collection[str] = ()) -> Settled:
        """Record how calls ended, with the events that tell it (P30).

        Args:
            ended: No key twice.
            published: Ids of events that Kafka has: forgotten in the same transaction.
        """

        def work(connection: Connection) -> Settled:
            with transaction(connection):
                return self.settle_in(connection, ended, published)

        return self.runner.run("recording results", work)

    def settle_in(
        self, connection: Connection, ended: Sequence[Ended], published: Collection[str] = ()
    ) -> Settled:
        """As `settle`, inside a transaction of the caller's."""
        later = words.accepted(ended)
        if later:
            words.hold(connection, self.schema, {storable(each.reference) for each in later})
        columns = columns_of(ended, Ended) | {"published": list(published)}
        columns["reason"] = [storable(each) for each in columns["reason"]]
        columns["reference"] = [storable(each) for each in columns["reference"]]
        rows = connection.execute(self._sql["settle"], packed(columns)).fetchall()
        keys = frozenset(row[0] for row in rows)
        if later:
            words.bear(connection, self.schema, [each.key for each in later], self.worker)
        late = [each for each in ended if each.key not in keys]
        against: set[str] = set()
        if late:
            columns = columns_of(late, Ended)
            columns["reason"] = [storable(each) for each in columns["reason"]]
            found = connection.execute(self._sql["late"], columns).fetchall()
            against = {row[0] for row in found if row[1]}
        return Settled(
            keys,
            frozenset(row[0] for row in rows if row[1]),
            [each for each in late if each.key in against],
        )

    def answer(
        self, ending: Ending, *, key: str = "", target: str = "", reference: str = ""
    ) -> Heard:
        """Take what the other side says after the call: a callback, a message, a poll.

        It may come before the call has returned, twice, or late: it settles what is not settled,
        once, and is kept otherwise.

        Args:
            ending: `Done(event)`, or `Declined(event)`, `Incurable`, `NotDone`.
            key: Of the action; or else
            target: whose action bears
            reference: this name, as `Accepted(reference)` gave it.

        Raises:
            UsageError: BAD_KEY, neither a key nor target and reference are given, or both are.
            RecordError: The event cannot be encoded.
            ServerError: The ledger is away: say it again.
        """
        if bool(key) == bool(target and reference):
            raise UsageError(
                Code.BAD_KEY,
                "an answer is about a key, or about a target's reference, and not both.",
                "Pass key=…, or target=… and reference=….",
            )
        if key and id_fault(key, KEY_BYTES):
            return Heard.STRANGE  # no row can have it
        fault = reference and (reference_fault(reference) or id_fault(target) or "")
        if fault:
            raise UsageError(
                Code.BAD_KEY,
                f"an answer's target and reference cannot be kept: {fault}.",
                "Pass them as the executor declares its target, and as the other side says it.",
            )
        reference = storable(reference)
        word = words.word_of(ending)
        word = msgspec.structs.replace(word, reason=storable(word.reason))

        def work(connection: Connection) -> Heard:
            with transaction(connection):
                if key:
                    return words.hear(connection, self.schema, key, word, self.worker)
                return words.answer(connection, self.schema, target, reference, word, self.worker)

        return self.runner.run("an answer", work)

    def decide(self, key: str, word: Word, who: str) -> Heard:
        """Settle an action by a person's word, which goes to the workflow as any result does.

        What is settled stays. Of an action that failed and was said to be done later, a person
        may say that it was done: then it is. The same word as stands says that somebody has seen
        to the contradiction.

        Args:
            key: Whose.
            word: SUCCEEDED or FAILED, with the event that tells it, and why.
            who: Decides.

        Returns:
            SETTLED, or KNOWN where it had been settled so.

        Raises:
            UsageError: NOT_FOUND; UNSETTLED, a worker is at it; BAD_COMMAND_LINE, it is settled
                otherwise.
        """
        why = msgspec.structs.replace(word, reason=storable(word.reason))

        def work(connection: Connection) -> Heard:
            with transaction(connection):
                return words.decided(connection, self.schema, key, why, who)

        return self.runner.run("a decision", work)

    def action(
        self, key: str, *, action: str, target: str, request: Any, truth: Truth,
        deadline_s: float = DEADLINE_S, instance: str = "", trace: str = "",
    ) -> Recording:  # fmt: skip
        """A call of any service through the ledger: a `with` block, see `Recording`."""
        return Recording(
            self, key, action=action, target=target, request=request, truth=truth,
            deadline_s=deadline_s, instance=instance, trace=trace,
        )  # fmt: skip

    def prune(self, horizon_s: float, most: int = 10_000) -> int:
        """Forget actions that were settled longer ago than the horizon, and published.

        A key that is forgotten would be done again if its command came again: the horizon is
        longer than the life of any instance, and than the memory of whoever sends commands.
        What is not settled, not published, contradicted, or still to be undone is kept.

        Args:
            horizon_s: Seconds, above 0.
            most: How many at once.

        Returns:
            How many were forgotten.
        """
        values = {"horizon_s": horizon_s, "most": most}

        def work(connection: Connection) -> int:
            with transaction(connection):
                connection.execute(self._sql["prune_scanners"], values)
                connection.execute(self._sql["prune_answers"], values)
                return connection.execute(self._sql["prune"], values).rowcount

        return self.runner.run("forgetting old actions", work)


def storable(text: str) -> str:
    """PostgreSQL's text holds no U+0000 and no half of a character: what others have said must
    not stop the ledger."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def columns_of(rows: Sequence[Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Rows as columns, by the names of their fields."""
    return {name: [getattr(row, name) for row in rows] for name in kind.__struct_fields__}
