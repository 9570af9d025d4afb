"""The ledger: what was to be done outside, what may have happened, and what is known of it.

Law of this module: PostgreSQL only, no Kafka, no call. An intent is durable before its call; no
transaction is open during one (P32). Every method is one transaction and may run twice.
"""

from collections.abc import Sequence
from typing import Any, Final

from refold.executors.model import Claimed, Ended, Intent, Result, Status
from refold.executors.statements import statements
from refold.schemas.canonical import hash16
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import Connection, Sessions, transaction

SCHEMA: Final = "refold_ledger"
"""Default schema of the ledger's tables."""
BATCH: Final = 500


class Place(tuple[str, int, str, int]):
    """Topic, partition, topic id, and the next offset that is to be planned."""

    __slots__ = ()


class Ledger:
    """The rows of one executor.

    Args:
        dsn: Of the executor's own database.
        worker: Name of this process in the rows.
        schema: Where the tables stand.
    """

    def __init__(self, dsn: str, worker: str, schema: str = SCHEMA) -> None:
        self.worker = worker
        self._sql = statements(schema)
        self._runner = Runner(Sessions(dsn, f"refold:executor:{worker}"))

    def close(self) -> None:
        """Close the connections."""
        self._runner.sessions.close()

    def plan(
        self, intents: Sequence[Intent], places: Sequence[Place], status: Status = Status.PLANNED
    ) -> list[str]:
        """Write intents and how far the commands are planned, in one transaction (P32).

        Args:
            intents: In log order; a key that stands is left as it is.
            places: Where the next commands are.
            status: PLANNED, or UNKNOWN for commands that a restored ledger has forgotten.

        Returns:
            Keys that stand with another request: refused, to be shown to a person.
        """
        columns = _columns(intents, Intent)
        columns["request_hash"] = [hash16(each.request) for each in intents]

        def work(connection: Connection) -> list[str]:
            with transaction(connection):
                if intents:
                    connection.execute(self._sql["plan"], columns | {"status": status})
                    connection.execute(self._sql["repeat"], {"key": columns["key"]})
                for topic, partition, topic_id, position in places:
                    connection.execute(
                        self._sql["intake"],
                        {
                            "topic": topic,
                            "partition": partition,
                            "topic_id": topic_id,
                            "position": position,
                        },
                    )
                rows = connection.execute(self._sql["clashes"], columns).fetchall()
            return [row[0] for row in rows]

        return self._runner.run("planning commands", work)

    def position(self, topic: str, partition: int) -> int | None:
        """The next offset to plan; None where nothing was planned of the partition."""
        row = self._runner.run(
            "reading the intake",
            lambda c: c.execute(self._sql["position"], [topic, partition]).fetchone(),
        )
        return None if row is None else int(row[0])

    def claim(
        self, target: str, most: int, lease_s: float, independent: Sequence[str] = ()
    ) -> list[Claimed]:
        """Take planned actions that may be called now; they are in flight when this returns."""
        values = {
            "target": target,
            "most": most,
            "lease_s": lease_s,
            "independent": list(independent),
            "worker": self.worker,
        }
        return self._claimed("claim", values)

    def ask(self, target: str, types: Sequence[str], most: int, lease_s: float) -> list[Claimed]:
        """Take unknown actions whose other side can be asked; nobody else asks for `lease_s`."""
        values = {
            "target": target,
            "types": list(types),
            "most": most,
            "lease_s": lease_s,
            "worker": self.worker,
        }
        return self._claimed("ask", values)

    def run_out(self, target: str, most: int = BATCH) -> list[str]:
        """Make actions unknown whose worker did not come back; gives their keys."""
        values = {"target": target, "most": most}
        rows = self._runner.run(
            "looking for run-out leases",
            lambda c: c.execute(self._sql["run_out"], values).fetchall(),
        )
        return [row[0] for row in rows]

    def settle(self, ended: Sequence[Ended]) -> set[str]:
        """Record how calls ended, with the events that tell it (P30).

        Returns:
            Keys that were settled by this; the others had been settled otherwise, and what was
            said here is kept with its attempt.
        """
        columns = _columns(ended, Ended)

        def work(connection: Connection) -> set[str]:
            with transaction(connection):
                rows = connection.execute(self._sql["settle"], columns).fetchall()
                connection.execute(self._sql["attempts"], columns | {"worker": self.worker})
                settled = {row[0] for row in rows}
                told = _columns([each for each in ended if each.key in settled], Ended)
                connection.execute(self._sql["answer"], told)
            return settled

        return self._runner.run("recording results", work)

    def results(self, after: int = 0, most: int = BATCH) -> list[Result]:
        """Events that Kafka is not known to have, in the order in which they were written."""
        rows = self._runner.run(
            "reading results",
            lambda c: c.execute(
                self._sql["results"], {"after": after, "most": most}, binary=True
            ).fetchall(),
        )
        return [Result(*row) for row in rows]

    def published(self, ids: Sequence[int]) -> None:
        """Kafka has these."""
        self._runner.run(
            "forgetting published results",
            lambda c: c.execute(self._sql["published"], {"ids": list(ids)}).rowcount,
        )

    def actions(
        self, status: Status | None = None, after: str = "", most: int = BATCH
    ) -> list[dict[str, Any]]:
        """Rows for people, by key."""
        values = {"status": status, "after": after, "most": most}

        def work(connection: Connection) -> list[dict[str, Any]]:
            cursor = connection.execute(self._sql["list"], values)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return self._runner.run("listing actions", work)

    def _claimed(self, name: str, values: dict[str, Any]) -> list[Claimed]:
        rows = self._runner.run(
            "claiming actions",
            lambda c: c.execute(self._sql[name], values, binary=True).fetchall(),
        )
        return [
            Claimed(
                key=row[0], tenant=row[1], workflow=row[2], instance=row[3], state=row[4],
                action=row[5], direction=row[6], type=row[7], request=row[8], attempt=row[9],
                epoch=row[10], reply_to=row[11], trace=row[12], since_s=row[13],
                known=Status(row[14]),
            )
            for row in rows
        ]  # fmt: skip


def _columns(rows: Sequence[Any], kind: type) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in kind.__struct_fields__}  # type: ignore[attr-defined]
