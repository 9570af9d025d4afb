"""`refold inspect` and `refold history export`: one instance, its past, its records.

Law of this module: reads only. With definitions the log is folded, without them the rows in
PostgreSQL tell what they hold.
"""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from refold.cli import telling
from refold.cli.load import load_workflows
from refold.cli.telling import Json, Tenant
from refold.processors.clients import KafkaClients
from refold.processors.definition import Workflow as Folded
from refold.processors.inspection import (
    Happened,
    Inspection,
    Look,
    exported,
    happened_of_view,
    look_of_row,
    not_found,
)
from refold.processors.outline import Standing
from refold.processors.partition import Key
from refold.processors.projection import ShownAction, ShownTimer
from refold.schemas.errors import Code, ServerError, UsageError
from refold.snapshots.queries import InstanceView
from refold.snapshots.upkeep import Upkeep
from refold.topics.settings import Settings, load_settings

inspect_app = typer.Typer()
history_app = typer.Typer(no_args_is_help=True, help="Export what happened to an instance.")

PAGE: Final = 1_000
NOTE_CHARS: Final = 160
"""Longest note in a picture: three lines below the state's name."""

Identity = Annotated[str, typer.Argument(metavar="ID", help="Instance id.")]
Definitions = Annotated[
    list[str],
    typer.Option(
        "--definition",
        "-d",
        metavar="MODULE:NAME",
        envvar="REFOLD_DEFINITIONS",
        help="Definitions: with them the log is folded. May be repeated.",
    ),
]
Workflow = Annotated[str, typer.Option("--workflow", help="Which workflow; found by the id.")]


class Told(msgspec.Struct, frozen=True):
    """An instance and its history."""

    instance: Look
    history: Sequence[Happened]


@inspect_app.command("inspect")
def inspect(
    instance: Identity,
    tenant: Tenant = "",
    workflow: Workflow = "",
    definition: Definitions = [],  # noqa: B006  # typer copies it
    at: Annotated[
        int | None, typer.Option("--at", metavar="OFFSET", min=0, help="Behind this record.")
    ] = None,
    json_: Json = False,
) -> None:
    """Show an instance: state, context, what it waits for, what happened to it."""
    settings = load_settings()
    if definition:
        chosen = _meant(settings, definition, workflow, tenant, instance)
        found = _from_log(settings, (telling.tenant_of(tenant, chosen), instance), chosen, at)
    elif at is not None:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "The past is folded from the log, which needs the definition.",
            "Add --definition MODULE:NAME.",
        )
    else:
        found = _from_rows(settings, tenant, instance, workflow)
    if json_:
        telling.tell_json(found)
    else:
        _tell(found)


@history_app.callback()
def history() -> None:
    """Export what happened to an instance."""


@history_app.command("export")
def export(
    instance: Identity,
    tenant: Tenant = "",
    workflow: Workflow = "",
    definition: Definitions = [],  # noqa: B006  # typer copies it
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write there; else print.")
    ] = None,
    json_: Json = False,  # it is JSON lines either way
) -> None:
    """Write an instance's records as JSON lines, which a test folds with `Driver.from_history`."""
    settings = load_settings()
    if not definition:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "Which workflow's log is to be read is not said.",
            "Add --definition MODULE:NAME.",
        )
    chosen = _meant(settings, definition, workflow, tenant, instance)
    key = (telling.tenant_of(tenant, chosen), instance)
    with _other_tenants(settings, chosen.name, key):
        lines = exported(KafkaClients(settings), settings.namespace, chosen, key)
    if out is None:
        for line in lines:
            typer.echo(line)
        return
    try:
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            Code.BAD_COMMAND_LINE, f"{out} cannot be written: {error.strerror}.", "Name another."
        ) from error


