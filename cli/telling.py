"""What the commands that look at partitions share: settings, the workflow named, how to tell.

Law of this module: standard output carries what a program can read, or the answer for a person;
progress and remarks go to standard error.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from getpass import getuser
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from refold.cli.load import load_workflows
from refold.processors.definition import Workflow
from refold.schemas.errors import Code, UsageError
from refold.snapshots.queries import Queries
from refold.snapshots.store import PostgresStore
from refold.topics.clients import reader
from refold.topics.lookup import names_of
from refold.topics.settings import Settings

Specs = Annotated[
    list[str], typer.Argument(metavar="MODULE:NAME…", help="Definitions: every version in use.")
]
Number = Annotated[int, typer.Option("--partition", "-p", min=0, help="Number of the partition.")]
Name = Annotated[
    str, typer.Option("--workflow", help="Which workflow, where the definitions hold several.")
]
Tenant = Annotated[
    str, typer.Option("--tenant", help="Tenant of the instance; else the definition's own.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

NOTE_INDENT: Final = 4
"""Columns by which a note stands to the right of its row."""
DEFAULT_TENANT: Final = "default"
"""Where neither the command line nor the definition names one."""

# Ids, keys and reasons are printed as they are: `:bank:` in a key is a tenant and no emoji.
out = Console(markup=False, emoji=False)
err = Console(stderr=True, markup=False, emoji=False)


def chosen(specs: list[str], name: str = "") -> Workflow:
    """The one workflow that a command line means.

    Raises:
        UsageError: There are several and none is named, or the named one is not there.
    """
    workflows = load_workflows(specs)
    if name:
        if name in workflows:
            return workflows[name]
        raise _which(f"No definition of {name!r} was given", workflows)
    if len(workflows) == 1:
        return next(iter(workflows.values()))
    raise _which("Several workflows were given", workflows)


def tenant_of(given: str, workflow: Workflow) -> str:
    """The tenant that a command line means: as given, else the workflow's own, else `default`."""
    return given or workflow.tenant or DEFAULT_TENANT


def _which(what: str, workflows: Mapping[str, Workflow]) -> UsageError:
    return UsageError(
        Code.BAD_COMMAND_LINE,
        f"{what}: {', '.join(sorted(workflows))}.",
        "Name one of them with --workflow.",
    )


@contextmanager
def store_of(settings: Settings, name: str) -> Iterator[PostgresStore]:
    """The settings' store, closed at the end.

    Args:
        settings: Of this process.
        name: What its sessions are called.
    """
    store = PostgresStore(settings.postgres.dsn, application_name=f"refold:{name}"[:63])
    try:
        yield store
    finally:
        store.close()


def decision_logs(settings: Settings) -> list[str]:
    """Workflows of the namespace that have a decision log.

    Raises:
        ServerError: KAFKA_AWAY.
    """
    looking = reader(settings)
    try:
        return names_of(looking, settings.namespace, "rejected")
    finally:
        looking.close()


@contextmanager
def queries_of(settings: Settings) -> Iterator[Queries]:
    """Questions to the settings' database, closed at the end."""
    queries = Queries(settings.postgres.dsn)
    try:
        yield queries
    finally:
        queries.close()


@contextmanager
def bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over offsets: call it with (position, end)."""
    if quiet or not sys.stderr.isatty():
        yield lambda position, end: None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=err) as progress:
        task = progress.add_task(title, total=None)

        def told(position: int, end: int) -> None:
            progress.update(task, completed=position, total=max(end, 1))

        yield told


def tell_json(value: object) -> None:
    """Print any value of ours as one line of JSON."""
    typer.echo(msgspec.json.encode(value, enc_hook=_hex).decode())


def plain(text: str) -> Text:
    """Text as it is, square brackets too."""
    return Text(text)


def login_name(option: str = "") -> str:
    """Who is at the command line: what they decide is kept with their name.

    Args:
        option: Names somebody otherwise; empty where there is none.

    Raises:
        UsageError: BAD_COMMAND_LINE, nobody is logged in, as in a container.
    """
    try:
        return getuser()
    except (KeyError, OSError, ImportError) as unknown:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "who decides is not known: this user has no name here.",
            f"Give {f'{option} NAME, or ' if option else ''}the name as environment USER.",
        ) from unknown


def tell(**fields: object) -> None:
    """Print named fields for a person, one a line; mappings as `name n, name n`."""
    table = Table.grid(padding=(0, 2))
    for name, value in fields.items():
        shown = value
        if isinstance(value, Mapping):
            shown = ", ".join(f"{key} {number}" for key, number in value.items()) or "none"
        table.add_row(plain(name.replace("_", " ")), plain(str(shown)))
    out.print(table)


def listed(names: Sequence[str], rows: Sequence[tuple[Sequence[str], str]]) -> None:
    """Print many things, one a line; what is too long for a column stands below its line.

    Args:
        names: Of the columns: what is short, and told of each row.
        rows: Cells of each row, and the note below it; an empty one is left out.
    """
    lines = [tuple(names), *(tuple(cells) for cells, _ in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line, note in zip(lines, ["", *(note for _, note in rows)], strict=True):
        text = "  ".join(map(set_cell_size, line, widths)).rstrip()
        out.print(plain(text), style="bold" if line is lines[0] else "", soft_wrap=True)
        if note:
            out.print(Padding(plain(note), (0, 0, 0, NOTE_INDENT)))


def block(title: str, **fields: object) -> None:
    """Print one of several things that are too wide for a row: its title, and fields below it."""
    out.print(plain(title), style="bold")
    tell(**{f"  {name}": value for name, value in fields.items()})


def _hex(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
