"""Questions to a ledger that people ask: which actions, what of one, what was refused, who looks.

Law of this module: reads only, through connections of its own, which a standby may serve. What is
shown are the rows as they stand; requests and results are shown by type and size alone, unless
they are text of `Ledger.action`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from refold.executors.model import Status
from refold.executors.statements import SCHEMA, filled
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import Connection, Sessions

MOST: Final = 10_000
TEXT: Final = "json"
"""Type of requests and results that `Ledger.action` writes."""
Row = dict[str, Any]

NAME: Final = "CASE WHEN workflow = '' THEN action ELSE split_part(action, '.', 1) END"
"""An action's name without the discriminator, which tells apart those of one step."""
OVER: Final = "(status = 'in_flight' AND coalesce(lease_until < now(), false))"
"""Whoever called has not come back in time: unknown, before anybody has written so."""
WHERE: Final = f"""
    (%(status)s::text IS NULL OR (status = %(status)s AND NOT {OVER})
     OR (%(status)s = 'unknown' AND {OVER}))
    AND (%(action)s::text IS NULL OR %(action)s IN (action, type, {NAME}))
    AND (%(target)s::text IS NULL OR target = %(target)s OR target_system = %(target)s)
    AND (%(instance)s::text IS NULL OR instance_id = %(instance)s)
    AND (%(since)s::timestamptz IS NULL OR planned >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR planned < %(until)s)"""
_CLASHES: Final = "(SELECT count(*) FROM $s.workflow_clash c WHERE c.key = a.key)"
_SHORT: Final = f"""
    key, tenant, workflow, instance_id AS instance, state, action, direction, target,
    target_system AS system, truth, attempt,
    CASE WHEN {OVER} THEN 'unknown' ELSE status END AS status,
    CASE WHEN {OVER} THEN 'its time is over: its process died or hangs' ELSE reason END AS reason,
    reference, contradicted,
    {_CLASHES} AS clashes, planned, dispatched, recorded"""

_TEXT: Final[Mapping[str, str]] = {
    "find": f"""
        SELECT {_SHORT} FROM $s.workflow_action a
        WHERE {WHERE}
          AND (NOT %(contradicted)s OR contradicted)
          AND (NOT %(clashing)s OR {_CLASHES} > 0)
        ORDER BY planned, key LIMIT %(most)s""",
    "show": f"""
        SELECT {_SHORT}, event, type, attempts, epoch, wanted, worker, lease_until, not_before,
               independent, already, encode(request_hash, 'hex') AS digest, request, result,
               result_type, result_event, decided_by, reply_to, trace, partition,
               log_offset AS offset, first_sent,
               (SELECT count(*) FROM $s.workflow_result r WHERE r.key = a.key) AS unpublished
        FROM $s.workflow_action a WHERE key = %s""",
    "clashes": """
        SELECT key, encode(request_hash, 'hex') AS digest, type, length(request) AS bytes, attempt,
               partition, log_offset AS offset, seen, first_seen, last_seen
        FROM $s.workflow_clash WHERE key = %s ORDER BY first_seen""",
    "rejected": """
        SELECT topic, partition, log_offset AS offset, code, reason, length(value) AS bytes,
               rejected
        FROM $s.workflow_rejected
        WHERE (%(since)s::timestamptz IS NULL OR rejected >= %(since)s)
          AND (%(until)s::timestamptz IS NULL OR rejected < %(until)s)
        ORDER BY rejected, topic, partition, log_offset LIMIT %(most)s""",
    "scanners": """
        SELECT target, worker, scanned,
               extract(epoch FROM now() - scanned)::float8 AS age_s
        FROM $s.workflow_scanner ORDER BY target, scanned DESC""",
    # The same thing asked for twice under two names: nobody deduplicates that.
    "doubles": f"""
        WITH w AS (
            SELECT *, lag(key) OVER same AS before, lag(planned) OVER same AS before_at
            FROM $s.workflow_action a
            WHERE direction = 'forward' AND status <> 'cancelled' AND request <> '' AND {WHERE}
            WINDOW same AS (PARTITION BY tenant, workflow, instance_id, action, target,
                            request_hash ORDER BY planned, key))
        SELECT key, before AS other, tenant, workflow, instance_id AS instance, action,
               target_system AS system, status, planned,
               extract(epoch FROM planned - before_at)::float8 AS apart_s
        FROM w WHERE before IS NOT NULL AND planned - before_at <= %(apart_s)s * interval '1 second'
        ORDER BY planned, key LIMIT %(most)s""",
    "export": f"""
        SELECT {_SHORT}, event, type, encode(request_hash, 'hex') AS digest, request, result_type,
               result, already, decided_by, first_sent, attempts, worker, trace
        FROM $s.workflow_action a
        WHERE {WHERE} AND (planned, key) > (%(after_at)s, %(after)s)
        ORDER BY planned, key LIMIT %(most)s""",
}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which actions are meant; what is None does not matter."""

    status: Status | None = None
    action: str | None = None
    """An action's name, with or without its discriminator, or the type of its command."""
    target: str | None = None
    """The target, or the system as people know it."""
    instance: str | None = None
    since: datetime | None = None
    """Planned then or later."""
    until: datetime | None = None
    """Planned before."""


