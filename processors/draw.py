"""A definition for people: a picture, Mermaid text, the table state × event type.

Law of this module: the one door to drawing. It turns a `Definition` into an outline and hands
it to `svg` or `mermaid`; the table comes from the definition's own rows.
"""

from typing import Final

import msgspec

from refold.processors.definition import Definition, TableRow
from refold.processors.mermaid import mermaid
from refold.processors.outline import Standing, guard_words, labelled, outline, short
from refold.processors.svg import svg
from refold.schemas.errors import Code, UsageError

__all__ = [
    "NOTHING",
    "REFUSED",
    "Standing",
    "Table",
    "table",
    "to_markdown",
    "to_mermaid",
    "to_svg",
]

REFUSED: Final = "·"
"""Stands in a cell whose event is refused."""
NOTHING: Final = "–"
"""Stands in the cell of a report or a timer that the state does not take."""


class Table(msgspec.Struct, frozen=True):
    """State × event type: what each state does with each type."""

    events: tuple[str, ...]
    states: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """A row a state, a cell an event type: `→ done`, `stays`, `deferred`, `already`,
    `late: record`, `·` (refused). Several transitions stand in lines, tried in that order."""


def to_svg(definition: Definition, standing: Standing | None = None) -> str:
    """Draw a definition as SVG.

    Args:
        definition: What to draw.
        standing: An instance to show in it.

    Raises:
        UsageError: The instance stands in a state that this definition does not have.
    """
    _fitting(definition, standing)
    return svg(outline(definition), standing)


def to_mermaid(definition: Definition, standing: Standing | None = None) -> str:
    """Write a definition as a Mermaid state diagram; arguments and errors as `to_svg`."""
    _fitting(definition, standing)
    return mermaid(outline(definition), standing)


def table(definition: Definition) -> Table:
    """The table state × event type, complete, in declared order."""
    events = tuple(definition.titles)
    cells = {(row.state, row.event): _cell(row) for row in definition.rows()}
    return Table(
        tuple(short(title) for title in definition.titles.values()),
        definition.states,
        tuple(
            tuple(cells.get((state, each), NOTHING) for each in events)
            for state in definition.states
        ),
    )


def to_markdown(definition: Definition) -> str:
    """The table state × event type as Markdown."""
    found = table(definition)
    lines = ["| state | " + " | ".join(map(_escaped, found.events)) + " |"]
    lines.append("| --- " * (len(found.events) + 1) + "|")
    for state, cells in zip(found.states, found.cells, strict=True):
        lines.append("| " + " | ".join(map(_escaped, (state, *cells))) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: TableRow) -> str:
    if row.kind == "late":
        return f"late: {row.policy}"
    if row.kind == "refused":
        return REFUSED
    if row.kind != "transition":
        return row.kind
    moves = [
        labelled(f"→ {one.target}" if one.enters else "stays", guard_words(one.guard))
        for one in row.transitions
    ]
    return "\n".join(moves)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def _fitting(definition: Definition, standing: Standing | None) -> None:
    if standing is not None and standing.state not in definition.states:
        raise UsageError(
            Code.DEFINITION_MISSING,
            f"{standing.instance} stands in {standing.state!r}, which {definition.name} version "
            f"{definition.version} does not have.",
            "Draw the version that the instance goes by.",
        )
