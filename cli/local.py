"""`refold local`: Kafka and PostgreSQL on this machine, without containers.

Law of this module: standard output carries only what a shell can read (`eval "$(refold local
up)"`); what is told to a person goes to standard error.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import typer
from rich.status import Status

from refold.cli import telling
from refold.local.pair import Pair, local_folder
from refold.local.server import Server
from refold.schemas.errors import Code, UsageError

app = typer.Typer(
    no_args_is_help=True, help="Run Kafka and PostgreSQL on this machine, from packages."
)

KAFKA_PORT: Final = 9092
POSTGRES_PORT: Final = 5432

Folder = Annotated[
    Path | None,
    typer.Option("--dir", envvar="REFOLD_LOCAL_DIR", help="Folder of the pair's data."),
]


@app.command()
def up(
    folder: Folder = None,
    kafka_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"Port of Kafka [{KAFKA_PORT}].")
    ] = None,
    postgres_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"Port of PostgreSQL [{POSTGRES_PORT}].")
    ] = None,
) -> None:
    """Start both, or find them running; print the variables by which refold finds them."""
    where = local_folder(folder)
    running = Pair.at(where)
    _refuse_other_port(running.kafka, kafka_port)
    _refuse_other_port(running.postgres, postgres_port)
    with _telling(f"looking at {where}") as status:
        pair = Pair.at(
            where,
            kafka_port=kafka_port or running.kafka.port or KAFKA_PORT,
            postgres_port=postgres_port or running.postgres.port or POSTGRES_PORT,
            progress=lambda done, total, jar: status.update(
                f"downloading Kafka, once: jar {done + 1} of {total}, {jar}"
            ),
        )
        pair.up(status.update)
    for server in (pair.kafka, pair.postgres):
        telling.err.print(
            f"{server.name} answers on 127.0.0.1:{server.port} (data in {server.home})"
        )
    telling.err.print("`refold local down` stops both and keeps their data.")
    here = {"REFOLD_LOCAL_DIR": str(where)} if folder else {}
    for name, value in (pair.environment() | here).items():
        typer.echo(f"export {name}={quote(value)}")


@app.command()
def down(folder: Folder = None) -> None:
    """Stop both; their data stays."""
    pair = Pair.at(local_folder(folder))
    running = [server.name for server in (pair.kafka, pair.postgres) if server.is_running()]
    with _telling("stopping Kafka and PostgreSQL"):
        pair.down()
    telling.err.print(f"stopped: {', '.join(running)}" if running else "nothing was running")


@app.command()
def status(
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what runs and where; exits with 1 unless both do their work."""
    pair = Pair.at(local_folder(folder))
    rows = [_row(server) for server in (pair.kafka, pair.postgres)]
    if as_json:
        typer.echo(json.dumps({"dir": str(pair.folder), "servers": rows}))
    else:
        for row in rows:
            typer.echo("{server:<11} {state:<9} port {port:<6} pid {pid}  {home}".format(**row))
    if any(row["state"] != "answers" for row in rows):
        raise typer.Exit(1)


@app.command()
def reset(
    folder: Folder = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Stop both and delete all their data."""
    where = local_folder(folder)
    if not yes:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"this deletes every topic and every table in {where}.",
            "Say `refold local reset --yes` if that is what you want.",
        )
    with _telling("stopping and deleting"):
        Pair.at(where).reset()
    telling.err.print(f"deleted: Kafka and PostgreSQL in {where}")


def _row(server: Server) -> dict[str, object]:
    pid = server.pid
    state = "stopped"
    if pid is not None:
        state = "answers" if server.answers() else "silent"
    return {
        "server": server.name,
        "state": state,
        "port": server.port,
        "pid": pid,
        "home": str(server.home),
    }


def _refuse_other_port(server: Server, port: int | None) -> None:
    if port is not None and server.is_running() and server.port != port:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{server.name} runs already, on port {server.port}, not on {port}.",
            "Say `refold local down` first to move it.",
        )


@contextmanager
def _telling(text: str) -> Iterator[Status]:
    with telling.err.status(text) as status:
        yield status
