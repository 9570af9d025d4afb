import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.kafka.conftest import PARTITIONS, Eventually, Read

from refold.examples.order.graph import Charge, Charged
from refold.processors.effects import Send
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord, derived_id
from refold.topics.clients import admin_config, opened, publisher_config, reader
from refold.topics.records import CommandWriter, EventReader, Fault
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings
from refold.topics.specs import create, workflow_specs

pytestmark = pytest.mark.kafka

PAGE = (Path(__file__).parents[2] / "docs" / "services.md").read_text()
BLOCKS = re.findall(r"^```python( no-run)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(shop: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The test's namespace in the environment, for code that loads its settings."""
    monkeypatch.setenv("REFOLD_NAMESPACE", shop.namespace)
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", shop.kafka.bootstrap)
    specs = workflow_specs(shop.namespace, "order", ["order"], PARTITIONS)
    create(opened(AdminClient, admin_config(shop)), specs)
    return shop


def test_the_publishing_code_of_the_page_publishes(
    here: Settings, read_all: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [code for held, code in BLOCKS if not held]
    assert len(run) == 2
    for code in run:
        exec(compile(code, "docs/services.md", "exec"), {"__name__": "page"})
    assert "on the log at" in capsys.readouterr().out
    found = [read_all(f"{here.namespace}.order.events", each) for each in range(PARTITIONS)]
    keys = {message.key() for messages in found for message in messages}
    assert keys == {b"order-1", b"order-2"}


def command(here: Settings, key: str) -> None:
    """Put a command to charge on the topic, as a worker does, and publish its schemas."""
    producer = opened(Producer, publisher_config(here))
    schemas = SchemaTopic(here.namespace, reader(here))
    schemas.publish(producer, [codec_of(Charge), codec_of(Charged)], "order")
    schemas.close()
    codec = codec_of(Charge)
    send = Send("order", codec.name, "charge", key, "charging", codec.encode(Charge(7)))
    cause = EventRecord("acme", "order-1", "/s", "e", "T", b"v", 0, 5, b"", b"")
    headers = CommandWriter(here.namespace, "order").headers(send, cause, 5)
    topic = f"{here.namespace}.order.commands"
    producer.produce(topic, send.value, b"order-1", headers=headers)
    assert producer.flush(20) == 0


def test_the_executors_of_the_page_answer_once_under_one_id(
    here: Settings,
    read_all: Read,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    library, plain = (code for held, code in BLOCKS if held)
    key = "r1:acme:order:order-1:charging:charge:%2Fs%1Fe:forward"
    command(here, key)

    def answers() -> list[EventRecord | Fault]:
        events = EventReader("order", PARTITIONS)
        topic = f"{here.namespace}.order.events"
        return [
            events.read(message, each)
            for each in range(PARTITIONS)
            for message in read_all(topic, each)
        ]

    def served(code: str, expected: int, *arguments: object) -> None:
        names: dict[str, Any] = {"__name__": "page"}
        exec(compile(code, "docs/services.md", "exec"), names)
        stopping = Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(lambda: names["serve"](*arguments, stopping))
            try:
                eventually(answers, lambda found: len(found) >= expected or running.done())
            finally:
                stopping.set()
            running.result(30)

    served(library, 1, here)
    served(plain, 2, here.kafka.bootstrap, here.namespace, f"{here.namespace}.plain")
    first, second = answers()
    assert isinstance(first, EventRecord)
    assert isinstance(second, EventRecord)
    assert first.id == second.id == derived_id("result", key, "succeeded")
    assert (first.tenant, first.instance, first.type) == ("acme", "order-1", "Charged")
    assert first.identity == second.identity
    assert first.body == second.body
    assert codec_of(Charged).decode(first.value) == Charged("receipt-7")
