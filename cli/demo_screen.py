"""The one screen that `refold demo` ends with.

Law of this module: at most 100 columns and 40 lines, and a person who never heard of refold
reads from it what happened and why it matters.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from refold.examples.demo.play import Played
from refold.examples.demo.proof import SPEC, Incident, Proof
from refold.examples.incident import incident
from refold.processors.draw import Standing, to_svg

WIDTH: Final = 98
HASH_CHARS: Final = 16
STEPS: Final = 9
"""Lines that the picture of one incident may take."""
MEANING: Final = {
    "applied": "changed an incident",
    "duplicate": "sent twice by a desk: ignored",
    "already": "a known fact under a new id: ignored",
    "late": "came after the end: noted",
    "refused": "not possible in that state: kept",
}
SAYS: Final = {
    "Page": "paged the person on call",
    "AskCaller": "asked the caller",
    "TellCaller": "told the caller",
    "SendSurvey": "sent the survey",
}


class Screen:
    """The result.

    Args:
        desks: How many there were.
        played: What was done.
        proof: What was found.
        shell: Variables by which other commands find the run; empty when it is not kept.
    """

    def __init__(self, desks: int, played: Played, proof: Proof, shell: Mapping[str, str]) -> None:
        self._desks = desks
        self._played = played
        self._proof = proof
        self._shell = shell

    def draw(self) -> Path:
        """Write where the shown incident stands as SVG; the file."""
        one = self._proof.shown
        definition = incident.build()
        visited = {each.state_after for each in one.history} | {definition.initial}
        path = Path(gettempdir()) / f"refold-demo-{one.tenant}-{one.instance}.svg"
        standing = Standing(
            instance=one.instance, state=one.state, visited=frozenset(visited - {""})
        )
        path.write_text(to_svg(definition, standing), encoding="utf-8")
        return path

    def shown(self, picture: Path) -> RenderableType:
        """All of it."""
        body = Group(
            self._story(),
            Text(),
            self._numbers(),
            Text(),
            self._hashes(),
            Text(),
            _path(self._proof.shown),
            Text(f"the same as a picture: {picture}", style="dim"),
            Text(),
            self._next(),
        )
        faults = self._proof.faults
        verdict = "everything exactly once" if not faults else "; ".join(faults)
        style = "red" if faults else "green"
        return Panel(body, title="refold demo", subtitle=verdict, style=style, width=WIDTH)

    def _story(self) -> Text:
        takeover = self._played.takeover
        return Text(
            f"{self._desks} service desks sent {self._proof.sent:,} events of"
            f" {self._proof.instances:,} incidents through Kafka. Two workers folded them into"
            f" state and sent commands. {takeover.dead} was killed (SIGKILL) in the middle of a"
            f" transaction with {takeover.folded:,} records folded; {takeover.survivor} took over.",
            style="default",
        )

    def _numbers(self) -> Table:
        proof, takeover = self._proof, self._played.takeover
        left = Table("events", "", "", box=None, padding=(0, 1), title_justify="left")
        left.columns[1].justify = "right"
        for verdict, count in proof.verdicts.items():
            left.add_row(verdict, f"{count:,}", Text(MEANING.get(verdict, ""), style="dim"))
        total = sum(proof.verdicts.values())
        left.add_row("sum", f"{total:,}", Text(f"= {proof.read:,} records read", style="bold"))
        right = Table("outside", "", box=None, padding=(0, 1))
        right.columns[1].justify = "right"
        right.add_row("commands", f"{sum(proof.commands.values()):,}")
        right.add_row("effects", f"{proof.effects:,}")
        right.add_row("doubles", _zero(proof.doubles))
        right.add_row("lost", _zero(proof.lost))
        noticed = takeover.detected_s - takeover.killed_s
        recovered = takeover.recovered_s - takeover.detected_s
        right.add_row("takeover", f"{noticed + recovered:.1f} s")
        right.add_row("  noticed", f"{noticed:.1f} s")
        right.add_row("  recovered", f"{recovered:.1f} s")
        both = Table.grid(padding=(0, 3))
        both.add_row(left, right)
        return both

    def _hashes(self) -> Table:
        proof = self._proof
        told = Table.grid(padding=(0, 2))
        same = Text("equal", style="bold green")
        if not proof.verified:
            same = Text("DIFFERENT", style="bold red")
        told.add_row("state in PostgreSQL", f"{proof.live_hash[:HASH_CHARS]}…", same)
        told.add_row(
            "log folded anew",
            f"{proof.fold_hash[:HASH_CHARS]}…",
            Text("in fresh processes, other hash seed and time zone", style="dim"),
        )
        return told

    def _next(self) -> Table:
        told = Table.grid(padding=(0, 2))
        one = self._proof.shown
        told.add_row("next", f"refold graph {SPEC}", Text("the workflow as a table", style="dim"))
        if not self._shell:
            told.add_row("", "refold demo --keep", Text("leaves all of it for a look", style="dim"))
            return told
        told.add_row("", f"refold inspect {one.instance} --tenant {one.tenant} -d {SPEC}", "")
        told.add_row("", f"refold verify {SPEC}", "")
        for name, value in self._shell.items():
            told.add_row("", f"export {name}={value}", "")
        return told


def _path(one: Incident) -> Table:
    """Where one incident stands: its way through the states, with what was done outside."""
    told = Table.grid(padding=(0, 1))
    told.add_row("", Text(f"{one.tenant} / {one.instance}", style="bold"), "")
    steps: list[tuple[str, str, list[str]]] = []
    stays = 0
    for each in one.history:
        if each.verdict != "applied":
            continue
        if each.state_after != each.state_before or each.commands:
            sent = [SAYS.get(key.split(":")[-3], key) for key in each.commands]
            steps.append((each.state_after, each.type, sent))
        else:
            stays += 1
    for place, (state, event, sent) in enumerate(steps[-STEPS:]):
        last = place == min(len(steps), STEPS) - 1
        mark = "◉" if last else "│" if place else "○"
        style = "bold reverse" if last else "default"
        told.add_row(mark, Text(state, style=style), Text(event), ", ".join(sent))
    return told


def _zero(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "bold green")
