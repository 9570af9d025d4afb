"""What a ledger says about a window of time: how much was done, how much was unknown, how long.

Law of this module: counts what stands in the rows, and says how each figure is made.

    external    of other systems: every action but `local` ones
    with key    external ones that the other side knows by our key: `by_key` and `queryable`
    unknown     actions whose outcome was unknown at any time
    window      from the last call to its record, of settled actions: as long as this, a process
                that dies leaves an unknown
    doubles     unknown ones that certainly had been done: a blind retry would have done them twice.
                What was called again counts where the other side said that it had done it before

An action is counted under its name: discriminators are left out.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from refold.executors.questions import NAME, OVER, WHERE, Filter, Questions, values_of
from refold.executors.statements import filled

YEAR: Final = timedelta(days=365)

_TEXT: Final[Mapping[str, str]] = {
    "report": f"""
        WITH a AS (
            SELECT *, {NAME} AS name, status = 'unknown' OR {OVER} OR jsonb_path_exists(
                          attempts, '$$[*] ? (@.outcome == "unknown")') AS was_unknown,
                   extract(epoch FROM recorded - dispatched)::float8 AS window_s,
                   (attempts -> -1 ->> 'epoch')::int > (jsonb_path_query_first(attempts,
                       '$$[*] ? (@.outcome == "unknown")') ->> 'epoch')::int AS called_again
            FROM $s.workflow_action WHERE {WHERE}),
        s AS (SELECT *, was_unknown AND status IN ('succeeded', 'failed') AS cleared FROM a)
        SELECT name AS action, direction, target_system AS system, truth, count(*) AS count,
               count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
               count(*) FILTER (WHERE status = 'failed') AS failed,
               count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
               count(*) FILTER (WHERE status IN ('planned', 'in_flight') AND NOT {OVER}) AS open,
               count(*) FILTER (WHERE was_unknown) AS unknown,
               count(*) FILTER (WHERE status = 'unknown' OR {OVER}) AS still_unknown,
               count(*) FILTER (WHERE cleared AND decided_by <> '') AS by_person,
               count(*) FILTER (WHERE cleared AND decided_by = '' AND called_again) AS by_call,
               count(*) FILTER (WHERE cleared AND decided_by = ''
                                AND called_again IS NOT TRUE) AS by_answer,
               count(*) FILTER (WHERE was_unknown AND status = 'succeeded'
                                AND (already OR decided_by <> '' OR called_again IS NOT TRUE))
                   AS unknown_done,
               count(*) FILTER (WHERE contradicted) AS contradicted,
               percentile_disc(0.5) WITHIN GROUP (ORDER BY window_s)
                   FILTER (WHERE status IN ('succeeded', 'failed')) AS window_p50_s,
               percentile_disc(0.99) WITHIN GROUP (ORDER BY window_s)
                   FILTER (WHERE status IN ('succeeded', 'failed')) AS window_p99_s,
               max(window_s) FILTER (WHERE status IN ('succeeded', 'failed')) AS window_max_s
        FROM s GROUP BY name, direction, target_system, truth
        ORDER BY name, direction, target_system, truth""",
    "span": f"""
        SELECT min(planned) AS since, now() AS until FROM $s.workflow_action WHERE {WHERE}""",
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One action in a window."""

    action: str
    direction: str
    system: str
    truth: str
    count: int
    succeeded: int
    failed: int
    cancelled: int
    open: int
    """Planned or in flight."""
    unknown: int
    """Were unknown at any time."""
    still_unknown: int
    by_person: int
    """Of the unknown: a person said what was true."""
    by_call: int
    """Of the unknown: the same key was called again."""
    by_answer: int
    """Of the unknown: the other side was asked, or its answer came late."""
    unknown_done: int
    """Of the unknown: had certainly been done. A blind retry would have done them twice."""
    contradicted: int
    window_p50_s: float | None
    window_p99_s: float | None
    window_max_s: float | None
    yearly_cost: float | None = None
    """What blind retries would cost in a year, by the figure given for one double."""

    @property
    def unknown_share(self) -> float:
        """Of all, how many were unknown at any time."""
        return self.unknown / self.count if self.count else 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A window of a ledger."""

    since: datetime | None
    until: datetime
    lines: list[Line]
    external: int
    with_key: int
    yearly_cost: float | None
    """Of all actions for which a figure was given."""

    @property
    def key_share(self) -> float:
        """Of the external ones, how many the other side knows by our key."""
        return self.with_key / self.external if self.external else 1.0


def report(questions: Questions, which: Filter, costs: Mapping[str, float] | None = None) -> Report:
    """What the ledger says about a window.

    Args:
        questions: Of the ledger.
        which: The window; from the first action until now where it is open.
        costs: Action → what one double costs, in any currency; `""` stands for all others.
    """
    sql = filled(_TEXT, questions.schema)
    values = values_of(which)
    (span,) = questions.ask(sql["span"], values)
    since, until = which.since or span["since"], which.until or span["until"]
    rows = questions.ask(sql["report"], values)
    lines = [_line(row, since, until, costs or {}) for row in rows]
    external = [each for each in lines if each.truth != "local"]
    priced = [each.yearly_cost for each in lines if each.yearly_cost is not None]
    return Report(
        since=since,
        until=until,
        lines=lines,
        external=sum(each.count for each in external),
        with_key=sum(each.count for each in external if each.truth in ("by_key", "queryable")),
        yearly_cost=sum(priced) if priced else None,
    )


def _line(
    row: dict[str, Any], since: datetime | None, until: datetime, costs: Mapping[str, float]
) -> Line:
    each = costs.get(row["action"], costs.get(""))
    yearly = None
    if each is not None and since is not None and until > since:
        yearly = row["unknown_done"] * each * (YEAR / (until - since))
    return Line(**row, yearly_cost=yearly)