def _meant(
    settings: Settings, specs: list[str], workflow: str, tenant: str, instance: str
) -> Folded:
    """The workflow that is named; of several that are given, the one whose rows have the id."""
    if not workflow and len(load_workflows(specs)) > 1:
        with suppress(UsageError, ServerError):  # the rows only help: else one must be named
            workflow = find(settings, tenant, instance, "").workflow
    return telling.chosen(specs, workflow)


def _from_log(settings: Settings, key: Key, chosen: Folded, at: int | None) -> Told:
    with _other_tenants(settings, chosen.name, key):
        return _looked(settings, key, chosen, at)


def _looked(settings: Settings, key: Key, chosen: Folded, at: int | None) -> Told:
    clients = KafkaClients(settings)
    looking = Inspection(clients, settings.namespace, settings.group, chosen, key)
    if at is not None:
        return Told(looking.at(at), looking.history(at + 1))
    with telling.store_of(settings, "inspect") as store:
        try:
            look, rows = looking.now(store), _history(settings, chosen.name, key)
        except ServerError as away:
            if away.code != Code.POSTGRES_AWAY:
                raise
            telling.err.print(f"{away.what} The log is folded instead.", markup=False)
            look, rows = looking.now(None), []
    return Told(look, rows or looking.history())


def _from_rows(settings: Settings, tenant: str, instance: str, workflow: str) -> Told:
    row = find(settings, tenant, instance, workflow)
    with telling.store_of(settings, "inspect") as store:
        known = {each.version: each.canonical for each in Upkeep(store).definitions(row.workflow)}
    key = row.workflow, row.tenant, row.instance_id
    with telling.queries_of(settings) as queries:
        timers, actions = queries.timers(*key), queries.actions(*key)
    look = look_of_row(row, known.get(row.definition), timers, actions)
    return Told(look, _history(settings, row.workflow, (row.tenant, instance)))


def find(settings: Settings, tenant: str, instance: str, workflow: str) -> InstanceView:
    """The row of an instance, in the tenant and workflow named or in the only ones that have it.

    Args:
        settings: Of this process.
        tenant: Empty: any.
        instance: Its id.
        workflow: Empty: any.

    Raises:
        UsageError: NOT_FOUND, or several have it and none is named.
        ServerError: PostgreSQL is away.
    """
    every = _rows(settings, instance, workflow)
    found = [row for row in every if tenant in ("", row.tenant)]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(f"{row.tenant}/{instance} of {row.workflow}" for row in found)
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"Several instances are called {instance}: {several}.",
            "Name one of them with --tenant and --workflow.",
        )
    others = [row.tenant for row in every]
    key = (tenant or "any tenant", instance)
    raise not_found(workflow or "any workflow", key, "in PostgreSQL", others)


def _rows(settings: Settings, instance: str, workflow: str) -> list[InstanceView]:
    """Every tenant's instance of that id."""
    with telling.queries_of(settings) as queries:
        if workflow:
            queries.check_workflow(workflow)
        names = [workflow] if workflow else queries.workflows()
        return [row for name in names for row in queries.instances(name, instance_id=instance)]


@contextmanager
def _other_tenants(settings: Settings, workflow: str, key: Key) -> Iterator[None]:
    """Where the log has no such instance, name the tenants whose rows have one of that id."""
    try:
        yield
    except UsageError as missing:
        if missing.code != Code.NOT_FOUND:
            raise
        try:
            others = [row.tenant for row in _rows(settings, key[1], workflow)]
        except ServerError:  # the rows only help: without them the first answer stands
            others = []
        if not others:
            raise
        raise not_found(workflow, key, "on the log", others) from None


