"""`refold rejected`: what was refused, could not be read, or waits for a person; and redrive it.

Law of this module: it shows the decision log and sends records again as they were; what may be
redriven is decided in `refold.topics.redrive`.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Final, cast

import msgspec
import typer
from confluent_kafka import Producer

from refold.cli import telling
from refold.processors.operating import GOOD, Target, send, verdicts
from refold.processors.operating import redrive as release
from refold.schemas.envelope import derived_id
from refold.schemas.errors import Code, ServerError, UsageError, unknown
from refold.schemas.verdicts import Verdict
from refold.snapshots.queries import PAGE_MOST, EventView, Since
from refold.topics.clients import (
    opened,
    publisher_config,
    reader,
    transactional_producer_config,
)
from refold.topics.publisher import Delivered
from refold.topics.redrive import SENT_AGAIN, Entry, RejectedLog, redrive
from refold.topics.rejected import Coordinates
from refold.topics.settings import Settings, load_settings
from refold.topics.times import rfc3339

app = typer.Typer(no_args_is_help=True, help="See what was refused, and redrive it.")

SHOWN_BYTES: Final = 200
"""Of a value that is no text for a person."""


class Kept(StrEnum):
    """The verdicts whose records the decision log keeps (`refold.schemas.verdicts.DECIDED`)."""

    REFUSED = Verdict.REFUSED.value
    CONFLICT = Verdict.CONFLICT.value
    POISON = Verdict.POISON.value
    PARKED = Verdict.PARKED.value


WorkflowName = Annotated[str, typer.Argument(metavar="WORKFLOW", help="Name of the workflow.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
OnlyVerdict = Annotated[Kept | None, typer.Option("--verdict", help="Only this verdict.")]
OnlyCode = Annotated[Code | None, typer.Option("--code", help="Only this error code.")]
OnlyInstance = Annotated[str | None, typer.Option("--instance", help="Only this record key.")]


@app.command("list")
def list_(
    workflow: WorkflowName,
    verdict: OnlyVerdict = None,
    code: OnlyCode = None,
    instance: OnlyInstance = None,
    as_json: Json = False,
) -> None:
    """List what is on the decision log, one row a record, with its last attempt.

    NOW is what became of it since, by the rows in PostgreSQL: `waiting` in a parked instance, the
    resolution of one that was released, `came again` with the verdict of the last record under
    the same identity (redriven, or sent anew), `kept` where nothing came.
    """
    settings = load_settings()
    entries = _chosen(_log(settings, workflow), verdict, code, instance)
    rows = [_summary(entry, now) for entry, now in _with_now(settings, workflow, entries)]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    if not rows:
        chosen = verdict or code or instance
        what = "fits" if chosen else "stands on it: nothing was refused, unreadable or parked"
        telling.err.print(f"The decision log of {workflow} was read; no record {what}.")
        return
    telling.listed(("WHERE", "TIME", "VERDICT", "CODE", "NOW"), [_line(row) for row in rows])
    telling.err.print(f"{len(rows)} records; `refold rejected show {workflow} WHERE` shows one")


@app.command()
def show(
    workflow: WorkflowName,
    where: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="As in the list.")],
    as_json: Json = False,
) -> None:
    """Show one record: why, where it was read, and its own bytes."""
    place = _parsed(where)
    settings = load_settings()
    log = _log(settings, workflow)
    entry = log.entry(*place)
    whole = log.whole(entry)
    ((_, now),) = _with_now(settings, workflow, [entry])
    told = {
        **_summary(entry, now),
        "headers": [[name, _shown(held)] for name, held in whole.headers],
        "value_bytes": None if whole.value is None else len(whole.value),
        "value_hex": None if whole.value is None else whole.value.hex(),
    }
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for name, value in told.items():
        if name == "headers":
            for header in cast(list[list[str | None]], value):
                typer.echo(f"header {header[0]}: {header[1]}")
        elif name == "value_hex":
            typer.echo(f"value: {_shown(whole.value, SHOWN_BYTES)}")
        else:
            typer.echo(f"{name}: {value}")


@app.command("redrive")
def redrive_(
    workflow: WorkflowName,
    where: Annotated[
        list[str] | None, typer.Argument(metavar="PARTITION:OFFSET…", help="As in the list.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every refused or poison record that the options choose.")
    ] = False,
    verdict: OnlyVerdict = None,
    code: OnlyCode = None,
    instance: OnlyInstance = None,
    version: Annotated[
        int, typer.Option(min=0, help="Version that parked instances go on with; 0: their own.")
    ] = 0,
    why: Annotated[str, typer.Option(help="Needed for parked records: it goes on the log.")] = "",
    wait: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Wait so long for what becomes of them."),
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Send refused or undecodable records again, byte by byte, each once; release parked ones.

    With --wait: prints the verdict of each, and ends with exit code 1 unless all were applied.
    """
    if bool(where) == every:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            "Nothing was chosen, or two ways at once.",
            "Name records as PARTITION:OFFSET, or give --all with --verdict, --code, --instance.",
        )
    places = [_parsed(each) for each in where or ()]
    settings = load_settings()
    log = _log(settings, workflow)
    entries = (
        _chosen(log, verdict, code, instance) if every else [log.entry(*place) for place in places]
    )
    parked = [entry for entry in entries if entry.decision.verdict == Verdict.PARKED]
    if parked and not why:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{len(parked)} of the records are parked: releasing them needs a reason.",
            "Give --why TEXT, and --version N where a new version mends it.",
        )
    again = [
        entry
        for entry in entries
        if entry not in parked and (not every or entry.decision.verdict in SENT_AGAIN)
    ]
    acts = _done(settings, log, again, parked, (version, why))
    found = _waited(settings, workflow, acts, wait) if wait else {}
    good = [_tell(act, found, waited=bool(wait), as_json=as_json) for act in acts]
    if not all(good):
        raise typer.Exit(1)


