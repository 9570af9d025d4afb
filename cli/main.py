"""The command `refold`: names its groups, turns errors into one message and an exit code.

Law of this module: it imports no group until one is called, so that `refold --help` is quick, and
no mistake that a user can make ends in a traceback. Exit codes: 0 done, 1 failed, 2 used wrongly.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from refold.schemas.errors import Code, RefoldError, UsageError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """One command or group of commands.

    Attributes:
        module: Where its `typer.Typer` lives; imported when it is called.
        summary: The line that `refold --help` shows.
        app: Its name there: a module may hold several.
    """

    module: str
    summary: str
    app: str = "app"


ENTRIES: Final[dict[str, Entry]] = {
    "demo": Entry("refold.cli.demo", "Replay a service desk, kill a worker, prove the result."),
    "graph": Entry("refold.cli.graph", "Draw a definition, or say what changed between two."),
    "local": Entry("refold.cli.local", "Run Kafka and PostgreSQL on this machine, from packages."),
    "worker": Entry("refold.cli.worker", "Fold the partitions that the group gives to it."),
    "executor": Entry("refold.cli.executor", "Do what commands ask for, through the ledger."),
    "db": Entry("refold.cli.db", "Make, check, open up and thin the tables in PostgreSQL."),
    "topics": Entry("refold.cli.topics", "Make and check the topics of workflows."),
    "event": Entry("refold.cli.event", "Send one event, and see what became of it."),
    "rejected": Entry("refold.cli.rejected", "See what was refused, and redrive it."),
    "parked": Entry("refold.cli.parked", "See the instances that wait for a person."),
    "commands": Entry("refold.cli.commands", "Watch the commands of a target."),
    "ledger": Entry("refold.cli.ledger", "See what was done outside, and what is not known."),
    "replay": Entry("refold.cli.replay", "Fold a partition from its log, silently.", "replay_app"),
    "rebuild": Entry("refold.cli.replay", "Make a partition's rows from its log.", "rebuild_app"),
    "verify": Entry("refold.cli.replay", "Compare live state with the log.", "verify_app"),
    "inspect": Entry("refold.cli.look", "Show where an instance stands, and why.", "inspect_app"),
    "history": Entry("refold.cli.look", "Export what happened to an instance.", "history_app"),
    "redrive": Entry("refold.cli.act", "Release a parked instance.", "redrive_app"),
    "terminate": Entry("refold.cli.act", "End an instance, whatever its state.", "terminate_app"),
    "status": Entry(
        "refold.cli.operate", "Show workers, lag, fences and what is parked.", "status_app"
    ),
    "partitions": Entry("refold.cli.operate", "See and resolve fences.", "partitions_app"),
    "definitions": Entry("refold.cli.definitions", "See versions in use; accept changed code."),
    "config": Entry("refold.cli.config", "Say which settings are in force."),
    "explain": Entry("refold.cli.explain", "Say what an error code means and what to do."),
}
"""Every command, in the order that `refold --help` shows them."""


class LazyGroup(TyperGroup):
    """A group that knows the names and summaries of its commands and imports one when called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in ENTRIES.items():
            self.add_command(TyperCommand(name=name, help=entry.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command that the arguments name, and import it."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in ENTRIES:
            command = _load(name)
        return name, command, rest


def _load(name: str) -> Any:
    try:
        app = getattr(import_module(ENTRIES[name].module), ENTRIES[name].app)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("refold"):
            raise
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"`refold {name}` needs the package {error.name}, which is not installed.",
            "Install it with `pip install 'refold[local]'`.",
        ) from error
    command = typer.main.get_command(app)
    command.name = name
    return command


app = typer.Typer(
    cls=LazyGroup,
    name="refold",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"refold {version('refold')}")
        raise typer.Exit


@app.callback()
def refold(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which one."),
    ] = False,
) -> None:
    """Event-sourced stream processing for workflows on Apache Kafka and PostgreSQL."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code.

    Args:
        arguments: The command line without the program's name.
    """
    try:
        _check_text(arguments)
        app(list(arguments), prog_name="refold")
    except RefoldError as error:
        report(_with_address(error))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else EXIT_FAILED
    return 0


def _with_address(error: RefoldError) -> RefoldError:
    """Where Kafka was looked for: its client does not say."""
    if error.code != Code.KAFKA_AWAY or "bootstrap" in error.where:
        return error
    from refold.topics.settings import load_settings  # noqa: PLC0415  # help needs no settings

    where = {**error.where, "bootstrap": load_settings().kafka.bootstrap}
    return type(error).of(error.code, error.what, error.cure, where)


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no text: no name, id or value of refold's can be such."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(
                Code.BAD_COMMAND_LINE, f"the argument {argument[:80]!a} is not UTF-8."
            ) from None


def report(error: RefoldError) -> None:
    """Say on standard error what is wrong, where, and what to do."""
    lines = [f"refold: {error.code}: {error.what}"]
    if error.where:
        lines.append("  where: " + ", ".join(f"{key}={val}" for key, val in error.where.items()))
    if error.cure:
        lines.append(f"  what to do: {error.cure}")
    lines.append(f"  more: refold explain {error.code}")
    typer.echo("\n".join(lines), err=True)


def main() -> None:
    """Entry point of the installed program."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
