"""`refold ledger report | compare | doubles | export`: figures, statements, and rows as they are.

Law of this module: reads the ledger's own database and a file of the user's; changes nothing.
"""

import csv
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from refold.cli import telling
from refold.cli.ledger_options import (
    Action,
    From,
    Limit,
    Target,
    To,
    asking,
    chosen,
    tell_count,
)
from refold.cli.telling import Json
from refold.executors.compare import By, compare
from refold.executors.questions import Filter, Questions, cause_of, shown
from refold.executors.report import Line, report
from refold.schemas.errors import Code, UsageError

PAGE: Final = 1_000
_FIRST: Final = (datetime(1900, 1, 1, tzinfo=UTC), "")


class Form(StrEnum):
    """Forms of an export."""

    JSONL = "jsonl"
    CSV = "csv"


class Bears(StrEnum):
    """What a column of a statement bears."""

    KEY = "key"
    REFERENCE = "reference"


def report_(
    since: From = None,
    until: To = None,
    action: Action = None,
    target: Target = None,
    per_double: Annotated[
        list[str] | None,
        typer.Option(
            "--per-double",
            metavar="[ACTION=]AMOUNT",
            help="What one double costs you, of an action or of all: gives the yearly cost.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell per action how many, how many unknown and how they were settled, and how long.

    WINDOW is the time from a call to its record: as long as that, a process that dies leaves an
    unknown. DOUBLES were unknown and had certainly been done: a blind retry would have done them
    twice. What was called again counts only where the other side said that it had done it before.
    """
    costs = _costs(per_double or [])
    with asking() as questions:
        found = report(questions, chosen(since, until, action, target), costs)
    if as_json:
        shares = {"key_share": found.key_share}
        telling.tell_json(msgspec.to_builtins(found, builtin_types=(datetime,)) | shares)
        return
    if not found.lines:
        tell_count(0, 1, "action")
        return
    names = ("action", "system", "truth", "count", "unknown", "settled", "window", "doubles")
    telling.listed(names, [(_cells(each), _note(each)) for each in found.lines])
    cost = {} if found.yearly_cost is None else {"cost of doubles": _yearly(found.yearly_cost)}
    span = f"{found.since:%Y-%m-%d %H:%M} to {found.until:%Y-%m-%d %H:%M}" if found.since else ""
    known = f"{found.key_share:.1%} of {found.external}"
    telling.tell(window=span, **{"external writes with a key": known}, **cost)


def compare_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The other side's statement, CSV.")],
    column: Annotated[str, typer.Option("--column", help="Which column bears the key.")] = "key",
    by: Annotated[Bears, typer.Option("--by", help="What that column bears.")] = Bears.KEY,
    since: From = None,
    until: To = None,
    action: Action = None,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Compare a statement of the other side with the ledger: ours only, theirs only, twice.

    Ends with 1 where they differ. Name the statement's period and system, else everything that
    was ever done is looked for on it.
    """
    bears: By = "key" if by is Bears.KEY else "reference"
    with asking() as questions:
        found = compare(questions, file, column, chosen(since, until, action, target), bears)
    differs = bool(found.ours_only or found.theirs_only or found.twice)
    if as_json:
        telling.tell_json(found)
        raise typer.Exit(int(differs))
    for ours in found.ours_only:
        more = f"{ours.action} of {ours.system}, instance {ours.instance or 'none'}"
        telling.block(ours.name, only="ours: done by the ledger, not on the statement", action=more)
    for theirs in found.theirs_only:
        says = f"the ledger says {theirs.status}" if theirs.status else "the ledger has none"
        telling.block(theirs.name, only=f"theirs: {says}")
    for name, count in found.twice.items():
        telling.block(name, twice=f"{count} times on the statement")
    telling.tell(
        both=found.both, ours_only=len(found.ours_only), theirs_only=len(found.theirs_only),
        twice=len(found.twice),
    )  # fmt: skip
    raise typer.Exit(int(differs))


def doubles(
    since: From = None,
    until: To = None,
    action: Action = None,
    target: Target = None,
    apart_s: Annotated[
        float, typer.Option("--apart-s", min=0, help="Most seconds between the two.")
    ] = 3_600.0,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List suspected doubles: same instance, action and request under different keys."""
    with asking() as questions:
        which = chosen(since, until, action, target)
        found = questions.doubles(which, apart_s=apart_s, most=limit)
    if as_json:
        telling.tell_json(found)
        return
    for row in found:
        telling.block(
            row["key"],
            like=row["other"],
            action=f"{row['action']} of {row['system']}, instance {row['instance'] or 'none'}",
            status=row["status"],
            apart=f"{row['apart_s']:.1f} s",
        )
    tell_count(len(found), limit, "suspected double")


def export(
    form: Annotated[Form, typer.Option("--format", help="JSON lines or CSV.")] = Form.JSONL,
    since: From = None,
    until: To = None,
    action: Action = None,
    target: Target = None,
) -> None:
    """Write actions to standard output, one a line; docs/ledger.md says what each field means."""
    with asking() as questions:
        rows = _pages(questions, chosen(since, until, action, target))
        if form is Form.JSONL:
            for row in rows:
                telling.tell_json(row)
            return
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            row["attempts"] = msgspec.json.encode(row["attempts"]).decode()
            if writer is None:
                writer = csv.DictWriter(sys.stdout, fieldnames=list(row))
                writer.writeheader()
            writer.writerow({name: _harmless(value) for name, value in row.items()})


def _pages(questions: Questions, which: Filter) -> Iterator[dict[str, Any]]:
    after = _FIRST
    while rows := questions.page(which, after, PAGE):
        after = (rows[-1]["planned"], rows[-1]["key"])
        for row in rows:
            row["cause"] = cause_of(row.pop("event"))
            row["request"] = shown(row["request"], row["type"])
            row["result"] = shown(row["result"], row["result_type"])
            yield row


def _harmless(value: Any) -> Any:
    """No cell is a formula to a spreadsheet (CWE-1236)."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value.isoformat() if isinstance(value, datetime) else value


def _costs(given: list[str]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for each in given:
        action, _, amount = each.rpartition("=")
        try:
            costs[action] = float(amount)
        except ValueError:
            raise UsageError(
                Code.BAD_COMMAND_LINE,
                f"--per-double {each!r} has no amount.",
                "Write AMOUNT, or ACTION=AMOUNT, as in Charge=48.50.",
            ) from None
    return costs


def _cells(line: Line) -> tuple[str, ...]:
    name = line.action if line.direction == "forward" else f"{line.action}, undone"
    settled = " ".join(
        f"{how} {count}"
        for how, count in (
            ("asked", line.by_answer), ("called again", line.by_call),
            ("by a person", line.by_person), ("open", line.still_unknown),
        )
        if count
    )  # fmt: skip
    window = "/".join(map(_seconds, (line.window_p50_s, line.window_p99_s, line.window_max_s)))
    return (
        name, line.system, line.truth, str(line.count),
        f"{line.unknown} ({line.unknown_share:.2%})", settled or "-", window,
        str(line.unknown_done),
    )  # fmt: skip


def _note(line: Line) -> str:
    notes = []
    if line.contradicted:
        notes.append(f"{line.contradicted} contradicted: refold ledger list --contradicted")
    if line.yearly_cost is not None:
        notes.append(f"doubles would cost {_yearly(line.yearly_cost)}")
    return "; ".join(notes)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _yearly(amount: float) -> str:
    return f"{amount:,.2f} a year"
