"""The one screen that `refold demo` ends with.

Law of this module: at most 100 columns and 40 lines, and a person who never heard of refold
reads from it what happened and why it matters.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Final

import msgspec
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refold.examples.demo.play import Played, Takeover
from refold.examples.demo.proof import SPEC, Incident, Proof
from refold.examples.incident import incident
from refold.processors.draw import Standing, to_svg

WIDTH: Final = 98
HASH_CHARS: Final = 16
STEPS: Final = 9
"""Lines that the way of one incident may take."""
MEANING: Final = {
    "applied": "changed an incident",
    "duplicate": "sent twice by a desk: no effect",
    "already": "known, sent under a new id: no effect",
    "late": "an answer after the end: noted",
    "refused": "not possible in that state: kept, with the reason",
}
SAYS: Final = {
    "Page": "paged the person on call",
    "AskCaller": "asked the caller",
    "TellCaller": "told the caller",
    "SendSurvey": "sent the survey",
}


class Step(msgspec.Struct):
    """A state that an incident entered."""

    state: str
    event: str
    sent: str
    more: int = 0
    """Events that it took without leaving."""


def screen(desks: int, played: Played, proof: Proof, shell: Path | None) -> RenderableType:
    """Everything that was found.

    Args:
        desks: How many there were.
        played: What was done.
        proof: What was found.
        shell: File by which other commands find the run; None when it is not kept.
    """
    faults = proof.faults
    verdict = "every event counted once, every command done once"
    if faults:
        verdict = "something is WRONG, and refold is to blame"
    colour = "red" if faults else "green"
    parts: tuple[RenderableType, ...] = (
        *([Text("\n".join(faults), style="bold red")] if faults else []),
        _story(desks, proof, played.takeover),
        _numbers(proof, played.takeover),
        _hashes(proof),
        _way(proof.shown, played.takeover),
        _next(proof.shown, shell),
    )
    spaced: list[RenderableType] = [each for part in parts for each in (part, Text())]
    return Panel(
        Group(*spaced[:-1]),
        title="[bold]refold demo[/]",
        subtitle=f"[bold {colour}]{verdict}[/]",
        border_style=colour,
        width=WIDTH,
    )


def _story(desks: int, proof: Proof, takeover: Takeover) -> Text:
    return Text(
        f"{desks} service desks sent {proof.sent:,} events about {proof.instances:,} incidents to"
        " Kafka. Two workers folded them into the state of each incident and sent commands: page,"
        f" ask, tell, survey. With {takeover.folded:,} records folded, {takeover.dead} was killed"
        f" (SIGKILL) in the middle of a transaction; {takeover.survivor} took its"
        f" {len(takeover.partitions)} partitions over."
    )


def _numbers(proof: Proof, takeover: Takeover) -> Table:
    left = Table("events", "", "", box=None, padding=(0, 1), header_style="bold")
    left.columns[1].justify = "right"
    for verdict, count in proof.verdicts.items():
        left.add_row(verdict, f"{count:,}", Text(MEANING.get(verdict, ""), style="dim"))
    total = sum(proof.verdicts.values())
    left.add_row("sum", f"{total:,}", f"= {proof.read:,} records read")
    right = Table("done outside", "", box=None, padding=(0, 1), header_style="bold")
    right.columns[1].justify = "right"
    right.add_row("commands", f"{sum(proof.commands.values()):,}")
    right.add_row("effects", f"{proof.effects:,}")
    right.add_row("doubles", _zero(proof.doubles))
    right.add_row("lost", _zero(proof.lost))
    noticed = takeover.detected_s - takeover.killed_s
    recovered = takeover.recovered_s - takeover.detected_s
    right.add_row("takeover", f"{noticed + recovered:.1f} s")
    right.add_row("  noticed after", f"{noticed:.1f} s")
    right.add_row("  recovered in", f"{recovered:.1f} s")
    both = Table.grid(padding=(0, 4))
    both.add_row(left, right)
    return both


def _hashes(proof: Proof) -> Table:
    same = Text("equal", style="bold green")
    if not proof.verified:
        same = Text("DIFFERENT", style="bold red")
    anew = Text("by fresh processes, other hash seed, other time zone", style="dim")
    told = Table.grid(padding=(0, 2))
    told.add_row(" state in PostgreSQL", f"{proof.live_hash[:HASH_CHARS]}…", same)
    told.add_row(" the log folded anew", f"{proof.fold_hash[:HASH_CHARS]}…", anew)
    return told


def _way(one: Incident, takeover: Takeover) -> Group:
    """Where one incident stands: its way through the states, with what was done outside."""
    head = Text.assemble(
        (f" {one.instance} of {one.tenant}", "bold"),
        (f", on partition {one.partition}", "dim"),
        (f", which moved to {takeover.survivor}" if one.partition in takeover.partitions else ""),
    )
    told = Table.grid(padding=(0, 1))
    steps = list(_steps(one))
    for place, step in enumerate(steps[-STEPS:], 1 + max(0, len(steps) - STEPS)):
        last = place == len(steps)
        mark, style = (" ◉", "black on yellow") if last else (" ○" if place == 1 else " │", "")
        more = f"+ {step.more} event{'s' * (step.more > 1)}" if step.more else ""
        told.add_row(
            mark, Text(step.state, style=style), Text(step.event, style="dim"), step.sent,
            Text(more, style="dim"),
        )  # fmt: skip
    drawn = Text(f" the same as a picture: {_drawn(one)}", style="dim")
    return Group(head, told, drawn)


def _steps(one: Incident) -> Iterator[Step]:
    step = Step(incident.spec.initial, "", "")
    for each in one.history:
        if each.verdict != "applied":
            continue
        if each.state_after == step.state and not each.commands:
            step.more += 1
            continue
        yield step
        sent = ", ".join(SAYS.get(key.split(":")[-3], key) for key in each.commands)
        step = Step(each.state_after, each.type, f"✉ {sent}" if sent else "")
    yield step


def _drawn(one: Incident) -> Path:
    """Write where the incident stands as SVG; the file."""
    visited = frozenset(step.state for step in _steps(one))
    standing = Standing(instance=one.instance, state=one.state, visited=visited)
    path = Path(gettempdir()) / f"refold-demo-{one.tenant}-{one.instance}.svg"
    path.write_text(to_svg(incident.build(), standing), encoding="utf-8")
    return path


def _next(one: Incident, shell: Path | None) -> Table:
    lines = [(f"refold graph {SPEC}", "the workflow as a table, or --svg FILE")]
    if shell is None:
        lines.append(("refold demo --keep", "leaves all of it for a look"))
    else:
        lines = [
            (f". {shell}", "first: where this run is"),
            (f"refold inspect {one.instance} --tenant {one.tenant}", "state and history"),
            (f"refold verify {SPEC}", "fold and compare again"),
            *lines,
        ]
    told = Table.grid(padding=(0, 2))
    told.add_column()
    told.add_column(no_wrap=True)
    for place, (command, why) in enumerate(lines):
        told.add_row("" if place else " next", Text(command, style="cyan"), Text(why, style="dim"))
    return told


def _zero(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "bold green")
