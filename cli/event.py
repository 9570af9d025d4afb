"""`refold event`: send one event as an upstream service would, and ask what became of it.

Law of this module: data given as JSON becomes the type that the definition names, or is refused
before anything is sent; the outcome decides the exit code.
"""

import json
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from refold.cli import telling
from refold.cli.load import load_workflows
from refold.processors.definition import Workflow
from refold.schemas.codec import Codec
from refold.schemas.errors import Code, UsageError
from refold.snapshots.queries import EventView
from refold.topics.clients import reader
from refold.topics.publisher import Delivered, Draft, Outcome, Publisher
from refold.topics.redrive import Entry, RejectedLog
from refold.topics.settings import Settings, load_settings

app = typer.Typer(no_args_is_help=True, help="Send one event, and see what became of it.")


@app.callback()
def event() -> None:
    """Send one event, and see what became of it."""


@app.command()
def send(
    definition: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="The workflow.")],
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="Event type.")],
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Instance id.")],
    data: Annotated[str, typer.Option(help="The event as JSON.")] = "{}",
    event_id: Annotated[str, typer.Option("--id", help="Event id, unique for the source.")] = "",
    key: Annotated[str, typer.Option(help="A key of yours to derive the id from.")] = "",
    source: Annotated[str, typer.Option(help="Who says so: a URI reference.")] = "/cli",
    tenant: telling.Tenant = "",
    expected_state: Annotated[
        str | None, typer.Option(help="Refused as stale in any other state.")
    ] = None,
    expected_version: Annotated[int | None, typer.Option(min=0, help="Likewise.")] = None,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Time for the delivery.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Publish one event and say what is known of it: delivered, refused or unknown."""
    (workflow,) = _one(load_workflows([definition]))
    if bool(event_id) == bool(key):
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "an event needs an id, or a key to derive it from, and not both.",
            "Give --id or --key: what stays the same when the same fact is sent again.",
        )
    codec = _codec(workflow, event_type)
    draft = Draft(
        instance=instance,
        event=made(codec, data),
        id=event_id,
        key=key,
        tenant=telling.tenant_of(tenant, workflow),
        expected_state=expected_state,
        expected_version=expected_version,
    )
    with Publisher(load_settings(), workflow.name, source, timeout_s=timeout_s) as publisher:
        outcome = publisher.send(draft)
    _tell(outcome, as_json)
    if not isinstance(outcome, Delivered):
        raise typer.Exit(1)


@app.command()
def show(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="ce_source of the event.")],
    event_id: Annotated[str, typer.Argument(metavar="ID", help="ce_id of the event.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Say what became of an event: every record with this identity, from PostgreSQL's index.

    A record whose envelope was refused has no identity there: it is looked for on the decision
    logs, by its headers as they came.
    """
    settings = load_settings()
    with telling.queries_of(settings) as queries:
        rows = queries.event(source, event_id)
    if not rows:
        _tell_refused(_refused(settings, source, event_id), as_json=as_json)
        return
    if as_json:
        telling.tell_json(rows)
        return
    for row in rows:
        telling.tell(**_told(row))


def _refused(settings: Settings, source: str, event_id: str) -> list[tuple[str, Entry]]:
    """Decisions about records that bear this identity in their headers, with their workflow.

    Raises:
        UsageError: NOT_FOUND.
    """
    read = partial(reader, settings)
    wanted = [("ce_source", source.encode()), ("ce_id", event_id.encode())]
    found = [
        (workflow, entry)
        for workflow in telling.decision_logs(settings)
        for log in [RejectedLog(settings.namespace, workflow, read)]
        for partition in log.partitions()
        for entry in log.entries(partition)
        if all(header in entry.original.headers for header in wanted)
    ]
    if not found:
        raise UsageError(
            Code.NOT_FOUND,
            f"no record of event {event_id!r} from {source!r} was folded or rejected, or its row"
            " was thinned.",
            "A record without these headers is in `refold rejected list`.",
        )
    return found


def _tell_refused(found: list[tuple[str, Entry]], *, as_json: bool) -> None:
    told = [
        {
            "workflow": workflow,
            "record": str(entry.original.source),
            "verdict": entry.decision.verdict.value,
            "code": entry.decision.reason.code.value,
            "text": entry.decision.reason.text,
            "kept": f"{entry.where.partition}:{entry.where.offset}",
        }
        for workflow, entry in found
    ]
    if as_json:
        telling.tell_json(told)
        return
    for each in told:
        telling.tell(
            record=each["record"],
            verdict=each["verdict"],
            why=f"{each['code']}: {each['text']}",
            kept=f"refold rejected show {each['workflow']} {each['kept']}",
        )


def _told(row: EventView) -> dict[str, object]:
    """What a person wants to know of a row, empty fields left out."""
    fields: dict[str, object] = {
        "record": f"{row.workflow}[{row.partition}] offset {row.log_offset}",
        "instance": f"{row.tenant}/{row.instance_id}",
        "type": row.type,
        "written": row.log_time.isoformat(),
        "verdict": row.verdict,
        "why": f"{row.code}: {row.text}" if row.code else "",
        "later": row.resolution or "",
        "transition": row.transition,
        "state": " → ".join(dict.fromkeys(filter(None, (row.state_before, row.state_after)))),
        "commands": "\n".join(row.commands),
    }
    return {name: value for name, value in fields.items() if value}


def _one(workflows: dict[str, Workflow]) -> tuple[Workflow]:
    if len(workflows) != 1:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{len(workflows)} workflows are named: {', '.join(workflows)}.",
            "Name one.",
        )
    return (next(iter(workflows.values())),)


def _codec(workflow: Workflow, name: str) -> Codec[Any]:
    events = workflow.latest.events
    if name not in events:
        raise UsageError(
            Code.NOT_FOUND,
            f"{workflow.name} knows no event type {name!r}.",
            f"Its types: {', '.join(events)}.",
        )
    return events[name]


def made(codec: Codec[Any], data: str) -> object:
    """The event that JSON of `--data` says.

    Raises:
        UsageError: BAD_COMMAND_LINE.
    """
    validate = getattr(codec.cls, "model_validate_json", None)
    try:
        return validate(data) if validate else msgspec.json.decode(data.encode(), type=codec.cls)
    except ValueError as error:
        raise UsageError(
            Code.BAD_COMMAND_LINE, f"--data is no {codec.name}: {error}.", "Correct the JSON."
        ) from error


def _tell(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        kind = type(outcome).__name__.lower()
        typer.echo(json.dumps({"outcome": kind, **msgspec.to_builtins(outcome)}))
    elif isinstance(outcome, Delivered):
        where = f"{outcome.topic}[{outcome.partition}] offset {outcome.offset}"
        telling.err.print(f"delivered: {outcome.event_id} at {where}", soft_wrap=True)
    else:
        kind = type(outcome).__name__.lower()
        telling.err.print(f"{kind}: {outcome.event_id}: {outcome.reason.text}", soft_wrap=True)
        telling.err.print("Send it again with the same id: it counts once.")
