"""The schemas that a worker can read: its own, and older or foreign ones from the schema topic.

Law of this module: a fingerprint is judged unknown only after the schema topic was read to its
end as of after the record was seen, an id only after the schema registry has said so (P27). Own
schemas are on the topic before the first command that is written with them. A schema that only
the registry knows is put there with its id before a record of it is folded: a replay needs the
log alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import structlog

from refold.processors.batch import Run
from refold.processors.clients import Clients
from refold.processors.definition import Workflow
from refold.processors.emission import Frame
from refold.processors.engine_events import ENGINE
from refold.schemas.codec import Codec
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import DefinitionError, RecordError, ServerError
from refold.schemas.framing import confluent_id, to_confluent
from refold.schemas.registry import known_of
from refold.topics.schema_registry import SchemaRegistry
from refold.topics.schema_topic import SchemaTopic

_LOG = structlog.get_logger("refold.vocabulary")
_FINGERPRINT: Final = slice(2, 10)
"""Where single-object encoding keeps it (Avro 1.11, "Single object encoding")."""
_NUMBER: Final = slice(0, 5)
"""Where Confluent wire format keeps its zero byte and the id."""

AGAIN_S: Final = 0.5
"""How long a schema topic that was silent is not asked again."""
LOOP_SILENT_S: Final = 5.0
"""A loop waits no longer for the schema topic: its other partitions wait with it (P11)."""

Codecs = Mapping[str, Sequence[Codec[Any]]]


class Vocabulary:
    """What the worker's codecs can read, by workflow and event type.

    Args:
        namespace: First part of the schema topic's name.
        workflows: What this worker folds.
        clients: Makes the reader; knows the schema registry, if there is one.
        silent_s: Longest silence of the schema topic that is waited out by `refresh`, in
            seconds; None where nobody else waits for it.
    """

    def __init__(
        self,
        namespace: str,
        workflows: Iterable[Workflow],
        clients: Clients,
        silent_s: float | None = None,
    ) -> None:
        self._clients = clients
        self._registry = clients.registry()
        self._namespace = namespace
        self._topic: SchemaTopic | None = None
        self._silent_s = silent_s
        self._away: tuple[float, ServerError] | None = None
        """Until when the topic is not asked again, for it was silent, and what was said then."""
        self._workflows = list(workflows)
        self._codecs: dict[str, Codecs] = {each.name: _codecs(each) for each in self._workflows}
        if self._registry is not None:
            for by_type in self._codecs.values():
                for codec in (one for each in by_type.values() for one in each):
                    codec.expect_numbers()
        self._known: dict[str, dict[str, frozenset[bytes]]] = {}
        """By workflow and type: fingerprints, and heads of ids, that all its codecs know."""
        self._numbers: dict[bytes, int] = {}
        writes = self._registry is not None and self._registry.writes
        self.frame: Frame | None = self._framed if writes else None
        """Puts a command's value into Confluent wire format; None for the default format."""
        self._count()

    def publish(self) -> None:
        """Put the schemas of all event and command types on the topic.

        Where commands are written in Confluent wire format, their schemas go to the registry too.

        Raises:
            DefinitionError: SCHEMA_COLLISION or SCHEMA_INCOMPATIBLE; or the registry's refusal.
            RecordError: SCHEMA_COLLISION, an id of the registry has stood for another schema.
            ServerError: KAFKA_AWAY, KAFKA_REFUSED or TOPIC_MISSING; REGISTRY_AWAY or
                REGISTRY_REFUSED.
        """
        producer = self._clients.publisher()
        for workflow, codecs in self._codecs.items():
            every = [one for each in codecs.values() for one in each]
            self._opened().publish(producer, every, workflow)
        if self._registry is not None and self._registry.writes:
            for workflow, codec in _commands(self._workflows):
                number = self._registry.id_of(codec.text, codec.name)
                self._opened().adopt(producer, codec.text, workflow, number)
                self._numbers[codec.fingerprint] = number
        self._learn()

    def unknown(self, workflow: str, pairs: Run) -> bool:
        """True when a record's schema is not known yet: `refresh` before folding it."""
        return next(self._strange(workflow, pairs), None) is not None

    def refresh(self, workflow: str = "", pairs: Run = ()) -> None:
        """Read the schema topic to its end as of now; ask the registry for the records' ids.

        Args:
            workflow: Whose records these are.
            pairs: Records that were seen, some of them `unknown`.

        Raises:
            ServerError: KAFKA_AWAY, REGISTRY_AWAY …: nothing may be judged unknown meanwhile.
        """
        if self._read_on():
            self._learn()
        if self._registry is not None:
            self._ask(self._registry, workflow, pairs)

    def _read_on(self) -> bool:
        """Whether the topic had something new; of several partitions one waits out its silence."""
        if self._away is not None and monotonic() < self._away[0]:
            raise self._away[1]
        try:
            return bool(self._opened().refresh(self._silent_s))
        except ServerError as error:
            self._away = monotonic() + AGAIN_S, error
            raise

    def _ask(self, registry: SchemaRegistry, workflow: str, pairs: Run) -> None:
        """Put the schemas on the topic that the ids of these records stand for."""
        asked = {
            (event.type, confluent_id(event.value))
            for event in self._strange(workflow, pairs)
            if event.value[:1] == b"\x00" and len(event.value) >= _NUMBER.stop
        }
        for name, number in sorted(asked):
            text = registry.text_of(number)
            if text is not None:
                self._adopt(workflow, name, number, text)
        if asked:
            self._learn()

    def close(self) -> None:
        """Close the reader."""
        if self._topic is not None:
            self._topic.close()

    def _strange(self, workflow: str, pairs: Run) -> Iterator[EventRecord]:
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

    def _adopt(self, workflow: str, name: str, number: int, text: str) -> None:
        try:
            found = known_of(text, workflow, 0).type
            if found == name:
                self._opened().adopt(self._clients.publisher(), text, workflow, number)
            else:
                _LOG.error("an id is of another type", type=name, id=number, stands_for=found)
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


def _commands(workflows: Iterable[Workflow]) -> Iterator[tuple[str, Codec[Any]]]:
    for workflow in workflows:
        for definition in workflow.versions.values():
            yield from ((workflow.name, each.codec) for each in definition.commands.values())


def _codecs(workflow: Workflow) -> Codecs:
    """Codecs by type name: of every version's events and commands, and the engine's own."""
    found: dict[str, dict[int, Codec[Any]]] = {}
    for definition in workflow.versions.values():
        commands = [each.codec for each in definition.commands.values()]
        for codec in (*definition.events.values(), *commands, *ENGINE.values()):
            found.setdefault(codec.name, {})[id(codec)] = codec
    return {name: list(codecs.values()) for name, codecs in found.items()}
