"""The schemas that a worker can read: its own, and older or foreign ones from the schema topic.

Law of this module: a fingerprint is judged unknown only after the schema topic was read to its
end as of after the record was seen, an id only after the schema registry has said so (P27). Own
schemas are on the topic before the first command that is written with them; one that only the
registry knows is put there before it is folded with, so that it has its sequence for ever.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import structlog
from confluent_kafka import Message

from refold.processors.clients import Clients
from refold.processors.definition import Workflow
from refold.processors.emission import Frame
from refold.processors.engine_events import REDRIVE, TERMINATE
from refold.schemas.codec import Codec
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import DefinitionError, RecordError
from refold.schemas.framing import confluent_id, to_confluent
from refold.schemas.registry import known_of
from refold.topics.records import Fault
from refold.topics.schema_topic import SchemaTopic

_LOG = structlog.get_logger("refold.vocabulary")
_FINGERPRINT: Final = slice(2, 10)
"""Where single-object encoding keeps it (Avro 1.11, "Single object encoding")."""
_NUMBER: Final = slice(0, 5)
"""Where Confluent wire format keeps its zero byte and the id."""

Pairs = Sequence[tuple[Message, EventRecord | Fault]]
Codecs = Mapping[str, Sequence[Codec[Any]]]


class Vocabulary:
    """What the worker's codecs can read, by workflow and event type.

    Args:
        namespace: First part of the schema topic's name.
        workflows: What this worker folds.
        clients: Makes the reader; knows the schema registry, if there is one.
        silent: True in a replay: nothing is written, foreign schemas neither.
    """

    def __init__(
        self,
        namespace: str,
        workflows: Iterable[Workflow],
        clients: Clients,
        *,
        silent: bool = False,
    ) -> None:
        self._clients = clients
        self._registry = clients.registry()
        self._namespace = namespace
        self._silent = silent
        self._topic: SchemaTopic | None = None
        self._codecs: dict[str, Codecs] = {each.name: _codecs(each) for each in workflows}
        self._known: dict[str, dict[str, frozenset[bytes]]] = {}
        """By workflow and type: fingerprints, and heads of ids, that all its codecs know."""
        self._numbers: dict[bytes, int] = {}
        self.frame: Frame | None = None if self._registry is None else self._framed
        """Puts a command's value into Confluent wire format; None for the default format."""
        self._count()

    def publish(self) -> None:
        """Put the schemas of all event and command types on the topic, and into the registry.

        Raises:
            DefinitionError: SCHEMA_COLLISION or SCHEMA_INCOMPATIBLE; or the registry's refusal.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING; REGISTRY_AWAY or
                REGISTRY_REFUSED.
        """
        producer = self._clients.publisher()
        for workflow, codecs in self._codecs.items():
            every = [one for each in codecs.values() for one in each]
            self._opened().publish(producer, every, workflow)
            if self._registry is not None:
                for codec in every:
                    number = self._registry.id_of(codec.text, codec.name)
                    self._numbers[codec.fingerprint] = number
        self._learn()

    def unknown(self, workflow: str, pairs: Pairs) -> bool:
        """True when a record's schema is not known yet: `refresh` before folding it."""
        return next(self._strange(workflow, pairs), None) is not None

    def refresh(self, workflow: str = "", pairs: Pairs = ()) -> None:
        """Read the schema topic to its end as of now; ask the registry for the records' ids.

        Args:
            workflow: Whose records these are.
            pairs: Records that were seen, some of them `unknown`.

        Raises:
            ServerError: KAFKA_AWAY, REGISTRY_AWAY …: nothing may be judged unknown meanwhile.
        """
        if self._opened().refresh():
            self._learn()
        self.number(workflow, pairs)

    def number(self, workflow: str, pairs: Pairs) -> None:
        """Ask the registry, where there is one, which schemas the ids of these records stand for.

        Raises:
            ServerError: REGISTRY_AWAY or REGISTRY_REFUSED; and as `refresh`.
        """
        if self._registry is None:
            return
        asked = {
            (event.type, confluent_id(event.value))
            for event in self._strange(workflow, pairs)
            if event.value[:1] == b"\x00" and len(event.value) >= _NUMBER.stop
        }
        for name, number in sorted(asked):
            text = self._registry.text_of(number)
            if text is not None:
                self._enter(workflow, name, number, text)
        if asked:
            self._count()

    def close(self) -> None:
        """Close the reader."""
        if self._topic is not None:
            self._topic.close()

    def _strange(self, workflow: str, pairs: Pairs) -> Iterator[EventRecord]:
        known = self._known.get(workflow, {})
        for _, event in pairs:
            if type(event) is EventRecord:
                heads, value = known.get(event.type), event.value
                if (
                    heads is not None
                    and value[_FINGERPRINT] not in heads
                    and value[_NUMBER] not in heads
                ):
                    yield event

    def _enter(self, workflow: str, name: str, number: int, text: str) -> None:
        """Let a type's codecs know an id of the registry."""
        try:
            known = known_of(text, workflow, 0)
            if known.type == name and not self._silent:
                self._opened().adopt(self._clients.publisher(), text, workflow)
            for codec in self._codecs[workflow][name]:
                self._opened().registry.teach(codec)
                if known.fingerprint not in codec.writers:
                    codec.add_writer(text)
                codec.add_number(number, known.fingerprint)
        except (DefinitionError, RecordError) as error:
            _LOG.error("a schema cannot be read", type=name, id=number, error=str(error))

    def _framed(self, value: bytes) -> bytes:
        return to_confluent(value, self._numbers[value[_FINGERPRINT]])

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
                name: frozenset.intersection(*(one.heads for one in codecs))
                for name, codecs in by_type.items()
            }
            for workflow, by_type in self._codecs.items()
        }


def _codecs(workflow: Workflow) -> Codecs:
    """Codecs by type name: of every version's events and commands, and the engine's own."""
    found: dict[str, dict[int, Codec[Any]]] = {}
    for definition in workflow.versions.values():
        commands = [each.codec for each in definition.commands.values()]
        for codec in (*definition.events.values(), *commands, REDRIVE, TERMINATE):
            found.setdefault(codec.name, {})[id(codec)] = codec
    return {name: list(codecs.values()) for name, codecs in found.items()}
