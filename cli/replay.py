"""`refold replay`, `refold rebuild` and `refold verify`: state from the log, compared and mended.

Law of this module: composes clients and store from settings, and tells. Exit codes: 0 as it must
be, 1 it differs or failed, 2 used wrongly.
"""

from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import msgspec
import typer

from refold.cli import telling
from refold.cli.process import many_records
from refold.cli.telling import Json, Name, Number, Specs
from refold.processors.clients import KafkaClients
from refold.processors.definition import Workflow
from refold.processors.inspection import not_found
from refold.processors.rebuild import Change, Rebuild
from refold.processors.replay import Replay, extent
from refold.processors.service import options_of
from refold.processors.summary import hashes_of, summary
from refold.processors.verify import (
    Difference,
    Verified,
    child_report,
    compare,
    located,
    report_of,
)
from refold.schemas.errors import Code, UsageError
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.facts import TopicFacts, topic_facts
from refold.topics.lookup import ANSWER_S
from refold.topics.partition import partition_of
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import events_topic

replay_app = typer.Typer()
rebuild_app = typer.Typer()
verify_app = typer.Typer()

EXIT_DIFFERS: Final = 1
PAGE: Final = 1_000


@replay_app.command("replay")
def replay(
    specs: Specs,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="Number of the partition; an instance's own by its id."
        ),
    ] = None,
    workflow: Name = "",
    instance: Annotated[str, typer.Option(metavar="ID", help="Fold this instance alone.")] = "",
    tenant: telling.Tenant = "",
    to: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", min=0, help="Stop before this offset.")
    ] = None,
    json_: Json = False,
    report: Annotated[Path | None, typer.Option("--report", hidden=True)] = None,
) -> None:
    """Fold a partition, or one instance of it, from its log: nothing is sent or written."""
    settings, folding = load_settings(), telling.chosen(specs, workflow)
    only = (telling.tenant_of(tenant, folding), instance) if instance else None
    clients = KafkaClients(settings)
    many_records()
    admin, topic = clients.admin(), events_topic(settings.namespace, folding.name)
    if partition is None:
        partition = _partition(topic_facts(admin, topic, ANSWER_S), instance)
    where = extent(admin, topic, partition)
    end = where.end if to is None else min(to, where.end)
    if report is not None:
        found = report_of(clients, settings.namespace, folding, partition, end, only)
        report.write_bytes(msgspec.msgpack.encode(found))
        return
    began_s = monotonic()
    with telling.bar(f"folding {where.topic}[{partition}]", quiet=json_) as progress:
        folded = Replay(clients, settings.namespace, folding, where, end=end, only=only).fold(
            progress=lambda position: progress(position, end)
        )
    if only is not None and only not in folded.held:
        raise not_found(folding.name, only, f"on {where.topic}[{partition}] below offset {end}")
    told = summary(folded, hashes_of(folded))
    if json_:
        telling.tell_json(told)
        return
    seconds = monotonic() - began_s
    telling.tell(
        partition=f"{told.topic}[{told.partition}], offsets {told.begin} to {told.end}",
        records=f"{told.records} in {seconds:.1f} s",
        verdicts=told.counts,
        instances=told.instances,
        states=told.states,
        run_status=told.statuses,
        hash=told.hash,
        fold_digest="of one instance alone: none" if only else told.digest,
    )


def _partition(facts: TopicFacts, instance: str) -> int:
    """The partition of an instance's key, or the only one that there is.

    Raises:
        UsageError: BAD_COMMAND_LINE, neither says which.
    """
    if instance:
        return partition_of(instance.encode(), facts.partitions)
    if facts.partitions == 1:
        return 0
    raise UsageError(
        Code.BAD_COMMAND_LINE,
        f"{facts.topic} has partitions 0 to {facts.partitions - 1}, and none is named.",
        "Name one with --partition, or an instance with --instance.",
    )


@rebuild_app.command("rebuild")
def rebuild(
    specs: Specs,
    partition: Number,
    workflow: Name = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; claim and write nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Fence a live worker that holds the partition.")
    ] = False,
    json_: Json = False,
) -> None:
    """Make a partition's snapshots, rows and marker again from its log, in one cut."""
    settings, folding = load_settings(), telling.chosen(specs, workflow)
    many_records()
    options = options_of(settings)
    with (
        telling.store_of(settings, options.name) as store,
        telling.bar(f"folding {folding.name}[{partition}]", quiet=json_) as progress,
    ):
        work = Rebuild(
            options,
            KafkaClients(settings),
            store,
            folding,
            partition,
            progress,
        )
        change = work.difference() if dry_run else work.run(force=force)
    if json_:
        telling.tell_json(change)
        return
    telling.tell(
        partition=f"{work.topic}[{partition}]",
        marker=f"{change.marker} → {change.end}" if change.marker >= 0 else f"none → {change.end}",
        **_changes(change),
        instances=change.instances,
        hash=change.hash,
        written="nothing: a dry run" if dry_run else "snapshots, rows and marker, in one cut",
    )


