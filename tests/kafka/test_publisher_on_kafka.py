import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from tests.kafka.conftest import PARTITIONS, Read

from refold.processors.engine_events import Terminate
from refold.schemas.codec import codec_of
from refold.schemas.envelope import EventRecord, derived_id
from refold.schemas.errors import Code, RecordError, ServerError, UsageError
from refold.schemas.types import Event
from refold.testing.servers import OwnKafka
from refold.topics.async_publisher import AsyncPublisher
from refold.topics.clients import admin_config, opened, reader
from refold.topics.partition import partition_of
from refold.topics.publisher import Delivered, Draft, Publisher, Refused, Unknown
from refold.topics.reading import batches
from refold.topics.records import EventReader
from refold.topics.settings import Kafka as KafkaSection
from refold.topics.settings import Option, Settings
from refold.topics.specs import create, workflow_specs

pytestmark = pytest.mark.kafka

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class OrderPlaced(Event):
    total: int
    note: str = ""


def draft(number: int = 1, **more: object) -> Draft:
    return Draft(
        instance=f"order-{number}",
        event=OrderPlaced(number),
        id=f"e{number}",
        **more,  # type: ignore[arg-type]  # fields of Draft
    )


def publisher(settings: Settings, timeout_s: float = 30.0) -> Publisher:
    return Publisher(settings, "order", "/shop/checkout", tenant="acme", timeout_s=timeout_s)


def test_a_published_event_is_read_as_it_was_meant(shop: Settings, read_all: Read) -> None:
    with publisher(shop) as out:
        outcome = out.send(
            draft(
                tenant="beta",
                time="2026-01-31T08:15:00Z",
                expected_state="new",
                expected_version=0,
                traceparent=TRACE,
            )
        )
    assert isinstance(outcome, Delivered)
    assert outcome.partition == partition_of(b"order-1", PARTITIONS)
    (message,) = read_all(outcome.topic, outcome.partition)
    event = EventReader("order", PARTITIONS).read(message, outcome.partition)
    assert isinstance(event, EventRecord)
    assert (event.tenant, event.instance, event.id) == ("beta", "order-1", "e1")
    assert (event.source, event.type) == ("/shop/checkout", "OrderPlaced")
    assert (event.expected_state, event.expected_version) == ("new", 0)
    assert (event.time, event.traceparent) == ("2026-01-31T08:15:00Z", TRACE.encode())
    assert codec_of(OrderPlaced).decode(event.value) == OrderPlaced(1)
    assert event.log_time_ms > 0


def test_many_events_are_spread_as_every_murmur2_producer_does_b001(
    shop: Settings, read_all: Read
) -> None:
    with publisher(shop) as out:
        outcomes = list(out.send_many(draft(number) for number in range(500)))
    assert Counter(type(each) for each in outcomes) == {Delivered: 500}
    assert len({each.event_id for each in outcomes}) == 500
    for partition in range(PARTITIONS):
        for message in read_all(f"{shop.namespace}.order.events", partition):
            assert partition_of(message.key() or b"", PARTITIONS) == partition


def test_an_id_is_derived_from_the_callers_key_and_stays_the_same(shop: Settings) -> None:
    with publisher(shop) as out:
        keyed = Draft(instance="order-1", event=OrderPlaced(1), key="request-7")
        first, second = out.send(keyed), out.send(keyed)
    wanted = derived_id("event", "acme", "order", "order-1", "request-7")
    assert first.event_id == second.event_id == wanted
    assert wanted.startswith("event-")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (Draft(instance="order-1", event=OrderPlaced(1)), Code.BAD_ENVELOPE),
        (Draft(instance="order-1", event=OrderPlaced(1), id="a", key="b"), Code.BAD_ENVELOPE),
        (Draft(instance="", event=OrderPlaced(1), id="a"), Code.BAD_KEY),
        (Draft(instance="a\nb", event=OrderPlaced(1), id="a"), Code.BAD_KEY),
        (Draft(instance="x" * 129, event=OrderPlaced(1), id="a"), Code.BAD_KEY),
        (Draft(instance="o", event=OrderPlaced(1), id="a" * 129), Code.BAD_ENVELOPE),
        (Draft(instance="o", event=OrderPlaced(1), id="a", tenant="b c"), Code.BAD_ENVELOPE),
        (Draft(instance="o", event=Terminate("now", "me"), id="a"), Code.RESERVED_TYPE),
        (Draft(instance="o", event=OrderPlaced(2**63), id="a"), Code.NOT_STORABLE),
    ],
)
def test_a_wrong_draft_is_refused_before_anything_is_sent(
    shop: Settings, read_all: Read, wrong: Draft, code: Code
) -> None:
    with publisher(shop) as out, pytest.raises(RecordError) as caught:
        out.send(wrong)
    assert caught.value.code == code
    assert not any(read_all(f"{shop.namespace}.order.events", each) for each in range(PARTITIONS))


def test_nobody_publishes_as_the_engine(shop: Settings) -> None:
    with pytest.raises(UsageError) as caught:
        Publisher(shop, "order", "/refold/operator/ada")
    assert caught.value.code == Code.BAD_SETTING


