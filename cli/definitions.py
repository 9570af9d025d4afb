"""`refold definitions`: which versions are in use, and accepting code that folds the same.

Law of this module: composes from settings and tells; what may be accepted is decided by a replay.
"""

from typing import Annotated

import typer
from rich.table import Table

from refold.cli import telling
from refold.cli.process import many_records
from refold.cli.telling import Json, Specs
from refold.processors.clients import KafkaClients
from refold.processors.versions import accept, uses
from refold.schemas.errors import Code, UsageError
from refold.snapshots.model import PartitionRow
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.settings import Settings, load_settings

app = typer.Typer(no_args_is_help=True, help="See versions in use; accept code that folds alike.")


@app.command("list")
def list_(
    workflow: Annotated[str, typer.Option("--workflow", help="Only this one.")] = "",
    json_: Json = False,
) -> None:
    """List the versions ever used, who still needs them, and which may be removed."""
    settings = load_settings()
    with telling.store_of(settings, "definitions") as store:
        rows = _rows(settings, store, workflow)
        found = [
            use
            for name in sorted({row.workflow for row in rows})
            for use in uses(store, name, [row for row in rows if row.workflow == name])
        ]
    if json_:
        telling.tell_json(found)
        return
    names = ("workflow", "version", "running", "ended", "begins on", "folded on", "may be removed")
    table = Table(*names, box=None)
    for each in found:
        cells = (
            each.workflow,
            str(each.version),
            str(each.running),
            str(each.ended),
            _numbers(each.begins),
            _numbers(each.folded),
            "yes" if each.removable else "no",
        )
        table.add_row(*map(telling.plain, cells))
    telling.out.print(table)


@app.command("accept")
def accept_(specs: Specs, workflow: telling.Name = "", json_: Json = False) -> None:
    """Replay the log under changed code; accept it if verdicts, commands and states are equal."""
    settings, chosen = load_settings(), telling.chosen(specs, workflow)
    many_records()
    with (
        telling.store_of(settings, "definitions") as store,
        telling.bar(f"folding {chosen.name}", quiet=json_) as progress,
    ):
        rows = _rows(settings, store, chosen.name)
        clients = KafkaClients(settings)
        found = accept(clients, settings.namespace, store, chosen, rows, progress)
    if json_:
        telling.tell_json(found)
        return
    if not found:
        telling.out.print("Nothing has changed: every version has the fingerprint of its first use")
    for each in found:
        telling.tell(
            accepted=f"{each.workflow} version {each.version}",
            fingerprint=f"{each.before} → {each.after}",
            shown_by=f"{each.records} records on {len(each.partitions)} partitions, folded alike",
        )


@app.command("activate")
def activate_(
    workflow: Annotated[str, typer.Argument(help="Name of the workflow.")],
    version: Annotated[int, typer.Argument(min=1, help="Version that new instances begin with.")],
    who: Annotated[str, typer.Option("--who", help="Your name: it is written down.")],
    why: Annotated[str, typer.Option("--why", help="Why now.")],
    json_: Json = False,
) -> None:
    """Let new instances begin with a version, where `worker.activate` is `manual`."""
    settings = load_settings()
    with telling.store_of(settings, "definitions") as store:
        upkeep = Upkeep(store)
        if not upkeep.activate(workflow, version, who, why):
            raise _unregistered(settings, workflow, version, upkeep)
    if json_:
        telling.tell_json({"workflow": workflow, "version": version, "who": who, "why": why})
        return
    seen = f"within {settings.worker.preflight_s:.0f} s, from each partition's next event on"
    telling.tell(activated=f"{workflow} version {version}", seen_by_workers=seen)


def _unregistered(settings: Settings, workflow: str, version: int, upkeep: Upkeep) -> UsageError:
    registered = [str(each.version) for each in upkeep.definitions(workflow)]
    if not registered:
        with telling.queries_of(settings) as queries:
            queries.check_workflow(workflow)
    return UsageError(
        Code.NOT_FOUND,
        f"Version {version} of {workflow} is not registered.",
        f"Registered: {', '.join(registered) or 'none'}. Start every worker with that version"
        " first, then activate it.",
    )


def _rows(settings: Settings, store: PostgresStore, workflow: str) -> list[PartitionRow]:
    with telling.queries_of(settings) as queries:
        views = queries.partitions(workflow or None)
        if workflow and not views:
            queries.check_workflow(workflow)
    found = [store.read(each.topic, each.partition) for each in views]
    return [each for each in found if each is not None]


def _numbers(several: tuple[int, ...]) -> str:
    """Partition numbers as ranges: `0–11, 13`."""
    runs: list[list[int]] = []
    for number in sorted(several):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("–".join(map(str, run)) for run in runs) or "–"
