"""`refold topics`: make the topics of workflows, and say what is wrong with those that are there.

Law of this module: it creates what is missing and changes nothing that exists.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from refold.cli import telling
from refold.cli.load import load_workflows
from refold.processors.definition import Workflow
from refold.processors.engine_events import ENGINE
from refold.schemas.errors import Code, UsageError
from refold.topics import asyncapi
from refold.topics.clients import admin_config, opened, publisher_config, reader
from refold.topics.failures import kafka_error
from refold.topics.lookup import ANSWER_S
from refold.topics.preflight import Finding, findings
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import (
    BROKER_DEFAULT,
    TopicSpec,
    events_topic,
    rejected_topic,
    workflow_specs,
)
from refold.topics.specs import create as create_topics

app = typer.Typer(no_args_is_help=True, help="Make and check the topics of workflows.")

PARTITIONS: Final = 12
"""Room for twelve workers, and few enough that each is cheap."""

Definitions = Annotated[
    list[str], typer.Argument(metavar="MODULE:NAME…", help="Definitions whose topics are meant.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command()
def create(
    definitions: Definitions,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Partitions of each new topic; fixed for its life. Else as many as the event"
            f" topic has, {PARTITIONS} for a new one.",
            show_default=False,
        ),
    ] = None,
    replication: Annotated[
        int, typer.Option(min=-1, help="Replicas of each partition; -1: as the broker is set.")
    ] = BROKER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Create the topics that are missing and publish the schemas of events and commands."""
    settings = load_settings()
    workflows = load_workflows(definitions)
    # A name or a count that cannot be is told before a server is asked.
    specs_of(settings, workflows.values(), partitions or PARTITIONS, replication)
    admin = opened(AdminClient, admin_config(settings))
    specs = _specs_to_make(settings, workflows.values(), partitions, replication, _counts(admin))
    made = create_topics(admin, specs)
    published = _publish(settings, workflows.values())
    if as_json:
        typer.echo(json.dumps({"topics": msgspec.to_builtins(made), "schemas": published}))
        return
    for each in made:
        telling.err.print(f"{'created' if each.created else 'exists '} {each.name}")
    for name in published:
        telling.err.print(f"published the schema of {name}")
    _report(_check(settings, admin, specs, counts=False))


@app.command()
def check(definitions: Definitions, as_json: Json = False) -> None:
    """Say what of the topics is not as refold needs it."""
    settings = load_settings()
    specs = specs_of(settings, load_workflows(definitions).values(), 1)
    found = _check(settings, opened(AdminClient, admin_config(settings)), specs, counts=False)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(found)))
    else:
        _report(found)
        if not found:
            telling.err.print(f"{len(specs)} topics are as they must be")
    if found:
        raise typer.Exit(1)


@app.command()
def describe(definitions: Definitions) -> None:
    """Print an AsyncAPI 3 document: topics, headers and schemas, for services without refold."""
    settings = load_settings()
    documents = [
        asyncapi.Described(
            workflow.name,
            [codec for each in workflow.versions.values() for codec in each.events.values()],
            [
                asyncapi.DescribedCommand(command.target, command.codec)
                for each in workflow.versions.values()
                for command in each.commands.values()
            ],
        )
        for workflow in load_workflows(definitions).values()
    ]
    typer.echo(json.dumps(asyncapi.document(settings.namespace, documents), indent=2))


def specs_of(
    settings: Settings,
    workflows: Iterable[Workflow],
    partitions: int,
    replication: int = BROKER_DEFAULT,
) -> list[TopicSpec]:
    """Topics of several workflows, each once."""
    specs: dict[str, TopicSpec] = {}
    for workflow in workflows:
        targets = {
            command.target
            for definition in workflow.versions.values()
            for command in definition.commands.values()
        }
        for spec in workflow_specs(
            settings.namespace, workflow.name, targets, partitions, replication
        ):
            specs.setdefault(spec.name, spec)
    return list(specs.values())


def _counts(admin: AdminClient) -> dict[str, int]:
    """Topic → its partitions; asking for one by name could make a broker create it."""
    try:
        found = admin.list_topics(timeout=ANSWER_S).topics
    except KafkaException as failure:
        raise kafka_error(failure, "listing topics") from failure
    return {name: len(each.partitions) for name, each in found.items()}


def _specs_to_make(
    settings: Settings,
    workflows: Iterable[Workflow],
    partitions: int | None,
    replication: int,
    counts: Mapping[str, int],
) -> list[TopicSpec]:
    """What `create` makes, each once.

    Raises:
        UsageError: TOPIC_WRONG, an event topic or its decision log has another partition count.
    """
    specs: dict[str, TopicSpec] = {}
    for workflow in workflows:
        events = events_topic(settings.namespace, workflow.name)
        wanted = partitions or counts.get(events, PARTITIONS)
        for name in (events, rejected_topic(settings.namespace, workflow.name)):
            if counts.get(name, wanted) != wanted:
                raise _counted_otherwise(name, counts[name], wanted)
        for spec in specs_of(settings, [workflow], wanted, replication):
            specs.setdefault(spec.name, spec)
    return list(specs.values())


def _counted_otherwise(topic: str, found: int, wanted: int) -> UsageError:
    return UsageError(
        Code.TOPIC_WRONG,
        f"{topic} has {found} partitions, {wanted} are wanted; nothing was made.",
        f"A count cannot change in flight, because it says where each key belongs: give"
        f" --partitions {found}, or use another namespace.",
        topic=topic,
    )


def _publish(settings: Settings, workflows: Iterable[Workflow]) -> list[str]:
    producer = opened(Producer, publisher_config(settings))
    schemas = SchemaTopic(settings.namespace, reader(settings))
    try:
        new = schemas.publish(producer, tuple(ENGINE.values()), "")
        for workflow in workflows:
            for definition in workflow.versions.values():
                commands = (command.codec for command in definition.commands.values())
                codecs = {codec.text: codec for codec in (*definition.events.values(), *commands)}
                new += schemas.publish(producer, codecs.values(), workflow.name)
        return [known.type for known in new]
    finally:
        schemas.close()


def _check(
    settings: Settings, admin: AdminClient, specs: Sequence[TopicSpec], *, counts: bool
) -> list[Finding]:
    return findings(
        admin,
        specs,
        accept_finite_retention=settings.worker.accept_finite_retention,
        counts=counts,
    )


def _report(found: Iterable[Finding]) -> None:
    for finding in found:
        telling.err.print(f"{finding.code}: {finding.what}", soft_wrap=True)
        telling.err.print(f"  what to do: {finding.cure}", soft_wrap=True)
