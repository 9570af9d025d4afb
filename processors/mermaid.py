"""A definition as Mermaid text (stateDiagram-v2), for pages that draw it themselves.

Law of this module: an outline in, text out. States get short names of their own, so that no
character of theirs can be read as syntax; other text has Mermaid's signs as entity codes.
"""

from collections.abc import Iterator

from refold.processors.outline import Box, Outline, Standing


def mermaid(outline: Outline, standing: Standing | None = None) -> str:
    """Write a definition as a Mermaid state diagram.

    Args:
        outline: What to draw.
        standing: An instance to show in it.
    """
    return "\n".join(_lines(outline, standing)) + "\n"


def _lines(outline: Outline, standing: Standing | None) -> Iterator[str]:
    names = {box.state: f"s{index}" for index, box in enumerate(outline.boxes)}
    yield "stateDiagram-v2"
    for box in outline.boxes:
        yield f'    state "{_safe(box.state)}" as {names[box.state]}'
    for box in outline.boxes:
        if box.initial:
            yield f"    [*] --> {names[box.state]}"
    for arrow in outline.arrows:
        yield f"    {names[arrow.source]} --> {names[arrow.target]} : {_safe(arrow.label)}"
    for box in outline.boxes:
        if box.final:
            yield f"    {names[box.state]} --> [*]"
    for box in outline.boxes:
        yield from _note(box, names[box.state])
    if standing is not None:
        yield from _shown(standing, names)


def _note(box: Box, name: str) -> Iterator[str]:
    lines = [f"sends {one.command} to {one.target}" for one in box.sends]
    listed = (("stays on", box.stays), ("defers", box.deferred), ("knows", box.already))
    lines += [f"{words} {', '.join(events)}" for words, events in listed if events]
    lines += [f"late {'anything' if event == '*' else event}: {how}" for event, how in box.late]
    if lines:
        yield f"    note right of {name}"
        yield from (f"        {_safe(line)}" for line in lines)
        yield "    end note"


def _shown(standing: Standing, names: dict[str, str]) -> Iterator[str]:
    yield "    classDef here fill:#fef3c7,stroke:#d97706,stroke-width:3px"
    yield "    classDef been fill:#e0f2fe,stroke:#0369a1"
    been = [names[state] for state in names if state in standing.visited - {standing.state}]
    if been:
        yield f"    class {','.join(been)} been"
    if standing.state in names:
        yield f"    class {names[standing.state]} here"


def _safe(text: str) -> str:
    """Signs that Mermaid would read, as its entity codes (`#59;`)."""
    return "".join(f"#{ord(char)};" if char in '#;:"<>{}%`\n\r' else char for char in text)
