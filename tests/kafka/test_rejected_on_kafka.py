from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
from confluent_kafka import Consumer, Message, Producer
from tests.kafka.conftest import Read

from refold.schemas.errors import Code, ServerError, UsageError
from refold.schemas.verdicts import Activate, Decision, Reason, Verdict
from refold.topics.clients import (
    opened,
    publisher_config,
    reader,
    reader_config,
    transactional_producer_config,
)
from refold.topics.headers import Headers, RawHeaders
from refold.topics.redrive import RejectedLog, redrive
from refold.topics.rejected import REDRIVE, Record, encode, encode_activate, read
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka

HEADERS: Headers = [
    ("ce_id", b"e7"),
    ("trace", b"\xc3\x28"),
    ("x", None),
    ("x", b"2"),
]


class Scene:
    """An event topic and its decision log, written as the worker would."""

    def __init__(self, settings: Settings, read_all: Read) -> None:
        self.settings = settings
        self.events = f"{settings.namespace}.order.events"
        self.rejected = f"{settings.namespace}.order.rejected"
        self.read_all = read_all
        self.producer = opened(Producer, publisher_config(settings))
        self.reader: Callable[[], Consumer] = partial(reader, settings)
        self.log = RejectedLog(settings.namespace, "order", self.reader)

    def put(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, partition: int
    ) -> None:
        self.producer.produce(topic, value, key, partition=partition, headers=headers)
        assert self.producer.flush(20) == 0

    def event(self, key: bytes | None, value: bytes | None, partition: int = 1) -> Message:
        self.put(self.events, key, value, HEADERS, partition)
        return self.read_all(self.events, partition)[-1]

    def reject(
        self,
        message: Message,
        verdict: Verdict = Verdict.POISON,
        code: Code = Code.UNDECODABLE,
    ) -> tuple[int, int]:
        decision = Decision(message.offset() or 0, verdict, Reason(code, "because"))
        return self.keep(encode(message, decision), message.partition() or 0)

    def keep(self, record: Record, partition: int) -> tuple[int, int]:
        self.put(self.rejected, record.key, record.value, record.headers, partition)
        return partition, self.read_all(self.rejected, partition)[-1].offset() or 0

    def transactional(self, transactional_id: str) -> Producer:
        return opened(Producer, transactional_producer_config(self.settings, transactional_id))

    def redrive(self, *where: tuple[int, int]) -> list[bool]:
        entries = [self.log.entry(*each) for each in where]
        done = redrive(self.log, entries, self.transactional, self.reader)
        return [each.sent for each in done]


@pytest.fixture
def scene(shop: Settings, read_all: Read) -> Scene:
    return Scene(shop, read_all)


def parts(message: Message) -> tuple[bytes | None, bytes | None, RawHeaders]:
    headers = cast(RawHeaders, message.headers() or ())
    return message.key(), message.value(), [pair for pair in headers if pair[0] != REDRIVE]


@pytest.mark.parametrize("value", [b"not avro", b"", None])
def test_a_redriven_record_comes_again_byte_by_byte_b019_b024(
    scene: Scene, value: bytes | None
) -> None:
    first = scene.event(b"order-1", value)
    assert scene.redrive(scene.reject(first)) == [True]
    again = scene.read_all(scene.events, 1)[-1]
    assert again.offset() != first.offset()
    assert parts(again) == parts(first)


def test_a_null_key_stays_null_b003(scene: Scene) -> None:
    first = scene.event(None, b"v")
    where = scene.reject(first, Verdict.REFUSED, Code.BAD_KEY)
    scene.redrive(where)
    assert scene.read_all(scene.events, 1)[-1].key() is None


def test_a_second_request_finds_it_already_redriven_b024(scene: Scene) -> None:
    where = scene.reject(scene.event(b"order-1", b"bad"))
    assert scene.redrive(where) == [True]
    assert scene.redrive(where, where) == [False, False]
    assert len(scene.read_all(scene.events, 1)) == 2


def test_a_record_that_fails_again_is_attempt_two_of_the_same_record_b024(scene: Scene) -> None:
    first = scene.reject(scene.event(b"order-1", b"bad"))
    scene.redrive(first)
    second = scene.reject(scene.read_all(scene.events, 1)[-1])
    before, after = scene.log.entry(*first), scene.log.entry(*second)
    assert (before.original.attempt, after.original.attempt) == (1, 2)
    assert after.original.origin == before.original.source
    assert scene.redrive(second, first) == [True, False]
    assert len(scene.read_all(scene.events, 1)) == 3


