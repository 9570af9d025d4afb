"""What the commands of `refold ledger` share: which actions are meant, and questions about them.

Law of this module: a time without a zone is UTC; what cannot be read is an error that says how.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from refold.cli import telling
from refold.executors.questions import MOST, Filter, Questions
from refold.schemas.errors import Code, UsageError
from refold.topics.settings import load_settings

_AGO: Final = re.compile(r"(\d{1,6})([smhd])\Z")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
Action = Annotated[
    str | None, typer.Option("--action", help="Only this action, or this type of command.")
]
Target = Annotated[
    str | None, typer.Option("--target", help="Only this target, or this system by its name.")
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Planned then or later: ISO 8601 or 24h, 7d ago."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Planned before.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=MOST, help="Most rows to show.")]


@contextmanager
def asking() -> Iterator[Questions]:
    """Questions to the settings' ledger, closed at the end."""
    questions = Questions(load_settings().ledger_dsn)
    try:
        yield questions
    finally:
        questions.close()


def chosen(
    since: str | None = None,
    until: str | None = None,
    action: str | None = None,
    target: str | None = None,
    **more: Any,
) -> Filter:
    """The actions that a command line means.

    Raises:
        UsageError: BAD_COMMAND_LINE, a time cannot be read.
    """
    return Filter(
        since=_moment(since), until=_moment(until), action=action, target=target, **more
    )  # fmt: skip


def tell_count(shown: int, limit: int, what: str) -> None:
    """Say that nothing was there, or that there may be more."""
    if not shown:
        telling.err.print(f"No {what} is there.")
    elif shown == limit:
        telling.err.print(f"The first {limit} are shown; there may be more: --limit.")


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        if ago := _AGO.match(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{text!r} is no time.",
            "Write 2026-11-30, 2026-11-30T14:00:00Z (UTC unless said otherwise), or 24h for "
            "24 hours ago; s, m, h and d are units.",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
