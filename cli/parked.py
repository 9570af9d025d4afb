"""`refold parked`: the instances that wait for a person, why, and since when.

Law of this module: reads the rows in PostgreSQL, a page at a time; `refold redrive` and
`refold terminate` act on what it shows.
"""

from typing import Annotated

import typer

from refold.cli import telling
from refold.cli.telling import Json
from refold.snapshots.queries import PAGE, PAGE_MOST, ParkedView
from refold.topics.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="See the instances that wait for a person.")


@app.callback()
def parked() -> None:
    """See the instances that wait for a person."""


@app.command("list")
def list_(
    workflow: Annotated[str, typer.Option("--workflow", help="Only this one's.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=PAGE_MOST, help="Most instances to show.")
    ] = PAGE,
    json_: Json = False,
) -> None:
    """List parked instances with what parked them, since when, and how much waits in each."""
    with telling.queries_of(load_settings()) as queries:
        if workflow:
            queries.check_workflow(workflow)
        found = queries.parked(workflow or None, limit=limit)
        counts = queries.parked_counts()
    if json_:
        telling.tell_json(found)
        return
    total = sum(count for (name, _), count in counts.items() if workflow in ("", name))
    for each in found:
        telling.block(f"{each.tenant}/{each.instance_id} of {each.workflow}", **_told(each))
    if not found:
        telling.err.print("No instance waits for a person.")
    elif total > len(found):
        telling.err.print(f"{len(found)} of {total}: show more with --limit")


def _told(row: ParkedView) -> dict[str, object]:
    record = f"{row.type} at offset {row.log_offset} of partition {row.partition}"
    return {
        "parked by": record if row.type is not None else f"a record of partition {row.partition}",
        "since": row.since.isoformat(" ", "seconds"),
        "cause": f"{row.code}: {row.text}",
        "state": f"{row.state}, version {row.definition}",
        "waiting": f"{row.waiting} records",
        "way out": f"refold redrive {row.instance_id} --tenant {row.tenant}"
        f" --workflow {row.workflow} --who … --why …",
    }
