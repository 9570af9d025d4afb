"""The wire as a document: AsyncAPI 3 for services that use Kafka and Avro alone.

Law of this module: generated from codecs and topic names, nothing is written by hand twice; the
header tables are those that `refold.topics.records` reads and writes. `docs/wire.md` explains it.

Source: AsyncAPI 3.0.0; its Kafka bindings 0.5.0; CloudEvents 1.0.2.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from refold.schemas.codec import Codec
from refold.schemas.envelope import Outcome
from refold.schemas.limits import ID_BYTES, KEY_BYTES, NAME_BYTES, SOURCE_BYTES
from refold.topics.records import CONTENT_TYPE
from refold.topics.specs import commands_topic, events_topic

Json = dict[str, Any]
AVRO_FORMAT: Final = "application/vnd.apache.avro;version=1.9.0"
"""AsyncAPI's name of the format; the schemas need nothing newer."""


class DescribedCommand(msgspec.Struct, frozen=True):
    """A command type and where it goes."""

    target: str
    codec: Codec[Any]


class Described(msgspec.Struct, frozen=True):
    """What the document says of one workflow."""

    workflow: str
    events: Sequence[Codec[Any]]
    commands: Sequence[DescribedCommand]


def _text(limit: int, why: str) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": limit, "description": why}


EVENT_HEADER_SCHEMAS: Final[Mapping[str, Json]] = {
    "ce_specversion": {"type": "string", "const": "1.0"},
    "ce_id": _text(ID_BYTES, "Unique for its source, the same when the fact is sent again."),
    "ce_source": _text(SOURCE_BYTES, "Who says so: a URI reference."),
    "ce_type": _text(NAME_BYTES, "Avro full name of the value."),
    "ce_time": {"type": "string", "format": "date-time", "description": "When it happened."},
    "ce_tenant": _text(NAME_BYTES, "Part of the instance's identity."),
    "content-type": {"type": "string", "const": CONTENT_TYPE.decode()},
    "ce_subject": _text(ID_BYTES, "Equal to the record key where it is given."),
    "ce_expectedstate": _text(NAME_BYTES, "Refused as stale in any other state."),
    "ce_expectedversion": {"type": "string", "pattern": "^[0-9]{1,18}$"},
    "traceparent": {"type": "string", "description": "W3C Trace Context."},
    "idempotency-key": _text(KEY_BYTES, "Key of the command that it answers."),
    "ce_attempt": {"type": "string", "pattern": "^[1-9][0-9]*$"},
    "ce_outcome": {"type": "string", "enum": [str(one) for one in Outcome]},
    "ce_parentinstance": _text(ID_BYTES, "Instance of the workflow that starts this one."),
    "ce_parentkey": _text(KEY_BYTES, "Key of that workflow's action."),
}
EVENT_REQUIRED: Final = ("ce_specversion", "ce_id", "ce_source", "ce_type")

COMMAND_HEADER_SCHEMAS: Final[Mapping[str, Json]] = {
    "ce_specversion": {"type": "string", "const": "1.0"},
    "ce_id": _text(KEY_BYTES + 20, "Idempotency key, a slash, attempt."),
    "ce_source": _text(SOURCE_BYTES, "/<namespace>/<workflow>"),
    "ce_type": _text(NAME_BYTES, "Avro full name of the value."),
    "ce_tenant": _text(NAME_BYTES, "Tenant of the instance."),
    "content-type": {"type": "string", "const": CONTENT_TYPE.decode()},
    "ce_time": {"type": "string", "format": "date-time", "description": "Fold time."},
    "ce_state": _text(NAME_BYTES, "State whose entry sent it."),
    "ce_attempt": {"type": "string", "pattern": "^[1-9][0-9]*$"},
    "ce_replyto": {"type": "string", "description": "Topic that waits for the result."},
    "idempotency-key": _text(KEY_BYTES, "At most one effect for each, for ever."),
    "traceparent": {"type": "string", "description": "As the causing event carried it."},
}


def document(namespace: str, workflows: Iterable[Described]) -> Json:
    """The AsyncAPI document of some workflows.

    Args:
        namespace: First part of the topic names.
        workflows: What to describe; types that stand in several versions are listed once.
    """
    channels: Json = {}
    operations: Json = {}
    messages: Json = {}
    for each in workflows:
        events = _messages(messages, each.events, _event)
        _channel(channels, events_topic(namespace, each.workflow), events, "events to fold")
        operations[f"{each.workflow}.fold"] = _operation(
            "receive", events_topic(namespace, each.workflow)
        )
        for target in sorted({command.target for command in each.commands}):
            codecs = [command.codec for command in each.commands if command.target == target]
            topic = commands_topic(namespace, target)
            _channel(channels, topic, _messages(messages, codecs, _command), "commands to do")
            operations[f"{each.workflow}.command.{target}"] = _operation("send", topic)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"{namespace}: workflows on Kafka",
            "version": "1.0.0",
            "description": (
                "Record key: the instance id, UTF-8. Partitioner: murmur2. Values: Avro in"
                " single-object encoding. Readers of commands read committed records only."
            ),
        },
        "defaultContentType": CONTENT_TYPE.decode(),
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": {
                "eventHeaders": _headers(EVENT_HEADER_SCHEMAS, EVENT_REQUIRED),
                "commandHeaders": _headers(
                    COMMAND_HEADER_SCHEMAS, set(COMMAND_HEADER_SCHEMAS) - {"traceparent"}
                ),
            },
        },
    }


def _messages(messages: Json, codecs: Iterable[Codec[Any]], make: Any) -> dict[str, dict[str, str]]:
    found = {}
    for codec in codecs:
        name = f"{codec.name}.{codec.fingerprint.hex()}"
        messages[name] = make(codec)
        found[name] = {"$ref": f"#/components/messages/{name}"}
    return found


def _event(codec: Codec[Any]) -> Json:
    return _message(codec, "eventHeaders")


def _command(codec: Codec[Any]) -> Json:
    return _message(codec, "commandHeaders")


def _message(codec: Codec[Any], headers: str) -> Json:
    return {
        "name": codec.name,
        "contentType": CONTENT_TYPE.decode(),
        "headers": {"$ref": f"#/components/schemas/{headers}"},
        "payload": {"schemaFormat": AVRO_FORMAT, "schema": json.loads(codec.text)},
        "bindings": {
            "kafka": {
                "key": {"type": "string", "maxLength": ID_BYTES, "description": "Instance id."},
                "schemaIdLocation": "payload",
                "schemaIdPayloadEncoding": f"C3 01 {codec.fingerprint.hex(' ').upper()}",
                "bindingVersion": "0.5.0",
            }
        },
    }


def _channel(channels: Json, topic: str, messages: Json, what: str) -> None:
    channel = channels.setdefault(
        topic,
        {
            "address": topic,
            "messages": {},
            "description": what,
            "bindings": {"kafka": {"topic": topic, "bindingVersion": "0.5.0"}},
        },
    )
    channel["messages"].update(messages)


def _operation(action: str, topic: str) -> Json:
    escaped = topic.replace("~", "~0").replace("/", "~1")
    return {"action": action, "channel": {"$ref": f"#/channels/{escaped}"}}


def _headers(schemas: Mapping[str, Json], required: Iterable[str]) -> Json:
    return {"type": "object", "properties": dict(schemas), "required": sorted(required)}
