import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.kafka.conftest import PARTITIONS, Read

from refold.cli.main import run
from refold.examples.order.graph import Reserve
from refold.processors.effects import Send
from refold.processors.engine_events import REDRIVE
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code
from refold.schemas.verdicts import Decision, Reason, Verdict
from refold.topics.clients import opened, publisher_config
from refold.topics.records import CommandWriter, EventReader
from refold.topics.rejected import encode
from refold.topics.settings import Settings
from refold.topics.specs import create, workflow_specs

pytestmark = pytest.mark.kafka

ORDER = "refold.examples.order:order"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs one command line in the test's namespace: exit code, output, errors."""
    monkeypatch.setenv("REFOLD_NAMESPACE", settings.namespace)
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", settings.kafka.bootstrap)

    def run_line(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_line


def produce(settings: Settings, topic: str, record: Any, partition: int) -> None:
    producer = opened(Producer, publisher_config(settings))
    producer.produce(topic, record.value, record.key, partition=partition, headers=record.headers)
    assert producer.flush(20) == 0


def test_topics_are_made_and_checked_and_an_event_is_sent(
    call: Call, settings: Settings, read_all: Read
) -> None:
    code, _, said = call("topics", "check", ORDER)
    assert code == 1
    assert "TOPIC_MISSING" in said
    code, out, _ = call("topics", "create", ORDER, "--partitions", str(PARTITIONS), "--json")
    made = json.loads(out)
    assert code == 0
    assert all(each["created"] for each in made["topics"])
    assert "OrderPlaced" in made["schemas"]
    assert call("topics", "check", ORDER)[0] == 0
    data = '{"items": ["a"], "total": 3}'
    code, out, _ = call(
        "event", "send", ORDER, "OrderPlaced", "order-1", "--data", data, "--id", "e1", "--json"
    )
    told = json.loads(out)
    assert (code, told["outcome"], told["event_id"]) == (0, "delivered", "e1")
    (message,) = read_all(told["topic"], told["partition"])
    event = EventReader("order", PARTITIONS).read(message, told["partition"])
    assert isinstance(event, EventRecord)
    assert (event.tenant, event.source) == ("default", "/cli")


def test_another_partition_count_than_the_one_that_stands_is_refused_and_nothing_made(
    call: Call, settings: Settings, admin: AdminClient
) -> None:
    call("topics", "create", ORDER, "--partitions", "3")
    code, _, said = call("topics", "create", ORDER, "--partitions", "24")
    assert code == 2
    assert "TOPIC_WRONG" in said
    assert f"{settings.namespace}.order.events has 3 partitions, 24 are wanted" in said
    assert "--partitions 3" in said
    assert call("topics", "create", ORDER)[0] == 0


def test_what_is_missing_is_made_with_the_count_of_the_event_topic(
    call: Call, settings: Settings, admin: AdminClient
) -> None:
    """The decision log must have it: partition p of one belongs to p of the other."""
    events, *_ = workflow_specs(settings.namespace, "order", ["order"], 3)
    create(admin, [events])
    assert call("topics", "create", ORDER)[0] == 0
    found = admin.list_topics(timeout=10).topics
    assert len(found[f"{settings.namespace}.order.rejected"].partitions) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("event", "send", ORDER, "OrderPlaced", "o", "--id", "e", "--data", "{"), "is no Order"),
        (
            ("event", "send", ORDER, "OrderPlaced", "o", "--data", '{"items":[],"total":1}'),
            "Give --id or --key",
        ),
        (("event", "send", ORDER, "Nothing", "o", "--id", "e"), "no event type"),
        (("rejected", "show", "order", "7"), "PARTITION:OFFSET"),
        (("rejected", "redrive", "order"), "Nothing was chosen"),
        (("rejected", "list", "order"), "no workflow 'order' in namespace"),
        (("rejected", "list", "order", "--verdict", "applied"), "'parked'"),
        (("commands", "tail", "order", "--no-follow"), "no target 'order' in namespace"),
    ],
)
def test_a_mistake_is_one_message_without_a_traceback(
    call: Call, arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = call(*arguments)
    assert code in {1, 2}
    assert said in err
    assert "Traceback" not in err


def test_a_rejected_record_is_listed_shown_and_redriven_once(
    call: Call, shop: Settings, read_all: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = f"{shop.namespace}.order.events"
    call("topics", "create", ORDER)
    data = '{"items": [], "total": 1}'
    call("event", "send", ORDER, "OrderPlaced", "order-1", "--data", data, "--id", "e1")
    partition = next(each for each in range(PARTITIONS) if read_all(events, each))
    (message,) = read_all(events, partition)
    reason = Reason(Code.UNDECODABLE, "is [cut] short")
    record = encode(message, Decision(0, Verdict.POISON, reason))
    produce(shop, f"{shop.namespace}.order.rejected", record, partition)
    _, out, _ = call("rejected", "list", "order", "--json", "--code", "UNDECODABLE")
    (row,) = map(json.loads, out.splitlines())
    assert (row["key"], row["type"], row["id"], row["attempt"]) == (
        "order-1",
        "OrderPlaced",
        "e1",
        1,
    )
    assert call("rejected", "list", "order", "--json", "--instance", "other")[1] == ""
    monkeypatch.setenv("COLUMNS", "100")
    told = call("rejected", "list", "order")[1]
    assert row["time"][11:23] in told
    assert "no record fits" in call("rejected", "list", "order", "--instance", "other")[2]
    assert "[cut]" in call("rejected", "list", "order")[1].replace("\n", "")
    _, out, _ = call("rejected", "show", "order", row["where"], "--json")
    assert bytes.fromhex(json.loads(out)["value_hex"]) == message.value()
    assert "why: is [cut] short" in call("rejected", "show", "order", row["where"])[1]
    assert "redriven, attempt 2" in call("rejected", "redrive", "order", row["where"])[2]
    assert "already redriven" in call("rejected", "redrive", "order", "--all")[2]
    assert [each.value() for each in read_all(events, partition)] == [message.value()] * 2


def test_a_parked_record_is_released_by_an_event_with_a_reason(
    call: Call, shop: Settings, read_all: Read
) -> None:
    events = f"{shop.namespace}.order.events"
    call("topics", "create", ORDER)
    data = '{"items": [], "total": 1}'
    call("event", "send", ORDER, "OrderPlaced", "order-1", "--data", data, "--id", "e1")
    partition = next(each for each in range(PARTITIONS) if read_all(events, each))
    (message,) = read_all(events, partition)
    reason = Reason(Code.REDUCER_RAISED, "because")
    produce(
        shop,
        f"{shop.namespace}.order.rejected",
        encode(message, Decision(0, Verdict.PARKED, reason)),
        partition,
    )
    code, _, err = call("rejected", "redrive", "order", f"{partition}:0")
    assert (code, "--why" in err) == (2, True)
    for _ in range(2):
        code, _, _ = call(
            "rejected", "redrive", "order", f"{partition}:0", "--why", "fixed", "--version", "2"
        )
        assert code == 0
    reading = EventReader("order", PARTITIONS)
    found = [reading.read(each, partition) for each in read_all(events, partition)[1:]]
    first, second = found
    assert isinstance(first, EventRecord)
    assert isinstance(second, EventRecord)
    assert first.identity == second.identity  # pressed twice, it counts once
    assert first.source.startswith("/refold/operator/")
    redrive = REDRIVE.decode(first.value)
    assert (redrive.version, redrive.why, first.instance) == (2, "fixed", "order-1")


def test_commands_are_watched_with_their_keys_and_values(call: Call, shop: Settings) -> None:
    call("topics", "create", ORDER)
    codec = codec_of(Reserve)
    send = Send("order", codec.name, "reserve", "r1:k:forward", "reserving", b"")
    cause = EventRecord("acme", "order-1", "/s", "e", "T", b"v", 0, 5, b"", b"")
    producer = opened(Producer, publisher_config(shop))
    topic = f"{shop.namespace}.order.commands"
    for value in (codec.encode(Reserve(("a",))), codec.encode(Reserve(("a",)))[:-1], None):
        headers = CommandWriter(shop.namespace, "order").headers(send, cause, 5)
        producer.produce(topic, value, b"order-1", partition=0, headers=headers)
    assert producer.flush(20) == 0
    code, out, _ = call("commands", "tail", "order", "--from-start", "--no-follow", "--json")
    good, cut, null = map(json.loads, out.splitlines())
    assert code == 0
    assert (good["key"], good["data"]) == ("r1:k:forward", {"items": ["a"]})
    assert cut["data"].startswith("c301")
    assert null["error"] == "TOMBSTONE"


def test_the_wire_is_described_and_settings_are_shown(call: Call, settings: Settings) -> None:
    described = json.loads(call("topics", "describe", ORDER)[1])
    assert f"{settings.namespace}.order.events" in described["channels"]
    shown = json.loads(call("config", "show", "--json")[1])
    assert shown["kafka.bootstrap"] == settings.kafka.bootstrap
    assert f"namespace = {settings.namespace}" in call("config", "show")[1]
