"""The other side's statement of a period against the ledger: ours only, theirs only, twice.

Law of this module: reads a CSV file line by line and the ledger page by page; neither is held as
a whole but for the names that the file bears. What the ledger does not call done, and the other
side lists, is theirs only: with what the ledger says of it.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import msgspec

from refold.executors.model import Status
from refold.executors.questions import WHERE, Filter, Questions, values_of
from refold.executors.statements import filled
from refold.schemas.errors import Code, UsageError, nearest

PAGE: Final = 1_000
By = Literal["key", "reference"]

_TEXT: Final[Mapping[str, str]] = {
    "ours": f"""
        SELECT key, reference, instance_id AS instance, action, target_system AS system, planned
        FROM $s.workflow_action
        WHERE status = 'succeeded' AND {WHERE} AND (planned, key) > (%(after_at)s, %(after)s)
        ORDER BY planned, key LIMIT %(most)s""",
    "key": """
        SELECT key AS name, key, status FROM $s.workflow_action WHERE key = ANY (%s::text[])""",
    "reference": """
        SELECT r.reference AS name, a.key, a.status FROM $s.workflow_reference r
        JOIN $s.workflow_action a ON a.key = r.key WHERE r.reference = ANY (%s::text[])""",
}


class Ours(msgspec.Struct, frozen=True):
    """Done by the ledger, and not on the statement."""

    name: str
    key: str
    instance: str
    action: str
    system: str


class Theirs(msgspec.Struct, frozen=True):
    """On the statement, and not done by the ledger."""

    name: str
    key: str
    """Empty: the ledger has no such action."""
    status: str
    """What the ledger says; empty where it has none."""


class Comparison(msgspec.Struct, frozen=True):
    """A statement against a ledger."""

    both: int
    ours_only: list[Ours]
    theirs_only: list[Theirs]
    twice: dict[str, int]
    """On the statement more than once → how often."""


def compare(
    questions: Questions, file: Path, column: str, which: Filter, by: By = "key"
) -> Comparison:
    """Compare a statement with the ledger.

    Args:
        questions: Of the ledger.
        file: CSV with a line of names first, UTF-8.
        column: Which of its columns bears our key, or the other side's reference.
        which: Whose actions of which period are looked for on the statement.
        by: What the column bears.

    Raises:
        UsageError: BAD_COMMAND_LINE, the file cannot be read or has no such column.
    """
    names = Counter(_names(file, column))
    theirs, done = [], 0
    sql = filled(_TEXT, questions.schema)
    for some in _batches(iter(names)):
        known = [name for name in some if "\0" not in name]  # what no key can hold is theirs only
        found = {row["name"]: row for row in questions.ask(sql[by], [known])}
        for name in some:
            row = found.get(name)
            if row is not None and row["status"] == Status.SUCCEEDED:
                done += 1
            else:
                theirs.append(Theirs(name, row["key"] if row else "", row["status"] if row else ""))
    ours = [each for each in _ours(questions, sql["ours"], which, by) if each.name not in names]
    return Comparison(done, ours, theirs, {each: n for each, n in names.items() if n > 1})


def _ours(questions: Questions, statement: bytes, which: Filter, by: By) -> Iterator[Ours]:
    after = (datetime.min.replace(year=1900, tzinfo=UTC), "")
    while True:
        more = {"after_at": after[0], "after": after[1], "most": PAGE}
        rows = questions.ask(statement, values_of(which) | more)
        for row in rows:
            yield Ours(row[by] or row["key"], row["key"], row["instance"], row["action"],
                       row["system"])  # fmt: skip
        if len(rows) < PAGE:
            return
        after = (rows[-1]["planned"], rows[-1]["key"])


def _names(file: Path, column: str) -> Iterator[str]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            sample = lines.read(4096)
            lines.seek(0)
            rows = csv.DictReader(lines, dialect=_dialect(sample))
            known = list(rows.fieldnames or ())
            if column not in known:
                raise UsageError(
                    Code.BAD_COMMAND_LINE,
                    f"{file} has no column {column!r}.",
                    f"{nearest(column, known)}It has: {', '.join(known) or 'none'}.",
                )
            for row in rows:
                if name := (row[column] or "").strip():
                    yield name
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            Code.BAD_COMMAND_LINE, f"{file} cannot be read as CSV in UTF-8: {error}.",
            "Export the statement as CSV with a line of names first.",
        ) from error  # fmt: skip


def _dialect(sample: str) -> type[csv.Dialect]:
    """Comma, semicolon or tab, by the line of names."""
    first = sample.split("\n", 1)[0]

    class Found(csv.excel):
        delimiter = max(",;\t", key=first.count)

    return Found


def _batches(names: Iterator[str]) -> Iterator[Sequence[str]]:
    while some := list(islice(names, PAGE)):
        yield some
