"""`refold ledger`: what was to be done outside, what may have happened, and what is known of it.

Law of this module: reads the ledger's own database, and writes a person's decision; Kafka is not
asked. Reports stand in `refold.cli.ledger_reports`.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from refold.cli import ledger_reports, telling
from refold.cli.event import made
from refold.cli.ledger_options import (
    Action,
    From,
    Limit,
    Target,
    To,
    asking,
    chosen,
    tell_count,
)
from refold.cli.load import load_event
from refold.cli.telling import Json
from refold.executors import words
from refold.executors.grants import grant_ledger
from refold.executors.ledger import Ledger
from refold.executors.migrate import migrate_ledger
from refold.executors.model import Heard, Status, Word
from refold.executors.outcome import Declined, Done
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, UsageError
from refold.topics.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="See what was done outside, and what is not known.")
app.command("report")(ledger_reports.report_)
app.command("compare")(ledger_reports.compare_)
app.command("doubles")(ledger_reports.doubles)
app.command("export")(ledger_reports.export)

Who = Annotated[str, typer.Option("--who", help="Who decides.", show_default="your login name")]


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


@app.command()
def grant(
    dsn: Annotated[
        str | None,
        typer.Option("--dsn", help="Of the tables' owner; else as the executors connect."),
    ] = None,
    executor: Annotated[
        str | None, typer.Option("--executor", help="Role of executors, relays, and who settles.")
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", help="Role that only writes into its outbox.")
    ] = None,
    reader: Annotated[
        str | None, typer.Option("--reader", help="Role that only looks; it sees requests too.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the SQL.")] = False,
) -> None:
    """Give existing roles the least rights on the ledger; prints what was run."""
    if not (executor or service or reader):
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "No role was named.",
            "Give --executor ROLE, --service ROLE, --reader ROLE, or several.",
        )
    statements = grant_ledger(
        dsn or load_settings().ledger_dsn, executor=executor, service=service, reader=reader,
        dry_run=dry_run,
    )  # fmt: skip
    for statement in statements:
        typer.echo(f"{statement};")


@app.command("list")
def list_(
    state: Annotated[
        Status | None, typer.Option("--state", help="Only actions of this state.")
    ] = None,
    since: From = None,
    until: To = None,
    action: Action = None,
    target: Target = None,
    instance: Annotated[
        str | None, typer.Option("--instance", help="Only actions of this instance.")
    ] = None,
    contradicted: Annotated[
        bool, typer.Option("--contradicted", help="Only those of which the opposite was said too.")
    ] = False,
    clashes: Annotated[
        bool, typer.Option("--clashes", help="Only keys that came again with another request.")
    ] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List actions with what is known of them, in the order in which they were planned."""
    which = chosen(since, until, action, target, status=state, instance=instance)
    with asking() as questions:
        found = questions.find(which, contradicted=contradicted, clashing=clashes, most=limit)
    if as_json:
        telling.tell_json(found)
        return
    for row in found:
        telling.block(row["key"], **_told(row))
    tell_count(len(found), limit, "action")


@app.command()
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Idempotency key.")],
    as_json: Json = False,
) -> None:
    """Tell everything about one action: its calls, who made them, how they ended."""
    with asking() as questions:
        row = questions.show(key)
    if row is None:
        raise UsageError(
            Code.NOT_FOUND, f"the ledger has no key {key!r}.", "`refold ledger list` lists them."
        )
    if as_json:
        telling.tell_json(row)
        return
    attempts, clashes = row.pop("attempts"), row.pop("clash_list")
    if row["partition"] < 0:  # no command asked for it
        del row["partition"]
    telling.block(row.pop("key"), **{name: _text(value) for name, value in row.items() if value})
    for each in attempts:
        late = ", too late to count" if each.get("late") else ""
        telling.block(f"attempt {each['attempt']}{late}", **_filled(each, "attempt", "late"))
    for each in clashes:
        telling.block("came again with another request", **_filled(each, "key"))