def test_an_event_that_is_too_large_is_certainly_refused_b022(shop: Settings) -> None:
    large = Draft(instance="order-1", event=OrderPlaced(1, "x" * 1_500_000), id="e1")
    between = Draft(instance="order-1", event=OrderPlaced(1, "x" * 1_080_000), id="e2")
    with publisher(shop) as out:
        for each in (large, between):  # the client refuses the first, the broker the second
            outcome = out.send(each)
            assert isinstance(outcome, Refused)
            assert outcome.reason.code == Code.DELIVERY_REFUSED
            assert "MSG_SIZE_TOO_LARGE" in outcome.reason.text
        assert isinstance(out.send(draft()), Delivered)


def test_a_missing_topic_is_certainly_refused(settings: Settings) -> None:
    with publisher(settings) as out:
        outcome = out.send(draft())
    assert isinstance(outcome, Refused)
    assert "UNKNOWN_TOPIC" in outcome.reason.text


def test_an_event_that_no_broker_took_in_time_is_unknown_b012() -> None:
    nowhere = Settings(kafka=KafkaSection(bootstrap="127.0.0.1:1", options={"log_level": 0}))
    with publisher(nowhere, timeout_s=0.5) as out:
        outcome = out.send(draft())
    assert isinstance(outcome, Unknown)
    assert outcome.reason.code == Code.DELIVERY_UNKNOWN


def test_a_queue_that_stays_full_is_back_pressure_and_sends_nothing_more_b012() -> None:
    section = KafkaSection(
        bootstrap="127.0.0.1:1",
        options={"log_level": 0},
        producer={"queue.buffering.max.messages": 1, "message.timeout.ms": 3_000},
    )
    out = publisher(Settings(kafka=section), timeout_s=0.3)
    with pytest.raises(ServerError) as caught:
        list(out.send_many(draft(number) for number in range(3)))
    assert caught.value.code == Code.QUEUE_BACK_PRESSURE
    out.close()


def test_a_small_queue_only_slows_down_b012(shop: Settings) -> None:
    section = KafkaSection(
        bootstrap=shop.kafka.bootstrap, producer={"queue.buffering.max.messages": 10}
    )
    small = Settings(namespace=shop.namespace, kafka=section)
    with publisher(small) as out:
        outcomes = list(out.send_many(draft(number) for number in range(300)))
    assert Counter(type(each) for each in outcomes) == {Delivered: 300}


def test_closing_says_how_many_outcomes_are_unknown_b012() -> None:
    section = KafkaSection(
        bootstrap="127.0.0.1:1",
        options={"log_level": 0},
        producer={"message.timeout.ms": 60_000},
    )
    out = publisher(Settings(kafka=section), timeout_s=0.1)
    assert isinstance(out.send(draft()), Unknown)
    with pytest.raises(ServerError, match="1 events had no outcome") as caught:
        out.close()
    assert caught.value.code == Code.DELIVERY_UNKNOWN


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_order_and_count_survive_a_restart_of_the_broker_b013(own_kafka: OwnKafka) -> None:
    server = own_kafka()
    quiet: dict[str, Option] = {"log_level": 0}
    settings = Settings(kafka=KafkaSection(bootstrap=server.bootstrap, options=quiet))
    admin = opened(AdminClient, admin_config(settings))
    create(admin, workflow_specs(settings.namespace, "order", [], 1))

    def drafts() -> Iterator[Draft]:
        for step in range(4):
            for number in range(200):
                if (step, number) == (1, 100):
                    server.kill()
                    server.start()
                event = OrderPlaced(step)
                yield Draft(instance=f"order-{number}", event=event, id=f"{number}.{step}")

    with publisher(settings) as out:
        outcomes = list(out.send_many(drafts()))
    assert Counter(type(each) for each in outcomes) == {Delivered: 800}
    source = reader(settings)
    found = [each for many in batches(source, out.topic, 0, 0) for each in many]
    source.close()
    assert len(found) == 800
    steps: dict[bytes, list[int]] = defaultdict(list)
    for message in found:
        steps[message.key() or b""].append(
            codec_of(OrderPlaced).decode(message.value() or b"").total
        )
    assert all(each == [0, 1, 2, 3] for each in steps.values())


def test_coroutines_publish_and_learn_the_same(shop: Settings, read_all: Read) -> None:
    async def run() -> None:
        async with AsyncPublisher(shop, "order", "/shop/checkout", tenant="acme") as out:
            assert isinstance(await out.send(draft(0)), Delivered)
            outcomes = await out.send_many(draft(number) for number in range(1, 200))
            assert [each.event_id for each in outcomes] == [f"e{n}" for n in range(1, 200)]
            assert all(isinstance(each, Delivered) for each in outcomes)
            with pytest.raises(RecordError):
                await out.send(Draft(instance="o", event=OrderPlaced(1)))

    asyncio.run(run())
    found = [read_all(f"{shop.namespace}.order.events", each) for each in range(PARTITIONS)]
    assert sum(map(len, found)) == 200


def test_a_coroutine_learns_that_the_outcome_is_unknown() -> None:
    nowhere = Settings(kafka=KafkaSection(bootstrap="127.0.0.1:1", options={"log_level": 0}))

    async def run() -> None:
        async with AsyncPublisher(
            nowhere, "order", "/shop/checkout", tenant="acme", timeout_s=0.5
        ) as out:
            assert isinstance(await out.send(draft()), Unknown)

    asyncio.run(run())
