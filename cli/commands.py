"""`refold commands`: watch what goes to executors.

Law of this module: reads without a group and commits nothing: watching changes nothing.
"""

import io
import json
from typing import Annotated, Any

import fastavro
import typer
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from refold.cli import telling
from refold.schemas.derive import parse_text
from refold.schemas.envelope import CommandRecord
from refold.schemas.errors import RecordError, unknown
from refold.topics.clients import reader
from refold.topics.failures import kafka_error
from refold.topics.lookup import bounds_of, names_of, partitions_of
from refold.topics.records import read_command
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import load_settings
from refold.topics.specs import commands_topic

app = typer.Typer(no_args_is_help=True, help="Watch the commands of a target.")


@app.callback()
def commands() -> None:
    """Watch the commands of a target."""


@app.command()
def tail(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Target of the commands.")],
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin with the first command that is there.")
    ] = False,
    follow: Annotated[
        bool, typer.Option(help="Wait for more at the end; --no-follow stops there.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Print committed commands with their keys, until Ctrl-C."""
    settings = load_settings()
    topic = commands_topic(settings.namespace, target)
    source, schemas = reader(settings), SchemaTopic(settings.namespace, reader(settings))
    try:
        known = names_of(source, settings.namespace, "commands")
        if target not in known:
            raise unknown("target", target, f"in namespace {settings.namespace}", known)
        ends = _assign(source, topic, from_start)
        while ends or follow:
            message = source.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                _print(message, schemas, as_json)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends.discard(message.partition() or 0)
            elif not error.retriable():
                raise kafka_error(error, f"reading {topic}")
    except KeyboardInterrupt:
        telling.err.print("stopped")
    finally:
        source.close()
        schemas.close()


def _assign(source: Consumer, topic: str, from_start: bool) -> set[int]:
    partitions = partitions_of(source, topic)
    places = [
        TopicPartition(topic, each, bounds_of(source, topic, each)[0 if from_start else 1])
        for each in partitions
    ]
    source.assign(places)
    return set(partitions)


def _print(message: Message, schemas: SchemaTopic, as_json: bool) -> None:
    place = f"{message.partition()}:{message.offset()}"
    try:
        record = read_command(message)
        told = {"where": place, **_described(record), "data": _decoded(record.value, schemas)}
    except RecordError as error:
        told = {"where": place, "error": error.code, "what": error.what}
    if as_json:
        typer.echo(json.dumps(told, default=str))
    else:
        typer.echo("  ".join(f"{name}={value}" for name, value in told.items()))


def _described(record: CommandRecord) -> dict[str, Any]:
    return {
        "time": record.time,
        "type": record.type,
        "tenant": record.tenant,
        "instance": record.instance,
        "state": record.state,
        "attempt": record.attempt,
        "key": record.key,
    }


def _decoded(value: bytes, schemas: SchemaTopic) -> Any:
    """The value by the schema that wrote it; its hex where that is not known."""
    known, head = schemas.written_with(value)
    if known is None:
        return value.hex()
    body = io.BytesIO(value[head:])
    try:
        return fastavro.schemaless_reader(body, parse_text(known.text), None)
    except (EOFError, IndexError, ValueError, OverflowError, TypeError):
        return value.hex()  # damaged, in one of the ways in which fastavro says so
