"""Confluent wire format on a real broker, with the played registry of `tests.registry`.

The registry itself is not to be had from the package registries that this project uses; the
server of these tests answers its three requests over real HTTP.
"""

import asyncio
from collections.abc import Iterator
from threading import Event as Flag

import pytest
from tests.kafka.worker.conftest import StageOf
from tests.kafka.worker.stage import Stage, header
from tests.registry import Registry, registry_server
from tests.running import settings_of

from refold.cli.main import run
from refold.examples.order.graph import Charge, Charged, OrderPlaced, Reserve, Reserved
from refold.schemas.codec import codec_of
from refold.schemas.framing import confluent_id, to_confluent
from refold.topics.async_publisher import AsyncPublisher
from refold.topics.clients import reader
from refold.topics.commands import CommandConsumer
from refold.topics.publisher import Delivered, Draft, Publisher
from refold.topics.records import event_headers
from refold.topics.schema_topic import SchemaTopic

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry, named in the settings of everything that is made afterwards."""
    with registry_server() as server:
        monkeypatch.setenv("REFOLD_SCHEMAS_FORMAT", "confluent")
        monkeypatch.setenv("REFOLD_SCHEMAS_REGISTRY", server.url)
        monkeypatch.setenv("REFOLD_SCHEMAS_TIMEOUT_S", "0.3")
        yield server


def put(stage: Stage, instance: str, event_id: str, name: str, value: bytes) -> None:
    """An event as a foreign producer writes it."""
    stage.put_raw(instance.encode(), value, event_headers(event_id, "/shop", name, "acme"))


def asked(registry: Registry, number: int) -> int:
    """How often the registry was asked for an id."""
    return registry.requests.count(("GET", f"/schemas/ids/{number}"))


def test_events_and_commands_carry_ids_and_a_replay_needs_no_registry(
    one: Stage, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(one)
    with Publisher(settings, "order", "/shop", tenant="acme") as publisher:
        sent = [
            publisher.send(Draft(instance="o-1", event=event, id=name))
            for name, event in (
                ("p", OrderPlaced(items=("pen",), total=3)),
                ("r", Reserved()),
                ("c", Charged(receipt="x")),
            )
        ]
    assert all(isinstance(outcome, Delivered) for outcome in sent)
    assert {each.value()[:1] for each in one.committed("events")} == {b"\x00"}  # type: ignore[index]
    one.fold()
    assert one.states() == {"o-1": "done"}
    commands = one.committed("commands")
    numbers = [confluent_id(bytes(each.value() or b"")) for each in commands]
    assert numbers == [registry.subjects["Reserve"][0], registry.subjects["Charge"][0]]
    for name in ("FORMAT", "REGISTRY", "TIMEOUT_S"):
        monkeypatch.delenv(f"REFOLD_SCHEMAS_{name}")
    settings = settings_of(one)
    with CommandConsumer(settings, "order", [Reserve, Charge]) as consumer:
        received: list[object] = []
        while len(received) < 2:
            found = consumer.receive()
            if found is not None:
                received.append(found.command)
    assert received == [Reserve(items=("pen",)), Charge(amount=3)]
    monkeypatch.setenv("REFOLD_NAMESPACE", one.namespace)
    monkeypatch.setenv("REFOLD_KAFKA_BOOTSTRAP", one.bootstrap)
    monkeypatch.setenv("REFOLD_POSTGRES_DSN", one.dsn)
    assert run(["verify", "refold.examples.order.graph:order"]) == 0  # in a fresh process
    topic = SchemaTopic(one.namespace, reader(settings))
    topic.refresh()
    known = {topic.registry.add_number(*each).type for each in topic.registry.numbers.items()}
    assert known == {"OrderPlaced", "Reserved", "Charged", "Reserve", "Charge"}
    topic.close()


def test_a_registry_that_is_away_is_waited_for_and_nothing_is_poison_b017(
    stage_of: StageOf, registry: Registry
) -> None:
    """503 while a valid new id arrives: it waits, the other partition goes on, nothing is lost."""
    two = stage_of(2)
    (here,), (there,) = two.names(0, 1), two.names(1, 1)
    two.place(here, there)
    with two.working():
        two.until(lambda: len(two.sent()) == 2, "both orders to begin")
        number = registry.add(codec_of(Reserved).text, "Reserved")
        registry.status = 503
        value = to_confluent(codec_of(Reserved).encode(Reserved()), number)
        put(two, here, "r1", "Reserved", value)
        two.until(lambda: asked(registry, number) >= 3, "the registry to be asked again")
        two.put((there, "r2", Reserved()))
        two.until(lambda: f"{there}/charging" in two.sent(), "the other partition to go on")
        assert f"{here}/charging" not in two.sent()
        registry.status = 0
        two.until(lambda: f"{here}/charging" in two.sent(), "the new id to be read")
    assert two.decided() == []


def test_a_registry_that_hangs_is_waited_for_too_b017(one: Stage, registry: Registry) -> None:
    one.place("o-1")
    with one.working():
        one.until(lambda: len(one.sent()) == 1, "the order to begin")
        number = registry.add(codec_of(Reserved).text, "Reserved")
        registry.hold = Flag()
        value = to_confluent(codec_of(Reserved).encode(Reserved()), number)
        put(one, "o-1", "r1", "Reserved", value)
        one.until(lambda: asked(registry, number) >= 2, "the registry to be asked again")
        registry.hold.set()
        one.until(lambda: "o-1/charging" in one.sent(), "the new id to be read")
    assert one.decided() == []


def test_an_id_that_the_registry_does_not_know_parks_an_instance_and_is_poison_without_one(
    one: Stage, registry: Registry
) -> None:
    one.place("o-1")
    body = codec_of(Reserved).encode(Reserved())
    put(one, "o-1", "r1", "Reserved", to_confluent(body, 69_999))
    put(one, "o-9", "r9", "Reserved", to_confluent(body, 69_999))
    one.fold()
    assert one.decided() == [(1, "parked", "SCHEMA_UNKNOWN"), (2, "poison", "SCHEMA_UNKNOWN")]
    assert asked(registry, 69_999) > 0


def test_a_worker_begins_once_the_registry_answers(one: Stage, registry: Registry) -> None:
    registry.status = 503
    one.place("o-1")
    with one.working():
        one.until(lambda: len(registry.requests) >= 2, "the registry to be asked again")
        assert one.sent() == []
        registry.status = 0
        one.until(lambda: one.sent() == ["o-1/reserving"], "the order to begin")
    assert header(one.committed("commands")[0], "ce_type") == "Reserve"


def test_the_publisher_for_asyncio_frames_too(one: Stage, registry: Registry) -> None:
    async def publish() -> None:
        async with AsyncPublisher(settings_of(one), "order", "/shop", tenant="acme") as publisher:
            event = OrderPlaced(items=("pen",), total=3)
            outcome = await publisher.send(Draft(instance="o-1", event=event, id="p"))
            assert isinstance(outcome, Delivered)

    asyncio.run(publish())
    (record,) = one.committed("events")
    assert confluent_id(bytes(record.value() or b"")) == registry.subjects["OrderPlaced"][0]
