"""`refold topics`: make the topics of workflows, and say what is wrong with those that are there.

Law of this module: it creates what is missing and changes nothing that exists.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from rich.console import Console

from refold.cli.load import load_workflows
from refold.processors.definition import Workflow
from refold.processors.engine_events import REDRIVE, TERMINATE
from refold.topics import asyncapi
from refold.topics.clients import admin_config, opened, publisher_config, reader
from refold.topics.preflight import Finding, findings
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import BROKER_DEFAULT, TopicSpec, workflow_specs
from refold.topics.specs import create as create_topics

app = typer.Typer(no_args_is_help=True, help="Make and check the topics of workflows.")

PARTITIONS: Final = 12
"""Room for twelve workers, and few enough that each is cheap."""
_console = Console(stderr=True)

Definitions = Annotated[
    list[str], typer.Argument(metavar="MODULE:NAME…", help="Definitions whose topics are meant.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@app.command()
def create(
    definitions: Definitions,
    partitions: Annotated[
        int, typer.Option(min=1, help="Partitions of each new topic; fixed for its life.")
    ] = PARTITIONS,
    replication: Annotated[
        int, typer.Option(min=-1, help="Replicas of each partition; -1: as the broker is set.")
    ] = BROKER_DEFAULT,
    as_json: Json = False,
) -> None:
    """Create the topics that are missing and publish the schemas of events and commands."""
    settings = load_settings()
    workflows = load_workflows(definitions)
    specs = specs_of(settings, workflows.values(), partitions, replication)
    admin = opened(AdminClient, admin_config(settings))
    made = create_topics(admin, specs)
    published = _publish(settings, workflows.values())
    if as_json:
        typer.echo(json.dumps({"topics": msgspec.to_builtins(made), "schemas": published}))
        return
    for each in made:
        _console.print(f"{'created' if each.created else 'exists '} {each.name}", markup=False)
    for name in published:
        _console.print(f"published the schema of {name}", markup=False)
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
            _console.print(f"{len(specs)} topics are as they must be")
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


def _publish(settings: Settings, workflows: Iterable[Workflow]) -> list[str]:
    producer = opened(Producer, publisher_config(settings))
    schemas = SchemaTopic(settings.namespace, reader(settings))
    try:
        new = schemas.publish(producer, (REDRIVE, TERMINATE), "")
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
        _console.print(f"{finding.code}: {finding.what}", markup=False, soft_wrap=True)
        _console.print(f"  what to do: {finding.cure}", markup=False, soft_wrap=True)
