"""The schemas that a worker can read: its own, and older or foreign ones from the schema topic.

Law of this module: a fingerprint is judged unknown only after the schema topic was read to its
end as of after the record was seen (P27). Own schemas are on the topic before the first command
that is written with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from confluent_kafka import Message

from refold.processors.clients import Clients
from refold.processors.definition import Workflow
from refold.processors.engine_events import REDRIVE, TERMINATE
from refold.schemas.codec import Codec
from refold.schemas.envelope import EventRecord
from refold.topics.records import Fault
from refold.topics.schema_topic import SchemaTopic

_LOG = structlog.get_logger("refold.vocabulary")
_FINGERPRINT: Final = slice(2, 10)
"""Where single-object encoding keeps it (Avro 1.11, "Single object encoding")."""

Pairs = Sequence[tuple[Message, EventRecord | Fault]]


class Vocabulary:
    """What the worker's codecs can read, by workflow and event type.

    Args:
        namespace: First part of the schema topic's name.
        workflows: What this worker folds.
        clients: Makes the reader.
    """

    def __init__(self, namespace: str, workflows: Iterable[Workflow], clients: Clients) -> None:
        self._clients = clients
        self._namespace = namespace
        self._topic: SchemaTopic | None = None
        self._codecs = {each.name: _codecs(each) for each in workflows}
        self._known: dict[str, dict[str, frozenset[bytes]]] = {}
        self._count()

    def publish(self) -> None:
        """Put the schemas of all event and command types on the topic.

        Raises:
            DefinitionError: SCHEMA_COLLISION or SCHEMA_INCOMPATIBLE.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING.
        """
        producer = self._clients.publisher()
        for workflow, codecs in self._codecs.items():
            every = [one for each in codecs.values() for one in each]
            self._opened().publish(producer, every, workflow)
        self._learn()

    def unknown(self, workflow: str, pairs: Pairs) -> bool:
        """True when a record's schema is not known yet: `refresh` before folding it."""
        known = self._known[workflow]
        for _, event in pairs:
            if type(event) is EventRecord:
                fingerprints = known.get(event.type)
                if fingerprints is not None and event.value[_FINGERPRINT] not in fingerprints:
                    return True
        return False

    def refresh(self) -> None:
        """Read the schema topic to its end as of now.

        Raises:
            ServerError: KAFKA_AWAY: nothing may be judged unknown meanwhile.
        """
        if self._opened().refresh():
            self._learn()

    def close(self) -> None:
        """Close the reader."""
        if self._topic is not None:
            self._topic.close()

    def _opened(self) -> SchemaTopic:
        if self._topic is None:
            self._topic = SchemaTopic(self._namespace, self._clients.reader())
        return self._topic

    def _learn(self) -> None:
        for by_type in self._codecs.values():
            for codec in (one for each in by_type.values() for one in each):
                for error in self._opened().registry.teach(codec):
                    _LOG.error("a schema cannot be read", type=codec.name, error=str(error))
        self._count()

    def _count(self) -> None:
        self._known = {
            workflow: {
                name: frozenset.intersection(*(frozenset(one.writers) for one in codecs))
                for name, codecs in by_type.items()
            }
            for workflow, by_type in self._codecs.items()
        }


def _codecs(workflow: Workflow) -> Mapping[str, Sequence[Codec[Any]]]:
    """Codecs by type name: of every version's events and commands, and the engine's own."""
    found: dict[str, dict[int, Codec[Any]]] = {}
    for definition in workflow.versions.values():
        commands = [each.codec for each in definition.commands.values()]
        for codec in (*definition.events.values(), *commands, REDRIVE, TERMINATE):
            found.setdefault(codec.name, {})[id(codec)] = codec
    return {name: list(codecs.values()) for name, codecs in found.items()}