def standing(workflow: str, tenant: str, instance: str) -> Standing:
    """Where an instance stands in the picture of its definition, by its rows.

    Raises:
        UsageError: NOT_FOUND.
        ServerError: PostgreSQL is away.
    """
    settings = load_settings()
    row = find(settings, tenant, instance, workflow)
    past = _history(settings, workflow, (row.tenant, instance))
    applied = [each for each in past if each.transition and each.verdict == "applied"]
    taken = frozenset(each.transition for each in applied)
    # The first event has no state before it: its transition's id tells.
    states = {each.partition("/")[0] for each in taken} | {each.state_after for each in applied}
    note = row.run_status
    if row.failure_code:
        note = textwrap.shorten(f"parked: {row.failure_code}: {row.failure_text}", NOTE_CHARS)
    return Standing(
        instance=instance,
        state=row.state,
        visited=frozenset(states - {""}),
        taken=taken,
        note=note,
        version=row.definition,
    )


def _history(settings: Settings, workflow: str, key: Key) -> list[Happened]:
    rows: list[Happened] = []
    after = -1
    with ExitStack() as stack:
        queries = stack.enter_context(telling.queries_of(settings))
        while page := queries.history(workflow, *key, after=after, limit=PAGE):
            rows += map(happened_of_view, page)
            after = page[-1].log_offset
    return rows


def _tell(told: Told) -> None:
    look = told.instance
    parked = look.parked
    fields: dict[str, object] = {
        "instance": f"{look.tenant}/{look.instance} of {look.workflow} version {look.definition}",
        "seen in": look.seen_in if look.at is None else f"{look.seen_in}, below offset {look.at}",
        "state": f"{look.state} ({look.run_status}), version {look.version}",
        "context": msgspec.json.encode(look.context, enc_hook=str).decode(),
        "accepts": ", ".join(look.accepts) or "nothing",
    }
    if parked is not None:
        fields["parked"] = f"{parked.code}: {parked.text}"
        if parked.queue:
            fields["queue"] = ", ".join(map(str, parked.queue))
        fields["way out"] = f"refold redrive {look.instance} --tenant {look.tenant} --who … --why …"
    fields["picture"] = (
        f"refold graph MODULE:NAME --instance {look.instance} --tenant {look.tenant} --svg FILE"
    )
    if look.deferred:
        fields["deferred"] = ", ".join(map(str, look.deferred))
    if look.actions:
        fields["actions"] = "\n".join(map(_action, look.actions))
    if look.forks:
        fields["forks"] = "\n".join(
            f"{one.branches}: {one.succeeded} of {one.asked} done, {one.failed} failed,"
            f" {one.open} open"
            for one in look.forks
        )
    if look.works_for:
        fields["works for"] = look.works_for
    if look.renewed:
        fields["run"] = f"{look.renewed + 1}, since offset {look.renewed_offset}"
    if look.timers:
        fields["timers"] = "\n".join(map(_timer, look.timers))
    if look.ended:
        fields["terminated"] = look.ended
    telling.tell(**fields)
    telling.listed(
        ("offset", "time", "event", "verdict", "state"), [_line(each) for each in told.history]
    )


def _action(each: ShownAction) -> str:
    since = _when(each.since_ms)
    return (
        f"{each.action} at {each.target}: {each.status} since {since}, attempt {each.attempt},"
        f" key {each.key}"
    )


def _timer(each: ShownTimer) -> str:
    again = f", attempt {each.attempt} of {each.key}" if each.key else ""
    return f"{each.name}: due {_when(each.due_ms)}{again}"


def _when(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")


def _line(each: Happened) -> tuple[tuple[str, ...], str]:
    moved = each.state_before if each.state_before == each.state_after else (
        f"{each.state_before or '–'} → {each.state_after or '–'}"
    )  # fmt: skip
    when = datetime.fromtimestamp(each.log_time_ms / 1000, UTC).isoformat(" ", "seconds")
    verdict = f"{each.verdict} → {each.resolution}" if each.resolution else each.verdict
    notes = [f"{each.code} {each.text}".strip()]
    if each.commands:
        notes.append("sent " + ", ".join(each.commands))
    cells = (str(each.offset), when.removesuffix("+00:00"), each.type, verdict, moved)
    return cells, "\n".join(filter(None, notes))
