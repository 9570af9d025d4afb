"""Putting schemas on the schema topic before the first value that is written with them.

Law of this module: a schema that stands is left; one that could not read what older ones wrote is
refused, and nothing is written. Deployments do the same with `refold topics create`; a service
whose types are newer than the deployment does it here.
"""

from collections.abc import Iterable

from confluent_kafka import Producer

from refold.schemas.codec import Codec, codec_of
from refold.topics.clients import opened, publisher_config, reader
from refold.topics.schema_registry import registry_of
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings


def announce(settings: Settings, workflow: str, types: Iterable[type]) -> list[str]:
    """Put the schemas of event types on the schema topic, and into the registry if there is one.

    Args:
        settings: Where Kafka is. The service may READ and WRITE `<ns>.schemas` (docs/security.md).
        workflow: Whose events they are.
        types: Event types; those whose schema stands already are left.

    Returns:
        Names of the types whose schema is new.

    Raises:
        DefinitionError: SCHEMA_INCOMPATIBLE, SCHEMA_COLLISION or SCHEMA_INVALID.
        ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING; REGISTRY_AWAY or REGISTRY_REFUSED.
    """
    codecs: list[Codec[object]] = [codec_of(each) for each in types]
    topic = SchemaTopic(settings.namespace, reader(settings))
    try:
        producer = opened(Producer, publisher_config(settings))
        new = topic.publish(producer, codecs, workflow)
    finally:
        topic.close()
    registry = registry_of(settings.schemas)
    if registry is not None and registry.writes:
        for codec in codecs:
            registry.id_of(codec.text, codec.name)
    return [known.type for known in new]
