"""`refold graph`: a definition as picture, table or text, and what changed between two.

Law of this module: it prints and writes files; what is drawn comes from `processors.draw`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.table import Table as RichTable
from rich.text import Text
from typer.core import TyperGroup

from refold.cli import telling
from refold.cli.load import load_workflows
from refold.processors import draw
from refold.processors.definition import Definition
from refold.processors.diff import Change, How, diff
from refold.schemas.errors import Code, DefinitionError, UsageError

Locate = Callable[[Definition, str, str], draw.Standing]
"""(definition, tenant, empty for any, instance id) → where it stands, read from the store."""


_COLUMN_CHARS: Final = 11  # narrower columns break words
_HERE: Final = "on yellow"


class ShowByDefault(TyperGroup):
    """A group whose first command need not be named: `refold graph MODULE:NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` in front when the line begins with neither a command nor a plea for help."""
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    add_completion=False,
    help="Draw a definition: `refold graph MODULE:NAME`, or compare two: `refold graph diff A B`.",
)


def _in_rows(definition: Definition, tenant: str, instance: str) -> draw.Standing:
    from refold.cli.look import standing  # noqa: PLC0415  # a picture alone loads no client

    return standing(definition.name, tenant, instance)


locate: Locate = _in_rows
"""Asked for `--instance`: by the rows in PostgreSQL."""


@app.command("show")
def show(
    spec: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A StateGraph or a list.")],
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture; - for output.")
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid text.")] = False,
    table: Annotated[bool, typer.Option("--table", help="Print state × event type.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the canonical form.")] = False,
    instance: Annotated[
        str | None, typer.Option("--instance", metavar="ID", help="Show where it stands.")
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", help="Tenant of the instance; else the definition's own.")
    ] = "",
    version: Annotated[
        int | None, typer.Option("--version", help="Which; the instance's, or the highest.")
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", help="Which, where NAME lists several.")
    ] = None,
) -> None:
    """Draw one definition. Without an option: the table."""
    if sum((svg is not None, mermaid, table, markdown, as_json)) > 1:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "Several forms were asked for at once.",
            "Choose one of --svg, --mermaid, --table, --markdown and --json.",
        )
    definition = chosen(spec, workflow, version)
    of = tenant or definition.spec.tenant
    standing = None if instance is None else locate(definition, of, instance)
    if standing is not None and version is None and standing.version:
        definition = chosen(spec, definition.name, standing.version)
    if svg is not None:
        _write(svg, draw.to_svg(definition, standing))
    elif mermaid:
        sys.stdout.write(draw.to_mermaid(definition, standing))
    elif markdown:
        sys.stdout.write(draw.to_markdown(definition))
    elif as_json:
        sys.stdout.write(definition.to_json().decode() + "\n")
    else:
        print_table(definition, standing)


@app.command("diff")
def show_diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="MODULE:NAME")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="MODULE:NAME")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Say what changed from one definition to another."""
    before, after = chosen(old, None, None), chosen(new, None, None)
    changes = diff(before, after)
    if as_json:
        told = {
            "old": _identity(before),
            "new": _identity(after),
            "changes": msgspec.to_builtins(changes),
        }
        sys.stdout.write(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
        return
    print_changes(before, after, changes)


def chosen(spec: str, workflow: str | None, version: int | None) -> Definition:
    """The one definition that a command line means.

    Raises:
        UsageError: Several workflows and none named; a workflow or version that is not there.
        DefinitionError: As `load_workflows`.
    """
    found = load_workflows([spec])
    if workflow is None and len(found) > 1:
        names = ", ".join(found)
        raise UsageError(
            Code.BAD_COMMAND_LINE, f"{spec} lists several workflows: {names}.", "Add --workflow."
        )
    one = found.get(workflow) if workflow is not None else next(iter(found.values()))
    if one is None:
        raise DefinitionError(
            Code.DEFINITION_NOT_FOUND, f"{spec} has no workflow {workflow!r}.", "Check the name."
        )
    if version is not None and version not in one.versions:
        raise DefinitionError(
            Code.DEFINITION_NOT_FOUND,
            f"{spec} has no version {version} of {one.name}.",
            f"It has {', '.join(map(str, one.versions))}.",
        )
    return one.latest if version is None else one.versions[version]


def print_table(definition: Definition, standing: draw.Standing | None) -> None:
    """Print the table state × event type; the state of an instance stands out."""
    found = draw.table(definition)
    title = f"{definition.name} version {definition.version}"
    if telling.out.width < _COLUMN_CHARS * (len(found.events) + 1):
        telling.out.print(_long_table(found, title, standing))
        return
    shown = RichTable(title=title, show_lines=True)
    shown.add_column("state", style="bold", overflow="fold")
    for event in found.events:
        shown.add_column(event, overflow="fold")
    for state, cells in zip(found.states, found.cells, strict=True):
        here = standing is not None and standing.state == state
        shown.add_row(_state(state, standing), *map(_coloured, cells), style=_HERE * here)
    telling.out.print(shown)
    legend = "→ enters a state · stays: applied without entering · `·` refused · – without effect"
    telling.out.print(legend, style="dim")


def _long_table(found: draw.Table, title: str, standing: draw.Standing | None) -> RichTable:
    """One line a pair, where the screen is too narrow for a column a type."""
    shown = RichTable("state", "event", "does", title=title, caption="All else is refused.")
    for state, cells in zip(found.states, found.cells, strict=True):
        pairs = [(event, cell) for event, cell in zip(found.events, cells, strict=True)]
        empty = (draw.REFUSED, draw.NOTHING)
        told = [(event, cell) for event, cell in pairs if cell not in empty] or [("", "")]
        here = standing is not None and standing.state == state
        for place, (event, cell) in enumerate(told):
            first = _state(state, standing) if place == 0 else Text("")
            last = place == len(told) - 1
            shown.add_row(first, event, _coloured(cell), end_section=last, style=_HERE * here)
    return shown


def _state(state: str, standing: draw.Standing | None) -> Text:
    here = standing is not None and standing.state == state
    return Text(f"{state} ◀ {standing.instance}" if here and standing else state, style="bold")


def print_changes(old: Definition, new: Definition, changes: tuple[Change, ...]) -> None:
    """Print the differences between two definitions, one a line."""
    title = f"{_named(old)} → {_named(new)}"
    if not changes:
        telling.out.print(Text(f"{title}: nothing changed"))
        return
    signs = {How.ADDED: ("+", "green"), How.REMOVED: ("-", "red"), How.CHANGED: ("~", "yellow")}
    telling.out.print(Text(title, style="bold"))
    for one in changes:
        sign, colour = signs[one.how]
        told = f"{one.before} ⇒ {one.after}" if one.how is How.CHANGED else one.after or one.before
        text = Text(f"{sign} {one.part} {one.name}", style=colour)
        telling.out.print(text + Text(f": {told}" if told else "", style="default"))


def _coloured(cell: str) -> Text:
    styles = {"·": "dim", "deferred": "magenta", "already": "cyan"}
    late = "dim cyan" if cell.startswith("late") else ""
    return Text(cell, style=styles.get(cell, late))


def _identity(definition: Definition) -> dict[str, object]:
    return {
        "name": definition.name,
        "version": definition.version,
        "fingerprint": definition.fingerprint,
    }


def _named(definition: Definition) -> str:
    return f"{definition.name} version {definition.version} ({definition.fingerprint[:12]})"


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{path} cannot be written: {error.strerror}.",
            "Name a file in a folder that is there and is yours.",
        ) from error
