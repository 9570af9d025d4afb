import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.kafka.conftest import PARTITIONS, Read

from refold.examples.order.graph import Charge
from refold.processors.effects import Send
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord
from refold.topics.clients import admin_config, opened, publisher_config
from refold.topics.commands import CommandConsumer
from refold.topics.records import CommandWriter
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


def test_the_executing_code_of_the_page_receives_commands(
    here: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = [code for held, code in BLOCKS if held]
    codec = codec_of(Charge)
    send = Send("order", codec.name, "charge", "r1:k:forward", "charging", codec.encode(Charge(7)))
    cause = EventRecord("acme", "order-1", "/s", "e", "T", b"v", 0, 5, b"", b"")
    headers = CommandWriter(here.namespace, "order").headers(send, cause, 5)
    producer = opened(Producer, publisher_config(here))
    topic = f"{here.namespace}.order.commands"
    producer.produce(topic, send.value, b"order-1", headers=headers)
    assert producer.flush(20) == 0

    class Enough(Exception):  # noqa: N818 (it ends the page's endless loop, nothing is wrong)
        pass

    def end(*_: object) -> None:
        raise Enough

    monkeypatch.setattr(CommandConsumer, "done", end)
    with pytest.raises(Enough):
        exec(compile(code, "docs/services.md", "exec"), {"__name__": "page"})
    assert "r1:k:forward Charge(amount=7)" in capsys.readouterr().out
