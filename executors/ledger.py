"""The ledger of an executor: what was to be done outside, what may have happened, what is known.

Law of this module: as of `executors.book`. An intent is durable before its call, and in flight
before it is sent (P32); what may have happened is unknown, and never planned (P30, P31).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from refold.executors import words
from refold.executors.arrays import packed
from refold.executors.book import Book, columns_of, storable
from refold.executors.model import (
    Claimed,
    Ended,
    Intent,
    Place,
    Planned,
    Rejected,
    Result,
    Standing,
    Status,
    Wanted,
)
from refold.executors.statements import SCHEMA
from refold.processors.engine_events import UNKNOWN, Unknown
from refold.schemas.canonical import hash16
from refold.schemas.envelope import Outcome, derived_id
from refold.schemas.errors import InvariantViolation
from refold.snapshots.sessions import Connection, transaction

BATCH: Final = 500
LINGER_S: Final = 0.001
"""What came in company is waited for so long: two small transactions cost twice as much as one."""
FORGOTTEN: Final = "the ledger had forgotten this command: it may have been called"
DISPUTED: Final = "an earlier attempt was said to have failed, and to be done"
RESTORED: Final = "the ledger was restored from a copy: it may have been called since"


class Ledger(Book):
    """The rows of one executor: what it plans, claims, asks about and has to tell."""

    def __init__(self, dsn: str, worker: str, schema: str = SCHEMA) -> None:
        super().__init__(dsn, worker, schema)
        self._planned: dict[str, int] = {}
        """Key → epoch of what a plan has claimed whose COMMIT was not answered."""
        self._claims: dict[str, Claimed] = {}
        """Likewise of a claim, by key."""

    def plan(
        self,
        intents: Sequence[Intent],
        places: Sequence[Place],
        status: Status = Status.PLANNED,
        rejected: Sequence[Rejected] = (),
    ) -> Planned:
        """Write intents and how far the commands are planned, in one transaction (P32).

        Args:
            intents: In log order; a key that stands is left as it is, but for a failed one that
                comes with a higher attempt. Those with a lease begin if they may.
            places: Where the next commands are.
            status: PLANNED, or UNKNOWN for commands that a restored ledger has forgotten.
            rejected: Records that are no commands, to be kept.
        """
        columns = columns_of(intents, Intent)
        columns["request_hash"] = [hash16(each.request) for each in intents]
        columns["trace"] = [storable(each.trace) for each in intents]
        columns = packed(columns | {"status": status, "worker": self.worker})
        higher = any(each.attempt > 1 for each in intents)

        def work(connection: Connection) -> Planned:
            with transaction(connection):
                with connection.pipeline():
                    written = connection.execute(self._sql["plan"], columns)
                    again = connection.execute(self._sql["replan"], columns) if higher else None
                    if places:
                        connection.execute(self._sql["intake"], columns_of(places, Place))
                    for each in rejected:
                        connection.execute(self._sql["reject"], _rejected(each))
                    new = written.fetchall()
                    told = [row for row in again.fetchall() if row[6]] if again else []
                refused = []
                if len(new) < len(intents):  # some stand already
                    connection.execute(self._sql["repeat"], columns)
                    clashes = connection.execute(self._sql["clash"], columns)
                    refused = [row[0] for row in clashes.fetchall()]
                born = {key for key, state, _ in new if state == Status.UNKNOWN}
                self._tell(connection, _born(intents, born))
                self._tell(connection, [_unknown(row, DISPUTED) for row in told])
                begun = {key: epoch for key, state, epoch in new if state == Status.IN_FLIGHT}
                if self._planned:
                    begun |= self._adopted_of(connection, intents)
                self._planned |= begun
            return Planned(begun, refused)

        planned = self.runner.run("planning commands", work)
        for each in intents:
            self._planned.pop(each.key, None)
        return planned

    def distrust(self, target: str, partition: int) -> int:
        """Make unknown what is planned of a partition, in a ledger that was restored (P32).

        Wanted when the group's offset is past the ledger's position: what waits in the copy may
        have been called since. Local actions stay planned: their effects were restored with them.

        Returns:
            How many.
        """

        def work(connection: Connection) -> int:
            with transaction(connection):
                values = {"target": target, "partition": partition}
                rows = connection.execute(self._sql["distrust"], values).fetchall()
                self._tell(connection, [_unknown(row, RESTORED) for row in rows])
            return len(rows)

        return self.runner.run("distrusting planned actions", work)

    def position(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Topic id and next offset to plan; None where nothing was planned of the partition."""
        row = self.runner.run(
            "reading the intake",
            lambda c: c.execute(self._sql["position"], [topic, partition]).fetchone(),
        )
        return None if row is None else (str(row[0]), int(row[1]))

    def claim(self, target: str, wanted: Sequence[Wanted]) -> list[Claimed]:
        """Take planned actions that may be called now; they are in flight when this returns.

        A compensation settles its forward action first (P33): what has not begun never begins,
        and what was not done needs no undoing; the relay tells so.
        """

        def work(connection: Connection) -> list[Claimed]:
            with transaction(connection):
                row = connection.execute(self._sql["undoing"], {"target": target}).fetchone()
                if row is not None and row[0]:
                    self._undo(connection, target)
                found = [each for one in wanted for each in self._take(connection, target, one)]
                self._claims |= {each.key: each for each in found}
            return found

        claimed = self.runner.run("claiming actions", work)
        for each in claimed:
            self._claims.pop(each.key, None)
        return claimed

    def _take(self, connection: Connection, target: str, wanted: Wanted) -> list[Claimed]:
        """Claim rows of one action, those first that an unanswered COMMIT has claimed."""
        doubtful = [each for each in self._claims.values() if each.type == wanted.type]
        doubtful = doubtful[: wanted.most]
        adopted = self._adopted(
            connection, [(each.key, each.epoch, wanted.lease_s) for each in doubtful],
            Status.PLANNED,
        )  # fmt: skip
        for each in doubtful:
            self._claims.pop(each.key, None)  # another's by now, or never claimed
        room = wanted.most - len(adopted)
        more = msgspec.structs.replace(wanted, most=room)
        return adopted + (self._claimed(connection, "claim", target, more) if room else [])

    def _adopted_of(self, connection: Connection, intents: Sequence[Intent]) -> dict[str, int]:
        """Key → epoch of these that an unanswered COMMIT has claimed."""
        leases = {each.key: each.lease_s for each in intents if each.lease_s}
        doubtful = [(k, e, leases[k]) for k, e in self._planned.items() if k in leases]
        adopted = self._adopted(connection, doubtful, Status.PLANNED)
        return {each.key: each.epoch for each in adopted}

    def _adopted(
        self, connection: Connection, doubtful: Sequence[tuple[str, int, float]], known: Status
    ) -> list[Claimed]:
        """Which of these, each with epoch and lease, were claimed by us after all."""
        if not doubtful:
            return []
        keys, epochs, leases = zip(*doubtful, strict=True)
        values = {
            "key": list(keys), "epoch": list(epochs), "lease_s": list(leases), "known": str(known),
            "worker": self.worker,
        }  # fmt: skip
        rows = connection.execute(self._sql["adopt"], values, binary=True).fetchall()
        return [_claimed(row) for row in rows]

    def recall(
        self, target: str, wanted: Wanted, horizon_s: float, *, eager: bool = False
    ) -> list[Claimed]:
        """Take unknown actions that are to be called again under their key.

        Args:
            target: Whose.
            wanted: Of which action, how many.
            horizon_s: Only those whose first call is not longer ago.
            eager: Those too whose next call is not due yet.
        """
        more = {"horizon_s": min(horizon_s, 1e9), "eager": eager}
        return self.runner.run(
            "claiming unknown actions",
            lambda c: self._claimed(c, "recall", target, wanted, more),
        )

    def ask(
        self, target: str, types: Sequence[str], most: int, hold_s: float, *, eager: bool = False
    ) -> list[Claimed]:
        """Take unknown actions whose other side can be asked; nobody else asks for `hold_s`.

        Args:
            target: Whose.
            types: Of which command types.
            most: How many.
            hold_s: Seconds.
            eager: Those too whose next question is not due yet.
        """
        values = {
            "target": target, "types": list(types), "most": most, "hold_s": hold_s, "eager": eager,
        }  # fmt: skip
        rows = self.runner.run(
            "taking unknown actions",
            lambda c: c.execute(self._sql["ask"], values, binary=True).fetchall(),
        )
        return [_claimed(row) for row in rows]

    def poll(
        self, target: str, type_: str, most: int, poll_s: float, hold_s: float
    ) -> list[Claimed]:
        """Take accepted actions that are to be asked about; nobody else does for `hold_s`.

        Args:
            target: Whose.
            type_: Of which command type.
            most: How many.
            poll_s: Only those that were called so many seconds ago.
            hold_s: Seconds.
        """
        values = {
            "target": target, "type": type_, "most": most, "poll_s": poll_s, "hold_s": hold_s,
        }  # fmt: skip
        rows = self.runner.run(
            "taking accepted actions",
            lambda c: c.execute(self._sql["poll"], values, binary=True).fetchall(),
        )
        return [_claimed(row) for row in rows]

    def not_yet(self, told: Sequence[tuple[Claimed, float]]) -> None:
        """Accepted actions of which the other side says "not yet": asked again after the pause.

        Args:
            told: Each with seconds.
        """
        values = {
            "key": [each.key for each, _ in told],
            "epoch": [each.epoch for each, _ in told],
            "pause_s": [pause_s for _, pause_s in told],
        }
        self.runner.run(
            "noting what is not done yet",
            lambda c: c.execute(self._sql["not_yet"], values).rowcount,
        )

    def run_out(self, target: str, most: int = BATCH) -> list[Result]:
        """Make actions unknown whose worker did not come back; gives the events that say so."""

        def work(connection: Connection) -> list[Result]:
            with transaction(connection):
                values = {"target": target, "most": most}
                rows = connection.execute(self._sql["run_out"], values).fetchall()
                lost = [_unknown(row, row[7]) for row in rows if row[6]]
                self._tell(connection, lost)
            return [each for each in lost if each.topic]

        return self.runner.run("looking for run-out leases", work)

    def renew(self, leases: Sequence[tuple[Claimed, float]]) -> set[str]:
        """Lease actions in flight anew, each for so many seconds; gives those that are ours."""
        values = {
            "key": [each.key for each, _ in leases],
            "epoch": [each.epoch for each, _ in leases],
            "lease_s": [lease_s for _, lease_s in leases],
        }
        rows = self.runner.run(
            "renewing leases", lambda c: c.execute(self._sql["renew"], values).fetchall()
        )
        return {row[0] for row in rows}

    def local(
        self, claimed: Claimed, work: Callable[[Connection], Ended]
    ) -> tuple[Ended, bool] | None:
        """Do an action's effect and record it, in one transaction.

        Args:
            claimed: The row, in flight.
            work: Writes the effect, on this connection, and says how it ended.

        Returns:
            How it ended, and whether its result must wait for an earlier one; None where the row
            is not this claim's any more: nothing was done.
        """

        def run(connection: Connection) -> tuple[Ended, bool] | None:
            with transaction(connection):
                row = {"key": claimed.key, "epoch": claimed.epoch}
                if connection.execute(self._sql["lock"], row).fetchone() is None:
                    return None
                connection.execute(self._sql["untuned"])
                ended = work(connection)
                settled = self.settle_in(connection, [ended], ())
                if ended.key not in settled.keys:
                    raise InvariantViolation("a locked row was not settled", key=ended.key)
            return ended, ended.key in settled.later

        return self.runner.run("a local action", run)

    def results(self, target: str, age_s: float, most: int = BATCH) -> list[Result]:
        """Events that somebody left, each with all of its instance, in order.

        Args:
            target: Whose.
            age_s: What Kafka is not known to have after so many seconds was left.
            most: How many of one topic: where one takes nothing the others go on.
        """
        rows = self.runner.run(
            "reading results",
            lambda c: c.execute(
                self._sql["results"],
                {"target": target, "age_s": age_s, "most": most},
                binary=True,
            ).fetchall(),
        )
        return [
            Result(
                key=row[0], topic=row[1], instance=row[2], tenant=row[3], event_id=row[4],
                type=row[5], value=row[6], attempt=row[7], outcome=row[8], trace=row[9],
            )
            for row in rows
        ]  # fmt: skip

    def published(self, ids: Collection[str]) -> None:
        """Kafka has these events."""
        self.runner.run(
            "forgetting published results",
            lambda c: c.execute(self._sql["published"], {"ids": list(ids)}).rowcount,
        )

    def standing(self, target: str, stuck_s: float) -> Standing:
        """What of a target is not settled.

        Args:
            target: Whose rows.
            stuck_s: What is in flight or unknown for longer is stuck.
        """
        row = self.runner.run(
            "counting actions",
            lambda c: c.execute(
                self._sql["standing"], {"target": target, "stuck_s": stuck_s}
            ).fetchone(),
        )
        return Standing(
            planned=row[0], in_flight=row[1], unknown=row[2], stuck=row[3], contradicted=row[4],
            oldest_planned_s=row[5], oldest_unknown_s=row[6],
        ) if row is not None else Standing()  # fmt: skip

    def scanned(self, target: str) -> None:
        """This process has scanned."""
        values = {"worker": self.worker, "target": target}
        self.runner.run("noting a scan", lambda c: c.execute(self._sql["scanned"], values).rowcount)

    def _claimed(
        self,
        connection: Connection,
        name: str,
        target: str,
        wanted: Wanted,
        more: dict[str, Any] | None = None,
    ) -> list[Claimed]:
        values = {
            "target": target, "type": wanted.type, "most": wanted.most, "lease_s": wanted.lease_s,
            "worker": self.worker, **(more or {}),
        }  # fmt: skip
        cursor = connection.execute(self._sql[name], values, binary=True)
        return [_claimed(row) for row in cursor.fetchall()]

    def _undo(self, connection: Connection, target: str) -> None:
        """Settle the forward actions of compensations, and those that have nothing to undo."""
        connection.execute(self._sql["cancel"], {"target": target})
        rows = connection.execute(self._sql["nothing"], {"target": target}).fetchall()
        if rows:
            word = words.nothing_to_undo()
            found = [(words.Standing(row[0], row[1], row[2], Status.PLANNED), word) for row in rows]
            words.decide(connection, self.schema, found, self.worker, {Status.PLANNED})

    def _tell(self, connection: Connection, results: Sequence[Result]) -> None:
        if results:
            connection.execute(self._sql["tell"], columns_of(results, Result))