ALL: Final = Filter()


class Questions:
    """Reads a ledger.

    Args:
        dsn: Of the executor's database.
        schema: Where the tables stand.
        timeout_s: Longest run of one question, in seconds.
    """

    def __init__(self, dsn: str, schema: str = SCHEMA, *, timeout_s: float = 60.0) -> None:
        self.schema = schema
        self._sql = filled(_TEXT, schema)
        sessions = Sessions(dsn, "refold:ledger", statement_timeout_s=timeout_s, writable=False)
        self._runner = Runner(sessions)

    def close(self) -> None:
        """Close the connections."""
        self._runner.sessions.close()

    def find(
        self, which: Filter = ALL, *, contradicted: bool = False, clashing: bool = False,
        most: int = MOST,
    ) -> list[Row]:  # fmt: skip
        """Actions in the order in which they were planned.

        Args:
            which: Which.
            contradicted: Only those of which the opposite was said later.
            clashing: Only those whose key came again with another request.
            most: How many.
        """
        more = {"contradicted": contradicted, "clashing": clashing, "most": most}
        return self._ask("find", values_of(which) | more)

    def show(self, key: str) -> Row | None:
        """Everything about one action; None where there is no such key."""
        found = self._ask("show", [key])
        if not found:
            return None
        row = found[0]
        row["cause"] = cause_of(row.pop("event"))
        for name, type_ in (("request", row["type"]), ("result", row["result_type"])):
            row[name] = shown(row[name], type_)
        row["clash_list"] = self._ask("clashes", [key])
        return row

    def rejected(self, which: Filter = ALL, most: int = MOST) -> list[Row]:
        """Records of command topics that are no commands."""
        return self._ask("rejected", values_of(which) | {"most": most})

    def scanners(self) -> list[Row]:
        """When each process last looked for what is not known, newest first."""
        return self._ask("scanners", [])

    def doubles(self, which: Filter = ALL, *, apart_s: float, most: int = MOST) -> list[Row]:
        """Suspected doubles: same instance, action and request under different keys.

        Args:
            which: In which window.
            apart_s: Longest time between the two.
            most: How many.
        """
        return self._ask("doubles", values_of(which) | {"apart_s": apart_s, "most": most})

    def page(self, which: Filter, after: tuple[datetime, str], most: int) -> list[Row]:
        """Actions for an export, from behind one, by time and key."""
        more = {"after_at": after[0], "after": after[1], "most": most}
        return self._ask("export", values_of(which) | more)

    def _ask(self, name: str, values: Mapping[str, Any] | Sequence[Any]) -> list[Row]:
        return self.ask(self._sql[name], values)

    def ask(self, statement: bytes, values: Mapping[str, Any] | Sequence[Any]) -> list[Row]:
        """Rows of any statement, by the names of their columns."""

        def work(connection: Connection) -> list[Row]:
            cursor = connection.execute(statement, values)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        return self._runner.run("a question to the ledger", work)


def cause_of(event: str) -> str:
    """The causing event as `source id`, from its part of the key; empty where it has none."""
    return unquote(event).replace("\x1f", " ")


def shown(value: bytes | None, type_: str) -> str:
    """A request or result for people: text as it is, others by their size."""
    if value is None:
        return ""
    if type_ == TEXT:
        return value.decode(errors="replace")
    return f"{type_ or 'nothing'}, {len(value)} bytes"


def values_of(which: Filter) -> dict[str, Any]:
    """Parameters of `WHERE`."""
    return msgspec.structs.asdict(which)
