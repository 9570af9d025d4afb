"""`refold ledger`: what was to be done outside, what may have happened, and what is known of it.

Law of this module: reads the ledger's own database; Kafka is not asked.
"""

from typing import Annotated

import typer

from refold.cli import telling
from refold.cli.telling import Json
from refold.executors.ledger import BATCH, Ledger
from refold.executors.migrate import migrate_ledger
from refold.executors.model import Status
from refold.topics.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="See what was done outside, and what is not known.")


@app.callback()
def ledger() -> None:
    """See what was done outside, and what is not known."""


@app.command()
def migrate() -> None:
    """Make or update the ledger's tables in the executor's database."""
    done = migrate_ledger(load_settings().ledger_dsn)
    for each in done:
        telling.err.print(f"applied {each.number:03d} {each.name}")
    if not done:
        telling.err.print("The ledger is up to date.")


@app.command("list")
def list_(
    state: Annotated[
        Status | None, typer.Option("--state", help="Only actions of this state.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=BATCH, help="Most actions to show.")
    ] = 50,
    json_: Json = False,
) -> None:
    """List actions with what is known of them."""
    opened = Ledger(load_settings().ledger_dsn, "ledger")
    try:
        found = opened.actions(state, most=limit)
    finally:
        opened.close()
    if json_:
        telling.tell_json(found)
        return
    for row in found:
        fields = {name: value for name, value in row.items() if name != "key" and value}
        telling.block(row["key"], **fields)
    if not found:
        telling.err.print("No action is there.")
