"""The values of commands, decoded with the schema that wrote them.

Law of this module: a schema is judged unknown only after the schema topic was read to its end as
of after the record was seen (P27); while that cannot be read, nothing is judged.
"""

from threading import Lock
from typing import Any

from refold.executors.executor import Action
from refold.schemas.codec import Codec
from refold.schemas.errors import Code, RecordError
from refold.topics.clients import reader
from refold.topics.schema_topic import SchemaTopic
from refold.topics.settings import Settings


class Schemas:
    """Decodes commands; from any thread.

    Args:
        settings: Where Kafka is.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic: SchemaTopic | None = None
        self._lock = Lock()

    def decode(self, action: Action, value: bytes) -> Any:
        """The command behind the bytes.

        Raises:
            RecordError: UNDECODABLE, or SCHEMA_UNKNOWN although the schema topic was read.
            ServerError: KAFKA_AWAY: not known yet.
        """
        return self.read(action.codec, value)

    def read(self, codec: Codec[Any], value: bytes) -> Any:
        """A command or an event behind its bytes; raises as `decode`."""
        try:
            return codec.decode(value)
        except RecordError as error:
            if error.code != Code.SCHEMA_UNKNOWN:
                raise
        with self._lock:
            if self._topic is None:
                self._topic = SchemaTopic(self._settings.namespace, reader(self._settings))
            self._topic.refresh()
            self._topic.registry.teach(codec)
        return codec.decode(value)

    def close(self) -> None:
        """Close the reader."""
        with self._lock:
            if self._topic is not None:
                self._topic.close()
                self._topic = None
