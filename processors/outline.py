"""What a picture of a definition shows: boxes, arrows and short words, without a shape yet.

Law of this module: frozen data from a `Definition`; `mermaid`, `svg`, `table` and `diff` read it
and know nothing of each other.
"""

import ast
from collections.abc import Iterable
from typing import Final

import msgspec

from refold.processors import source
from refold.processors.definition import Definition
from refold.processors.sends import sent_types
from refold.processors.spec import Function, Start
from refold.processors.status import RunStatus

_GUARD_CHARS: Final = 36
"""A condition longer than this is shown cut: the picture names, the code tells."""


class Sent(msgspec.Struct, frozen=True):
    """A command that a state may send when it is entered."""

    command: str
    target: str


class Box(msgspec.Struct, frozen=True):
    """One state."""

    state: str
    initial: bool
    final: bool
    status: str
    """Declared status; empty where the state simply runs."""
    sends: tuple[Sent, ...]
    stays: tuple[str, ...]
    """Event types (with guard) that are applied without leaving or entering the state."""
    deferred: tuple[str, ...]
    already: tuple[str, ...]
    late: tuple[tuple[str, str], ...]
    """(event type or `*`, policy) of a final state."""


class Arrow(msgspec.Struct, frozen=True):
    """One transition that enters a state, its own included."""

    id: str
    source: str
    target: str
    event: str
    guard: str
    """Words of the guard; empty if it has none."""

    @property
    def label(self) -> str:
        """Event type, with the guard in brackets."""
        return labelled(self.event, self.guard)


class Outline(msgspec.Struct, frozen=True):
    """A definition as a picture shows it."""

    name: str
    version: int
    fingerprint: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    invariants: tuple[str, ...]


class Standing(msgspec.Struct, frozen=True):
    """Where one instance stands, to be shown in the picture."""

    instance: str
    state: str
    visited: frozenset[str] = frozenset()
    """States it has been in."""
    taken: frozenset[str] = frozenset()
    """Ids of transitions it has taken, `<from>/<type>/<n>`, where they are known."""
    note: str = ""
    """One short line more: that it is parked, and why."""
    version: int = 0
    """Version of the definition that it goes by; 0: not known."""


def outline(definition: Definition) -> Outline:
    """Describe a definition for drawing."""
    arrows: list[Arrow] = []
    stays: dict[str, list[str]] = {}
    for row in definition.rows():
        for one in row.transitions:
            guard, called = guard_words(one.guard), short(definition.titles[one.event])
            if one.enters:
                arrows.append(Arrow(one.id, one.source, one.target, called, guard))
            else:
                stays.setdefault(one.source, []).append(labelled(called, guard))
    boxes = (_box(definition, state, tuple(stays.get(state, ()))) for state in definition.states)
    return Outline(
        definition.name,
        definition.version,
        definition.fingerprint,
        tuple(boxes),
        tuple(arrows),
        tuple(one.name for one in definition.invariants),
    )


def short(name: str) -> str:
    """The last part of a dotted type name."""
    return name.rpartition(".")[2]


def labelled(event: str, guard: str) -> str:
    """Event type, with its guard in brackets if it has one."""
    return f"{event} [{guard}]" if guard else event


def guard_words(guard: Function | None) -> str:
    """A guard in words: its name with spaces, or what a lambda says, cut to fit."""
    if guard is None:
        return ""
    name = str(getattr(guard, "__name__", type(guard).__name__))
    if name != "<lambda>":
        return name.strip("_").replace("_", " ")
    found = source.find(guard)
    if found is None or not isinstance(found.node, ast.Lambda):
        return "condition"
    text = ast.unparse(found.node.body)
    return text if len(text) <= _GUARD_CHARS else text[: _GUARD_CHARS - 1] + "…"


def _box(definition: Definition, state: str, stays: tuple[str, ...]) -> Box:
    row = definition.table[state].items()
    late = [(short(event), str(cell.late)) for event, cell in row if cell.late is not None]
    if state in definition.late_rest:
        late.append(("*", str(definition.late_rest[state])))
    status = definition.statuses.get(state, RunStatus.RUNNING)
    return Box(
        state=state,
        initial=state == definition.initial,
        final=state in definition.finals,
        status="" if status is RunStatus.RUNNING else str(status),
        sends=tuple(_sends(definition, state)),
        stays=stays,
        deferred=tuple(short(event) for event, cell in row if cell.deferred),
        already=tuple(short(event) for event, cell in row if cell.already),
        late=tuple(late),
    )


def _sends(definition: Definition, state: str) -> Iterable[Sent]:
    for entry in definition.entries:
        if entry.state == state:
            for kind in sent_types(definition.spec, entry.send):
                if kind is Start:
                    yield from (Sent("start", child) for child in definition.children)
                if kind in definition.commands:
                    one = definition.commands[kind]
                    yield Sent(short(one.name), one.target)
