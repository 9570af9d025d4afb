import json
from collections.abc import Iterator
from typing import Any

from refold.examples.order.graph import Charge, OrderPlaced, Reserve
from refold.schemas.codec import codec_of
from refold.topics.asyncapi import (
    COMMAND_HEADER_SCHEMAS,
    EVENT_HEADER_SCHEMAS,
    Described,
    DescribedCommand,
    document,
)
from refold.topics.records import COMMAND_HEADERS, EVENT_HEADERS

MADE = document(
    "acme",
    [
        Described(
            "order",
            [codec_of(OrderPlaced), codec_of(OrderPlaced)],
            [
                DescribedCommand("order", codec_of(Reserve)),
                DescribedCommand("payments", codec_of(Charge)),
            ],
        )
    ],
)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_leads_somewhere() -> None:
    found = list(references(MADE))
    assert found
    for reference in found:
        node = MADE
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_the_topics_are_those_of_the_workflow() -> None:
    channels = {"acme.order.events", "acme.order.commands", "acme.payments.commands"}
    assert set(MADE["channels"]) == channels
    actions = {name: each["action"] for name, each in MADE["operations"].items()}
    assert actions["order.fold"] == "receive"
    assert actions["order.command.payments"] == "send"


def test_the_header_tables_are_the_ones_that_are_read_and_written() -> None:
    assert set(EVENT_HEADER_SCHEMAS) == EVENT_HEADERS
    assert set(COMMAND_HEADER_SCHEMAS) == COMMAND_HEADERS


def test_a_payload_is_the_registered_schema_and_the_document_is_json() -> None:
    messages = MADE["components"]["messages"]
    payloads = [each["payload"]["schema"] for each in messages.values()]
    assert json.loads(codec_of(Charge).text) in payloads
    assert len(messages) == 3
    assert json.loads(json.dumps(MADE)) == MADE