def test_a_redrive_that_comes_second_finds_it_sent_b024(scene: Scene) -> None:
    where = scene.reject(scene.event(b"order-1", b"bad"))
    other: list[bool] = []

    def reader_after_the_other() -> Consumer:
        """The first redrive is about to look; before that the second does all of its work."""
        if not other:
            other.extend(scene.redrive(where))
        return scene.reader()

    (mine,) = redrive(
        scene.log, [scene.log.entry(*where)], scene.transactional, reader_after_the_other
    )
    assert (other, mine.sent) == ([True], False)
    assert len(scene.read_all(scene.events, 1)) == 2


def test_a_redrive_that_another_one_overtakes_sends_nothing_b024(scene: Scene) -> None:
    where = scene.reject(scene.event(b"order-1", b"bad"))
    other: list[bool] = []

    class LateReader(Consumer):
        def close(self) -> None:
            """The first redrive has looked and found nothing; now the second does its work."""
            super().close()
            other.extend(scene.redrive(where))

    def late_reader() -> Consumer:
        return opened(LateReader, reader_config(scene.settings))

    with pytest.raises(ServerError) as caught:
        redrive(scene.log, [scene.log.entry(*where)], scene.transactional, late_reader)
    assert caught.value.code == Code.FENCED
    assert other == [True]
    assert len(scene.read_all(scene.events, 1)) == 2


def test_a_misplaced_record_is_redriven_to_the_partition_of_its_key_b001(scene: Scene) -> None:
    first = scene.event(b"order-1001", b"v", partition=2)  # murmur2 of 3 partitions says 0
    where = scene.reject(first, Verdict.REFUSED, Code.WRONG_PARTITION)
    assert scene.redrive(where) == [True]
    assert scene.redrive(where) == [False]
    (again,) = scene.read_all(scene.events, 0)
    assert parts(again) == parts(first)


def test_what_did_not_fit_is_fetched_from_the_event_topic_b021(scene: Scene) -> None:
    first = scene.event(b"order-1", b"v" * 700_000)
    decision = Decision(first.offset() or 0, Verdict.POISON, Reason(Code.UNDECODABLE, "because"))
    record = encode(first, decision)
    large: Headers = [*HEADERS, ("pad", b"p" * 500_000)]
    as_if_larger = Message(
        topic=first.topic(),
        partition=first.partition(),
        offset=first.offset(),
        key=first.key(),
        value=b"v" * 700_000,
        headers=large,
        timestamp=first.timestamp(),
    )
    assert scene.log.whole(scene.log.entry(*scene.keep(record, 1))).stub is None
    where = scene.reject(as_if_larger)
    entry = scene.log.entry(*where)
    assert entry.original.stub is not None
    with pytest.raises(UsageError) as caught:
        scene.redrive(where)  # the record that stands there is not the one that was hashed
    assert caught.value.code == Code.NOT_FOUND


@pytest.mark.parametrize("verdict", [Verdict.PARKED, Verdict.CONFLICT])
def test_what_left_a_trace_in_the_state_is_not_sent_again(scene: Scene, verdict: Verdict) -> None:
    where = scene.reject(scene.event(b"order-1", b"v"), verdict, Code.REDUCER_RAISED)
    with pytest.raises(UsageError) as caught:
        scene.redrive(where)
    assert caught.value.code == Code.REDRIVE_REFUSED
    assert len(scene.read_all(scene.events, 1)) == 1


def test_activations_and_decisions_stand_on_one_log(scene: Scene) -> None:
    activate = Activate(0, 1, "f" * 32, 1, "acme", 3)
    scene.keep(encode_activate(activate), 1)
    where = scene.reject(scene.event(b"order-1", b"bad"))
    found = [read(message) for message in scene.read_all(scene.rejected, 1)]
    assert found == [activate, Decision(0, Verdict.POISON, Reason(Code.UNDECODABLE, "because"))]
    assert [(each.where.partition, each.where.offset) for each in scene.log.entries(1)] == [where]


@pytest.mark.parametrize("where", [(1, 0), (1, 10_000)])
def test_a_place_without_a_decision_is_not_found(scene: Scene, where: tuple[int, int]) -> None:
    scene.keep(encode_activate(Activate(0, 1, "f", 1, "", 3)), 1)
    with pytest.raises(UsageError) as caught:
        scene.log.entry(*where)
    assert caught.value.code == Code.NOT_FOUND
