"""`refold redrive` and `refold terminate`: a person's acts on one instance, put on the log.

Law of this module: says who and why, sends one event, and shows what the fold made of it.
"""

from typing import Annotated

import typer

from refold.cli import telling
from refold.cli.look import Identity, Workflow, find
from refold.cli.telling import Json, Tenant
from refold.processors.clients import KafkaClients
from refold.processors.engine_events import TERMINATE
from refold.processors.inspection import not_found
from refold.processors.operating import GOOD, Act, Fate, Target, fate, redrive, send, terminate
from refold.schemas.errors import Code, ServerError, UsageError
from refold.snapshots.upkeep import Upkeep
from refold.topics.settings import Settings, load_settings

redrive_app = typer.Typer()
terminate_app = typer.Typer()

Who = Annotated[str, typer.Option("--who", help="Your name: it stands on the log.")]
Wait = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="Wait so long for what becomes of it."),
]


@redrive_app.command("redrive")
def redrive_(
    instance: Identity,
    who: Who,
    why: Annotated[str, typer.Option("--why", help="Why it may go on.")],
    tenant: Tenant = "",
    workflow: Workflow = "",
    version: Annotated[
        int, typer.Option("--version", min=0, help="Definition version to go on with; 0: its own.")
    ] = 0,
    offsets: Annotated[
        str, typer.Option("--offsets", help="First offsets of its queue, with commas; else all.")
    ] = "",
    wait: Wait = 10.0,
    json_: Json = False,
) -> None:
    """Release a parked instance: its queue is folded again, in order."""
    settings = load_settings()
    target = _target(settings, instance, tenant, workflow)
    act = redrive(target, who, why, version=version, offsets=_offsets(offsets))
    _do(settings, act, wait, json_)


@terminate_app.command("terminate")
def terminate_(
    instance: Identity,
    who: Who,
    reason: Annotated[str, typer.Option("--reason", help="Why it ends here.")],
    tenant: Tenant = "",
    workflow: Workflow = "",
    wait: Wait = 10.0,
    json_: Json = False,
) -> None:
    """End an instance, whatever its state; what waited in it is resolved as late.

    What it has done outside stays done: `refold ledger list --instance ID` tells what.
    """
    settings = load_settings()
    _do(
        settings, terminate(_target(settings, instance, tenant, workflow), who, reason), wait, json_
    )


def _target(settings: Settings, instance: str, tenant: str, workflow: str) -> Target:
    version = 0
    try:
        if workflow and not settings.worker.rows:
            tenant = tenant or telling.DEFAULT_TENANT  # snapshots are not searched by id alone
            version = _saved_version(settings, workflow, tenant, instance)
        else:
            row = find(settings, tenant, instance, workflow)
            tenant, workflow, version = row.tenant, row.workflow, row.version
    except ServerError as away:
        # The act is an event on the log: it needs PostgreSQL only to find where it belongs.
        if away.code != Code.POSTGRES_AWAY:
            raise
        if not (workflow and tenant):
            raise ServerError(
                away.code, away.what, "Name --tenant and --workflow: the act needs no more."
            ) from away
    return Target(
        namespace=settings.namespace,
        workflow=workflow,
        tenant=tenant,
        instance=instance,
        version=version,
    )


def _saved_version(settings: Settings, workflow: str, tenant: str, instance: str) -> int:
    """The instance's version by its snapshots, where workers write no rows."""
    with telling.store_of(settings, "act") as store:
        kept = Upkeep(store).snapshot_versions(workflow, tenant, instance)
    if not kept:
        raise not_found(workflow, (tenant, instance), "in PostgreSQL")
    return kept[0].version


def _offsets(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"--offsets {text!r} is not a list of numbers.",
            "Write them with commas between: 17,18,40.",
        ) from None


def _do(settings: Settings, act: Act, wait_s: float, json_: bool) -> None:
    sent = send(KafkaClients(settings).publisher(), act)
    bound = f"waiting for what becomes of it, {wait_s:.0f} s at most"
    with telling.queries_of(settings) as queries, telling.err.status(bound):
        found = fate(queries, act, sent, wait_s)
    if json_:
        telling.tell_json(found)
    else:
        _tell(act, found)
    done = found.happened is not None and found.happened.verdict in GOOD
    if found.parked or not done:
        raise typer.Exit(1)


def _became(act: Act, found: Fate, verdict: str) -> str:
    """What an act did, in the word for it: `applied` says little of a termination."""
    if verdict != "applied":
        return verdict
    if found.parked:
        return f"parked again: {found.parked}"
    return "terminated" if act.type == TERMINATE.name else "released"


def _tell(act: Act, found: Fate) -> None:
    fields: dict[str, object] = {
        "event": f"{found.source} {found.event_id}",
        "stands at": f"{found.topic}[{found.partition}] offset {found.offset}",
    }
    happened = found.happened
    if happened is None:
        fields["became"] = found.text
    else:
        fields["became"] = _became(act, found, happened.verdict)
        fields["state"] = f"{happened.state_before or '–'} → {happened.state_after or '–'}"
        if happened.code:
            fields["reason"] = f"{happened.code}: {happened.text}"
        if happened.commands:
            fields["commands"] = ", ".join(happened.commands)
    telling.tell(**fields)