class Act(msgspec.Struct, frozen=True):
    """What was done about one record."""

    where: Coordinates
    done: str
    """Empty: it had been done before."""
    at: Coordinates | None
    """Where the event that did it stands, if it was sent now."""


def _done(
    settings: Settings,
    log: RejectedLog,
    again: Sequence[Entry],
    parked: Sequence[Entry],
    released: tuple[int, str],
) -> list[Act]:
    """Send the first ones again, release the others with a version and a reason."""
    producer = partial(_transactional, settings)
    acts = [
        Act(each.where, f"redriven, attempt {each.attempt}" if each.sent else "", each.at)
        for each in redrive(log, again, producer, partial(reader, settings))
    ]
    for entry in parked:
        sent = _release(settings, log.workflow, entry, *released)
        at = Coordinates(sent.topic, sent.partition, sent.offset)
        acts.append(Act(entry.where, "released", at))
    return acts


def _release(settings: Settings, workflow: str, entry: Entry, version: int, why: str) -> Delivered:
    """Send the event that releases a parked instance; its id is the record's, so it counts once."""
    kept = entry.original
    tenant = dict(kept.headers).get("ce_tenant")
    if not (tenant and kept.key):
        raise UsageError(
            Code.REDRIVE_REFUSED,
            f"the record {kept.source} does not name its tenant.",
            "Release it with `refold redrive INSTANCE --tenant TENANT`.",
        )
    target = Target(
        namespace=settings.namespace,
        workflow=workflow,
        tenant=tenant.decode(),
        instance=kept.key.decode(),
        version=0,
    )
    act = release(target, telling.login_name(), why, version=version)
    event_id = derived_id("redrive", str(entry.where), str(version))
    producer = opened(Producer, publisher_config(settings))
    return send(producer, msgspec.structs.replace(act, id=event_id))


def _waited(
    settings: Settings, workflow: str, acts: Sequence[Act], wait_s: float
) -> dict[tuple[int, int], EventView]:
    places = [(act.at.partition, act.at.offset) for act in acts if act.at is not None]
    title = f"waiting for verdicts, {wait_s:.0f} s at most"
    try:
        with telling.queries_of(settings) as queries, telling.bar(title) as progress:
            return verdicts(queries, workflow, places, wait_s, progress)
    except ServerError as away:  # what was sent stands on the log
        telling.err.print(telling.plain(f"What became of them is not known: {away.what}"))
        return {}


def _tell(
    act: Act, found: Mapping[tuple[int, int], EventView], *, waited: bool, as_json: bool
) -> bool:
    """Say what was done about a record and what became of it; False where that is not good."""
    row = found.get((act.at.partition, act.at.offset)) if act.at is not None else None
    verdict = row.verdict if row else None
    place = f"{act.where.partition}:{act.where.offset}"
    if as_json:
        told: dict[str, Any] = {"where": place, "sent": bool(act.done)}
        if waited:
            told |= {"verdict": verdict, "code": row.code if row else None}
        typer.echo(json.dumps(told))
    else:
        said = act.done or "was already redriven"
        if waited and act.at is not None:
            why = f" {row.code}: {row.text}" if row and row.code else ""
            said += f": {verdict or 'not folded in that time'}{why}"
        telling.err.print(f"{place} {said}", soft_wrap=True)
    return not waited or act.at is None or verdict in GOOD