@app.command()
def settle(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Idempotency key.")],
    as_: Annotated[
        Status, typer.Option("--as", help="What is true: succeeded or failed.", show_choices=False)
    ],
    reason: Annotated[str, typer.Option("--reason", help="How you know; kept with the action.")],
    event: Annotated[
        str, typer.Option("--type", metavar="MODULE:NAME", help="Event that tells the workflow.")
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="JSON",
            help="Its fields; without --type the result of an action that has no workflow.",
        ),
    ] = "",
    retry: Annotated[
        bool, typer.Option("--retry", help="With `--as failed`: another attempt may follow.")
    ] = False,
    who: Who = "",
) -> None:
    """Say what became of an action of unknown outcome, after a look at the other side.

    The workflow is told as by any result: by an event of your own type, or by the engine's
    `refold.succeeded` or `refold.failed`. What is settled never changes. An action of
    `Ledger.action` has no workflow: the next run under its key gets what --data says.
    """
    word = _word(as_, reason, event, data, retry=retry)
    book = Ledger(load_settings().ledger_dsn, "cli")
    try:
        heard = book.decide(key, word, who or telling.login_name("--who"))
    finally:
        book.close()
    if heard is Heard.SETTLED:
        telling.err.print(f"{key} is {as_}{_who_is_told(key)}.", soft_wrap=True)
    else:
        telling.err.print(f"{key} was {as_} already.", soft_wrap=True)


@app.command()
def rejected(
    since: From = None, until: To = None, limit: Limit = 50, as_json: Json = False
) -> None:
    """List records of command topics that are no commands; their bytes are kept."""
    with asking() as questions:
        found = questions.rejected(chosen(since, until), most=limit)
    if as_json:
        telling.tell_json(found)
        return
    for row in found:
        where = f"{row.pop('topic')}[{row.pop('partition')}] offset {row.pop('offset')}"
        telling.block(where, **_filled(row))
    tell_count(len(found), limit, "record")


@app.command()
def scanners(as_json: Json = False) -> None:
    """Tell when each executor last looked for what is not known."""
    with asking() as questions:
        found = questions.scanners()
    if as_json:
        telling.tell_json(found)
        return
    rows = [
        ((row["target"], row["worker"], _text(row["scanned"]), f"{row['age_s']:.0f} s"), "")
        for row in found
    ]
    telling.listed(("target", "worker", "last scan", "ago"), rows)


@app.command()
def prune(
    days: Annotated[float, typer.Option("--days", min=1, help="Keys are remembered for so long.")],
) -> None:
    """Forget actions that were settled and published longer ago than that."""
    book = Ledger(load_settings().ledger_dsn, "cli")
    gone = 0
    try:
        while some := book.prune(days * 86_400):
            gone += some
    finally:
        book.close()
    telling.err.print(f"{gone} actions are forgotten.")


def _word(status: Status, reason: str, spec: str, data: str, *, retry: bool) -> Word:
    if status not in (Status.SUCCEEDED, Status.FAILED):
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"an action cannot be settled as {status}.",
            "Say what is true: --as succeeded or --as failed.",
        )
    if not reason.strip():
        raise UsageError(
            Code.BAD_COMMAND_LINE, "the reason is empty.", "Say how you know: it is kept."
        )
    if spec:
        event = made(codec_of(load_event(spec)), data or "{}")
        ending = Done(event) if status is Status.SUCCEEDED else Declined(event)
        return words.word_of(ending, reason)
    if data:
        return words.plain_word(status, _json(data), reason)
    if status is Status.SUCCEEDED:
        return words.declared_done(reason)
    return words.declared_failed(reason, retry=retry)


def _json(data: str) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(data), order="sorted")
    except ValueError as error:
        raise UsageError(
            Code.BAD_COMMAND_LINE, f"--data is no JSON: {error}.", "Correct it."
        ) from error


def _who_is_told(key: str) -> str:
    with asking() as questions:
        row = questions.show(key)
    return "; an executor tells its workflow" if row is not None and row["reply_to"] else ""


def _told(row: dict[str, Any]) -> dict[str, str]:
    """What a person wants to know of a row, empty fields left out."""
    names = ("instance", "workflow", "tenant", "state")
    fields = {
        "action": f"{row['action']}, {row['direction']}, of {row['system']} ({row['truth']})",
        "instance": " ".join(f"{name} {row[name]}" for name in names if row[name]),
        "status": f"{row['status']}, attempt {row['attempt']}",
        "why": row["reason"],
        "reference": row["reference"],
        "contradicted": "the opposite was said later: look at the other side"
        if row["contradicted"]
        else "",
        "clashes": f"came again with {row['clashes']} other requests" if row["clashes"] else "",
        "planned": _text(row["planned"]),
        "called": _text(row["dispatched"]),
        "recorded": _text(row["recorded"]),
    }
    return {name: value for name, value in fields.items() if value}


def _filled(row: dict[str, Any], *without: str) -> dict[str, str]:
    return {name: _text(value) for name, value in row.items() if value and name not in without}


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    return "" if value is None else str(value)
