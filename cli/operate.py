"""`refold status` and `refold partitions`: who owns what, what is fenced, what a person chooses.

Law of this module: tells what could be reached and says what could not; a choice is written
down with who and why, and the worker that meets it does the rest.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import typer

from refold.cli import telling
from refold.cli.telling import Json
from refold.processors.clients import KafkaClients
from refold.processors.overview import Overview, PartitionState, choose, overview
from refold.schemas.errors import Code, ServerError, UsageError, unknown
from refold.topics.settings import Settings, load_settings

status_app = typer.Typer()
partitions_app = typer.Typer(
    no_args_is_help=True, help="See partitions and their fences; choose how a fenced one goes on."
)

EXIT_TROUBLE: Final = 1

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Event topic.")]
Number = Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its number.")]


@status_app.command("status")
def status(json_: Json = False) -> None:
    """Show workers, lag, fences, alarms and parked instances.

    Exit code 1 when a server is away, or a partition is fenced or nobody's.
    """
    found = _overview(load_settings())
    if json_:
        telling.tell_json(found)
    else:
        _tell(found)
    if not found.good:
        raise typer.Exit(EXIT_TROUBLE)


@partitions_app.command("list")
def list_(
    topic: Annotated[str, typer.Option("--topic", help="Only this event topic.")] = "",
    json_: Json = False,
) -> None:
    """List every partition with its worker, marker, lag, parked instances and fence."""
    settings = load_settings()
    found = _overview(settings, topic)
    if topic and not (found.partitions or found.kafka or found.postgres):
        known = {each.topic for each in _overview(settings).partitions}
        raise unknown("event topic", topic, f"in namespace {settings.namespace}", known)
    if json_:
        telling.tell_json(found.partitions)
        return
    _unreached(found)
    _list(found)


@partitions_app.command("show")
def show(topic: Topic, partition: Number, json_: Json = False) -> None:
    """Show one partition, its fence and what may be chosen."""
    state = _state(_overview(load_settings(), topic), topic, partition)
    if json_:
        telling.tell_json(state)
        return
    fields: dict[str, object] = {
        "partition": f"{topic}[{partition}] of {state.workflow}",
        "worker": _worker(state),
        "epoch": _known(state.epoch),
        "log": f"{_known(state.low)} to {_known(state.end)}",
        "committed": _committed(state),
        "marker": f"{_known(state.marker)}, rows to {_known(state.rows_to)}",
        "lag": _lag([state]),
        "verdicts": state.counts,
        "parked": _known(state.parked),
        "fence": f"{state.fence} {state.fence_text}".strip() or "none",
    }
    if state.fence:
        fields["cure"] = state.cure
        for name, meaning in state.choices.items():
            fields[f"--choose {name}"] = meaning
    if state.alarm:
        fields["alarm"] = state.alarm
    if state.chosen:
        fields["chosen"] = state.chosen
    telling.tell(**fields)


@partitions_app.command("resolve")
def resolve(
    topic: Topic,
    partition: Number,
    choice: Annotated[str, typer.Option("--choose", help="As `show` lists them.")],
    who: Annotated[str, typer.Option("--who", help="Your name: it is written down.")],
    why: Annotated[str, typer.Option("--why", help="Why this is right.")],
    json_: Json = False,
) -> None:
    """Choose how a fenced partition goes on; its worker does it within seconds."""
    settings = load_settings()
    found = _overview(settings, topic)
    if found.postgres:
        raise ServerError(Code.POSTGRES_AWAY, found.postgres, "Try again when it answers.")
    state = _state(found, topic, partition)
    with telling.queries_of(settings) as queries:
        row = next(
            (
                each
                for each in queries.partitions()
                if (each.topic, each.partition) == (topic, partition)
            ),
            None,
        )
    made = choose(state, choice, who, why, "" if row is None else row.consumer_group)
    with telling.store_of(settings, "resolve") as store:
        store.choose(topic, partition, msgspec.json.encode(made).decode())
    if json_:
        telling.tell_json(made)
    else:
        telling.tell(
            partition=f"{topic}[{partition}]",
            fence=made.code,
            chosen=f"{made.choice}: {state.choices[choice]}",
            next="its worker looks again within seconds: refold partitions show",
        )


def _overview(settings: Settings, topic: str = "") -> Overview:
    with telling.queries_of(settings) as queries:
        clients = KafkaClients(settings)
        found = overview(
            clients.admin(), clients.reader, queries, settings.namespace, settings.group, topic
        )
    if not found.kafka:
        return found
    return msgspec.structs.replace(
        found, kafka=f"{found.kafka} Tried: kafka.bootstrap = {settings.kafka.bootstrap}."
    )


def _state(found: Overview, topic: str, partition: int) -> PartitionState:
    for each in found.partitions:
        if (each.topic, each.partition) == (topic, partition):
            return each
    if found.kafka and found.postgres:
        raise ServerError(Code.KAFKA_AWAY, found.kafka, "Neither server answers: check both.")
    listed = ", ".join(f"{each.topic} {each.partition}" for each in found.partitions[:20])
    raise UsageError(
        Code.NOT_FOUND,
        f"There is no partition {partition} of {topic!r}.",
        f"Known: {listed or 'none, in namespace ' + found.namespace}.",
    )


def _tell(found: Overview) -> None:
    _unreached(found)
    fields: dict[str, object] = {"namespace": found.namespace, "group": found.group}
    if not found.kafka:
        fields["workers"] = "\n".join(
            f"{each.worker} at {each.host} holds {len(each.partitions)}" for each in found.members
        )
        if not found.members:
            fields["workers"] = "no worker runs: start `refold worker MODULE:NAME`"
        fields["lag"] = _lag(found.partitions)
    waiting = sum(each.parked or 0 for each in found.partitions)
    if not found.postgres:
        fields["parked"] = f"{waiting}: see refold parked list" if waiting else "none"
    telling.tell(**fields)
    _list(found)
    for each in found.partitions:
        if each.fence:
            telling.tell(
                fenced=f"{each.topic}[{each.partition}]: {each.fence} {each.fence_text}",
                cure=each.cure,
            )
        if each.alarm:
            telling.tell(
                alarm=f"{each.topic}[{each.partition}]: {each.alarm}",
                cure=f"see refold explain {each.alarm.partition(' ')[0]}",
            )


def _unreached(found: Overview) -> None:
    for text in (found.kafka, found.postgres):
        if text:
            telling.err.print(telling.plain(text))


def _list(found: Overview) -> None:
    for topic in sorted({each.topic for each in found.partitions}):
        telling.out.print(telling.plain(topic), style="bold", soft_wrap=True)
        states = [each for each in found.partitions if each.topic == topic]
        names = ("partition", "worker", "marker", "end", "lag", "parked", "fence")
        telling.listed(names, [_row(each, found) for each in states])


def _row(state: PartitionState, found: Overview) -> tuple[Sequence[str], str]:
    fence = "?" if state.epoch is None and found.postgres else state.fence or "–"
    cells = (
        str(state.partition),
        _known(state.worker, "nobody"),
        _known(state.marker),
        _known(state.end),
        _known(state.lag),
        _known(state.parked),
        fence,
    )
    return cells, f"alarm: {state.alarm}" if state.alarm else ""


def _committed(state: PartitionState) -> str:
    nothing = state.end is not None and state.committed is None
    return "nothing" if nothing else _known(state.committed)


def _lag(states: Sequence[PartitionState]) -> str:
    """Records that are not folded yet; or that there are none."""
    known = [each.lag for each in states if each.lag is not None]
    if not known:
        return "?"
    return f"{sum(known):,} records" if any(known) else "none: caught up"


def _worker(state: PartitionState) -> str:
    return f"{state.worker} at {state.host}" if state.worker else _known(state.worker, "nobody")


def _known(value: object, empty: str = "?") -> str:
    """A value as it is shown: `?` where the server that knows it did not answer."""
    if value is None:
        return "?"
    return empty if value == "" else str(value)