def _log(settings: Settings, workflow: str) -> RejectedLog:
    known = telling.decision_logs(settings)
    if workflow not in known:
        raise unknown("workflow", workflow, f"in namespace {settings.namespace}", known)
    return RejectedLog(settings.namespace, workflow, partial(reader, settings))


def _transactional(settings: Settings, transactional_id: str) -> Producer:
    return opened(Producer, transactional_producer_config(settings, transactional_id))


def _chosen(
    log: RejectedLog, verdict: Kept | None, code: Code | None, instance: str | None
) -> list[Entry]:
    """The last attempt of each record that fits."""
    latest: dict[tuple[str, int, int], Entry] = {}
    for partition in log.partitions():
        for entry in log.entries(partition):
            origin = entry.original.origin
            latest[origin.topic, origin.partition, origin.offset] = entry
    return [entry for entry in latest.values() if _fits(entry, verdict, code, instance)]


def _fits(entry: Entry, verdict: Kept | None, code: Code | None, instance: str | None) -> bool:
    decision = entry.decision
    return (
        (verdict is None or decision.verdict.value == verdict.value)
        and (code is None or decision.reason.code == code)
        and (instance is None or entry.original.key == instance.encode())
    )


def _parsed(where: str) -> tuple[int, int]:
    partition, _, offset = where.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{where!r} is no PARTITION:OFFSET.",
            "Take it from the first column of `refold rejected list`.",
        )
    return int(partition), int(offset)


def _summary(entry: Entry, now: str | None) -> dict[str, Any]:
    decision, kept = entry.decision, entry.original
    headers = dict(kept.headers)
    return {
        "where": f"{entry.where.partition}:{entry.where.offset}",
        "time": rfc3339(entry.log_time_ms),
        "key": _shown(kept.key),
        "type": _shown(headers.get("ce_type")),
        "id": _shown(headers.get("ce_id")),
        "source": _shown(headers.get("ce_source")),
        "verdict": decision.verdict,
        "code": decision.reason.code,
        "why": decision.reason.text,
        "now": now,
        "read_at": str(kept.source),
        "first_at": str(kept.origin),
        "attempt": kept.attempt,
        "stub": kept.stub is not None,
    }


def _line(row: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """A summary as a line of the list, with the note below it."""
    time = row["time"].removesuffix("Z").replace("T", " ")
    about = [f"key {row['key']}", f"type {row['type']}", f"attempt {row['attempt']}"]
    note = ", ".join(each for each in about if not each.endswith(" None"))
    now = "?" if row["now"] is None else row["now"]
    return (row["where"], time, row["verdict"], row["code"], now), f"{note}\n{row['why']}"


def _with_now(
    settings: Settings, workflow: str, entries: Sequence[Entry]
) -> list[tuple[Entry, str | None]]:
    """Each decision with what became of its record since; None where that cannot be known."""
    found: list[tuple[Entry, str | None]] = []
    try:
        with telling.queries_of(settings) as queries:
            for start in range(0, len(entries), PAGE_MOST):
                page = entries[start : start + PAGE_MOST]
                since = queries.since(workflow, [_asked(entry) for entry in page])
                found += [
                    (entry, _now(entry, then)) for entry, then in zip(page, since, strict=True)
                ]
    except ServerError as away:  # the list itself is Kafka's
        telling.err.print(telling.plain(f"What became of them is not known: {away.what}"))
        return [(entry, None) for entry in entries]
    return found


def _asked(entry: Entry) -> tuple[int, int, str, str]:
    headers, source = dict(entry.original.headers), entry.original.source
    told = (headers.get("ce_source"), headers.get("ce_id"))
    identity = ((held or b"").decode(errors="replace").replace("\0", "") for held in told)
    ce_source, ce_id = identity
    return source.partition, source.offset, ce_source, ce_id


def _now(entry: Entry, since: Since) -> str:
    if since.resolution is not None:
        return f"resolved: {since.resolution}"
    if since.again is not None:
        more = f", then {since.again_resolution}" if since.again_resolution else ""
        return f"came again: {since.again}{more}"
    return "waiting" if entry.decision.verdict == Verdict.PARKED else "kept"


def _shown(raw: bytes | None, limit: int | None = None) -> str | None:
    """Bytes as text where they are text, else as Python writes them; null is None."""
    if raw is None:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        text = repr(raw[:limit])[2:-1]
    return text[:limit]