def _claimed(row: tuple[Any, ...]) -> Claimed:
    return Claimed(
        key=row[0], tenant=row[1], workflow=row[2], instance=row[3], state=row[4], action=row[5],
        direction=row[6], type=row[7], request=row[8], attempt=row[9], epoch=row[10],
        reply_to=row[11], trace=row[12], known=Status(row[13]), since_s=row[14], first_s=row[15],
        lost=row[16], forward_type=row[17] or "", forward_result=row[18],
    )  # fmt: skip


def _born(intents: Sequence[Intent], keys: Collection[str]) -> list[Result]:
    """Events of commands that were born unknown."""
    return [
        _unknown(
            (each.key, each.reply_to, each.instance, each.tenant, each.attempt, each.trace),
            FORGOTTEN,
        )
        for each in intents
        if each.key in keys
    ]


def _unknown(row: Sequence[Any], reason: str) -> Result:
    key, topic, instance, tenant, attempt, trace = row[:6]
    return Result(
        key=key, topic=topic, instance=instance, tenant=tenant,
        event_id=derived_id("result", key, Outcome.UNKNOWN, str(attempt)),
        type=UNKNOWN.name, value=UNKNOWN.encode(Unknown(text=reason)),
        attempt=attempt, outcome=Outcome.UNKNOWN, trace=trace,
    )  # fmt: skip


def _rejected(record: Rejected) -> dict[str, Any]:
    headers = [
        [name, None if value is None else value.decode(errors="backslashreplace")]
        for name, value in record.headers
    ]
    text = msgspec.json.encode(headers).decode().replace("\\u0000", "\\ufffd")
    return msgspec.structs.asdict(record) | {"headers": text, "text": storable(record.text)}