def _changes(change: Change) -> dict[str, object]:
    return {
        "missing in PostgreSQL": change.missing,
        "surplus in PostgreSQL": change.surplus,
        "different": change.different,
        "first difference": change.first or "none",
    }


@verify_app.command("verify")
def verify(
    specs: Specs,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="One partition; all by default.")
    ] = None,
    workflow: Name = "",
    json_: Json = False,
) -> None:
    """Fold from the beginning in a fresh, different process and compare with live state."""
    settings, folding = load_settings(), telling.chosen(specs, workflow)
    topic = events_topic(settings.namespace, folding.name)
    with telling.store_of(settings, "verify") as store:
        store.check()
        numbers = [partition] if partition is not None else _claimed(settings, folding, topic)
        found = [_verified(settings, store, specs, folding, topic, each) for each in numbers]
    if json_:
        telling.tell_json(found)
    else:
        for each in found:
            _tell_verified(each)
    if not all(each.equal for each in found):
        raise typer.Exit(EXIT_DIFFERS)


def _verified(
    settings: Settings,
    store: PostgresStore,
    specs: list[str],
    workflow: Workflow,
    topic: str,
    partition: int,
) -> Verified:
    upkeep = Upkeep(store)
    live = upkeep.partition_hashes(topic, partition)
    place = ["replay", *specs, "--workflow", workflow.name, "--partition", str(partition)]
    upto = ["--to", str(live.row.marker)]
    found = compare(live, child_report([*place, *upto]))
    first = found.first
    if first is None:
        return found
    only = ["--tenant", first.tenant, "--instance", first.instance]
    trace = child_report([*place, *upto, *only]).trace
    kept = upkeep.snapshot_versions(workflow.name, first.tenant, first.instance)
    rows = _rows(settings, workflow.name, first, live.row.topic_id)
    return msgspec.structs.replace(found, first=located(first, trace, kept, rows))


def _rows(
    settings: Settings, workflow: str, first: Difference, topic_id: str
) -> dict[int, tuple[str, str, str, str, list[str]]]:
    rows: dict[int, tuple[str, str, str, str, list[str]]] = {}
    after = -1
    with telling.queries_of(settings) as queries:
        while page := queries.history(
            workflow, first.tenant, first.instance, after=after, limit=PAGE
        ):
            for row in page:
                if row.topic_id == topic_id:
                    states = (row.state_before, row.state_after)
                    rows[row.log_offset] = (row.verdict, row.transition, *states, row.commands)
            after = page[-1].log_offset
    return rows


def _claimed(settings: Settings, workflow: Workflow, topic: str) -> list[int]:
    with telling.queries_of(settings) as queries:
        found = queries.partitions(workflow.name)
    numbers = [each.partition for each in found if each.topic == topic]
    if not numbers:
        raise UsageError(
            Code.NOT_FOUND,
            f"No worker ever claimed a partition of {topic}.",
            "Start `refold worker` first, or check the namespace in the settings.",
        )
    return numbers


def _tell_verified(found: Verified) -> None:
    first = found.first
    fields: dict[str, object] = {
        "partition": f"{found.topic}[{found.partition}]",
        "folded": f"offsets {found.begin} to the marker {found.marker}, in another process",
        "instances": f"{found.instances}, {found.differing} differ",
        "live hash": found.live_hash,
        "fold hash": found.fold_hash,
        "digests": "equal" if found.live_digest == found.fold_digest else "DIFFERENT",
    }
    if found.counts:
        fields["counts (live, fold)"] = found.counts
    if first is not None:
        fields["first that differs"] = f"{first.tenant}/{first.instance} ({first.found})"
        fields["between offsets"] = f"{first.after} and {first.upto}"
        if first.row is not None:
            fields["first row"] = f"offset {first.row}: {first.text}"
    for each in found.impure[:3]:
        calls = ", ".join(each.calls)
        fields[f"impure at {each.offset}"] = f"{each.type} of {each.instance}: {calls}"
    fields["verdict"] = found.verdict
    telling.tell(**fields)
