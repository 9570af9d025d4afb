"""A service puts the schemas of its types where every reader finds them."""

import asyncio

import pytest
from tests.kafka.conftest import Read

from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, DefinitionError, ServerError
from refold.schemas.types import Event
from refold.topics.async_publisher import AsyncPublisher
from refold.topics.clients import reader
from refold.topics.publisher import Publisher
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings

pytestmark = pytest.mark.kafka


class Weighed(Event):
    grams: int


def weighed_otherwise() -> type:
    class Weighed(Event):
        grams: str

    return Weighed


def known(settings: Settings, kind: type) -> bool:
    topic = SchemaTopic(settings.namespace, reader(settings))
    try:
        return topic.find(codec_of(kind).fingerprint) is not None
    finally:
        topic.close()


def test_an_announced_type_is_found_by_everybody_and_written_once(
    shop: Settings, read_all: Read
) -> None:
    with Publisher(shop, "order", "/scales", tenant="acme") as publisher:
        assert publisher.announce(Weighed) == ["Weighed"]
        assert publisher.announce(Weighed) == []
    assert known(shop, Weighed)
    assert len(read_all(f"{shop.namespace}.schemas", 0)) == 1


def test_a_type_that_cannot_read_what_was_written_is_refused_and_not_announced(
    shop: Settings, read_all: Read
) -> None:
    other = weighed_otherwise()
    with Publisher(shop, "order", "/scales", tenant="acme") as publisher:
        publisher.announce(Weighed)
        with pytest.raises(DefinitionError) as caught:
            publisher.announce(other)
    assert caught.value.code == Code.SCHEMA_INCOMPATIBLE
    assert len(read_all(f"{shop.namespace}.schemas", 0)) == 1


def test_coroutines_announce_too(shop: Settings) -> None:
    async def announce() -> list[str]:
        async with AsyncPublisher(shop, "order", "/scales", tenant="acme") as publisher:
            return await publisher.announce(Weighed)

    assert asyncio.run(announce()) == ["Weighed"]
    assert known(shop, Weighed)


def test_without_a_schema_topic_the_error_names_it(settings: Settings) -> None:
    with (
        Publisher(settings, "order", "/scales", tenant="acme") as publisher,
        pytest.raises(ServerError) as caught,
    ):
        publisher.announce(Weighed)
    assert caught.value.code == Code.TOPIC_MISSING
    assert f"{settings.namespace}.schemas" in str(caught.value)
