"""`refold db`: make, check, open up and thin the tables in PostgreSQL.

Law of this module: standard output carries only what a program can read; what is told to a person
goes to standard error.
"""

import json
import time
from collections.abc import Callable
from typing import Annotated, Final

import typer

from refold.cli import telling
from refold.schemas.errors import Code, UsageError
from refold.snapshots.grants import grant as grant_rights
from refold.snapshots.migrate import SCHEMA, migrations
from refold.snapshots.migrate import migrate as apply_migrations
from refold.snapshots.preflight import findings
from refold.snapshots.queries import Queries
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.settings import load_settings

app = typer.Typer(
    no_args_is_help=True, help="Make, check, open up and thin the tables in PostgreSQL."
)

EXIT_FOUND: Final = 1
DAY_S: Final = 86_400

Dsn = Annotated[
    str | None,
    typer.Option("--dsn", help="Connection string; otherwise the settings' [postgres] dsn."),
]
Schema = Annotated[str, typer.Option("--schema", help="Schema of the tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command()
def migrate(dsn: Dsn = None, schema: Schema = SCHEMA, json_: Json = False) -> None:
    """Bring the tables up to this release; does nothing when they are."""
    done = apply_migrations(_dsn(dsn), schema)
    if json_:
        typer.echo(json.dumps({"schema": schema, "applied": [step.name for step in done]}))
        return
    for step in done:
        telling.err.print(f"applied {step.number:03} {step.name}")
    telling.err.print(f"schema {schema} is at version {len(migrations())}")


@app.command()
def check(dsn: Dsn = None, schema: Schema = SCHEMA, json_: Json = False) -> None:
    """Say what of the server, its settings and the tables is not as it must be."""
    found = findings(_dsn(dsn), schema)
    if json_:
        rows = [{"code": f.code, "what": f.what, "cure": f.cure, "fatal": f.fatal} for f in found]
        typer.echo(json.dumps(rows))
    else:
        for finding in found:
            telling.err.print(f"{finding.code}: {finding.what}", soft_wrap=True)
            telling.err.print(f"  what to do: {finding.cure}", soft_wrap=True)
        if not found:
            telling.err.print(f"PostgreSQL and schema {schema} are as they must be")
    if any(finding.fatal for finding in found):
        raise typer.Exit(EXIT_FOUND)


@app.command()
def grant(
    dsn: Dsn = None,
    schema: Schema = SCHEMA,
    worker: Annotated[str | None, typer.Option(help="Role of the workers.")] = None,
    reader: Annotated[str | None, typer.Option(help="Role that reads the views.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the SQL.")] = False,
) -> None:
    """Give existing roles the least rights that they need; prints what was run."""
    if worker is None and reader is None:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "No role was named.",
            "Give --worker ROLE, --reader ROLE or both.",
        )
    statements = grant_rights(
        _dsn(dsn), worker=worker, reader=reader, schema=schema, dry_run=dry_run
    )
    for statement in statements:
        typer.echo(f"{statement};")


@app.command()
def thin(
    workflow: Annotated[str, typer.Argument(help="Whose rows.")],
    older_than_days: Annotated[float, typer.Option(min=0, help="Age that rows may reach.")],
    dsn: Dsn = None,
    schema: Schema = SCHEMA,
    json_: Json = False,
) -> None:
    """Delete old rows of the event-log index and of instances that ended.

    Nothing is lost that the log does not hold: snapshots stay, and so does every record that
    still waits for a person.
    """
    queries = Queries(_dsn(dsn), schema)
    try:
        queries.check_workflow(workflow)
    finally:
        queries.close()
    before_ms = int((time.time() - older_than_days * DAY_S) * 1000)
    store = PostgresStore(_dsn(dsn), schema, "refold:thin")
    try:
        upkeep = Upkeep(store)
        events = _all_steps(lambda: upkeep.thin_events(workflow, before_ms))
        instances = _all_steps(lambda: upkeep.thin_instances(workflow, before_ms))
    finally:
        store.close()
    if json_:
        typer.echo(json.dumps({"events": events, "instances": instances}))
    else:
        telling.err.print(f"deleted {events} rows of the index and {instances} ended instances")


def _all_steps(step: Callable[[], int]) -> int:
    """Small transactions until nothing is left: a worker's flushes go on between them."""
    total = 0
    while done := step():
        total += done
    return total


def _dsn(given: str | None) -> str:
    return given or load_settings().postgres.dsn
