"""The outbox: events that a service writes in its own database transactions, and their relay.

Law of this module: an event goes to Kafka if and only if the transaction that wrote it commits.
A row is deleted when Kafka has acknowledged it, so that gaps in the ids mean nothing and no
position can pass a transaction that is still open; a relay that ends between the two sends again
under the same event id, which is folded once.

Order: events of one instance go out in the order in which their transactions committed, for a
transaction that writes for an instance waits until the one before it has ended. Between instances
what is visible earlier goes out earlier. (A boundary by `pg_snapshot_xmin` would keep order too,
and would hold back every event behind any long transaction of the whole server.)
"""

from collections import deque
from collections.abc import Iterable, Sequence
from threading import Event
from time import monotonic
from typing import Any, Final, NamedTuple

import psycopg
import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from refold.executors.statements import SCHEMA, filled
from refold.schemas.errors import ServerError
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import Connection, Sessions, transaction
from refold.topics.announcing import announce
from refold.topics.clients import opened, publisher_config
from refold.topics.headers import Headers
from refold.topics.publisher import Draft, Packer, Parcel, Refused, outcome_of
from refold.topics.schema_registry import registry_of
from refold.topics.settings import Settings

_LOG = structlog.get_logger("refold.outbox")
BATCH: Final = 1_000
"""Events in one round of a relay."""
IDLE_S: Final = 0.2
"""Pause of a relay that found nothing, and of one whose place another holds."""
DELIVERY_S: Final = 20.0
"""Below the 60 s after which the server ends the idle transaction of a relay that is paused."""

_TEXT: Final = {
    "lock": "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
    "write": """
        INSERT INTO $s.workflow_outbox (topic, instance, event_id, headers, value)
        VALUES (%s, %s, %s, %s::text[], %s)""",
    "lead": "SELECT pg_try_advisory_xact_lock(hashtextextended('refold:relay:$s', 0))",
    "read": """
        SELECT o.id, o.topic, o.instance, o.event_id, o.headers, o.value
        FROM (SELECT DISTINCT topic FROM $s.workflow_outbox) t
        CROSS JOIN LATERAL (
            SELECT * FROM $s.workflow_outbox o
            WHERE o.topic = t.topic AND NOT EXISTS (
                SELECT FROM $s.workflow_outbox f
                WHERE f.topic = o.topic AND f.instance = o.instance AND f.fault <> ''
                  AND f.id <= o.id)
            ORDER BY o.id LIMIT %s) o
        ORDER BY o.id""",
    "delete": "DELETE FROM $s.workflow_outbox WHERE id = ANY (%s::bigint[])",
    "refuse": "UPDATE $s.workflow_outbox SET fault = %s WHERE id = %s",
}

_NO_REPORT: Final = "no report"


class _Row(NamedTuple):
    id: int
    topic: str
    instance: str
    event_id: str
    headers: list[str]
    value: bytes


_OF_THE_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class Outbox:
    """Writes events of one workflow into the caller's transactions.

    Args:
        settings: Names the topics; schemas, where a registry is used.
        workflow: Whose event topic they go to.
        source: CloudEvents source of every event, a URI reference as in `/shop/checkout`.
        tenant: Tenant of drafts that name none; empty: the workflow's own stands.
        schema: Where the tables of `refold ledger migrate` stand.

    Raises:
        UsageError: BAD_SETTING, the source is the engine's own or the schema cannot be one.
    """

    def __init__(
        self,
        settings: Settings,
        workflow: str,
        source: str,
        *,
        tenant: str = "",
        schema: str = SCHEMA,
    ) -> None:
        self._settings = settings
        self._workflow = workflow
        registry = registry_of(settings.schemas)
        self._packer = Packer(settings.namespace, workflow, source, tenant, registry)
        self._sql = filled(_TEXT, schema)

    def announce(self, *types: type) -> list[str]:
        """Put the schemas of event types where readers find them, as `Publisher.announce`."""
        return announce(self._settings, self._workflow, types)

    def publish(self, connection: psycopg.Connection[Any], *drafts: Draft) -> list[str]:
        """Write events: they are sent if and when the transaction of this connection commits.

        Another transaction that writes for one of the same instances waits here until this one
        has ended; write for several instances in one call, so that two cannot wait for each
        other.

        Args:
            connection: In the transaction that the events belong to.
            drafts: In the order in which they happened.

        Returns:
            The ids of the events.

        Raises:
            RecordError: A draft is wrong; nothing was written.
            psycopg.Error: As of any statement.
        """
        parcels = [self._packer.pack(each) for each in drafts]
        topic = self._packer.topic
        with connection.cursor() as cursor:
            for key in sorted({each.key for each in parcels}):
                cursor.execute(self._sql["lock"], [f"refold:outbox:{topic}:{key.decode()}"])
            for each in parcels:
                values = [topic, each.key.decode(), each.event_id, _texts(each), each.value]
                cursor.execute(self._sql["write"], values)
        return [each.event_id for each in parcels]


class Relay:
    """Sends what outboxes hold to Kafka. Several may run: one works, the others stand by.

    Args:
        settings: Where Kafka is.
        dsn: Of the service's database.
        schema: Where the tables stand.
        batch: Most events in one round.

    Contract: `run` or `once` on one thread; `stop` from any.
    """

    def __init__(
        self, settings: Settings, dsn: str, *, schema: str = SCHEMA, batch: int = BATCH
    ) -> None:
        self._sql = filled(_TEXT, schema)
        self._batch = batch
        self._runner = Runner(Sessions(dsn, f"refold:relay:{schema}"))
        self._stopping = Event()
        self._producer = opened(Producer, publisher_config(settings, int(DELIVERY_S * 1000)))

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connections."""
        self._runner.sessions.close()

    def run(self) -> None:
        """Relay until stopped; a server that is away is waited for."""
        while not self._stopping.is_set():
            try:
                sent = self.once()
            except (ServerError, KafkaException) as away:
                _LOG.warning("the outbox is not relayed yet", error=str(away))
                sent = 0
            if not sent:
                self._stopping.wait(IDLE_S)
        self.close()

    def once(self) -> int:
        """Send one round.

        Returns:
            How many events Kafka has taken; 0 also while another relay is at work.

        Raises:
            ServerError: PostgreSQL is away or refuses.
        """
        return self._runner.once("relaying the outbox", self._round)

    def _round(self, connection: Connection) -> int:
        with transaction(connection):
            led = connection.execute(self._sql["lead"]).fetchone()
            if led is None or not led[0]:
                return 0
            found = connection.execute(self._sql["read"], [self._batch], binary=True).fetchall()
            rows = [_Row(*row) for row in found]
            taken, refused = self._send(rows)
            for number, fault in refused.items():
                connection.execute(self._sql["refuse"], [fault, number])
            if taken:
                connection.execute(self._sql["delete"], [taken])
            return len(taken)

    def _send(self, rows: Sequence[_Row]) -> tuple[list[int], dict[int, str]]:
        """Give events to Kafka; says which it has, and which it will never take.

        Of an instance one after the other: the next one when Kafka has the one before it, for
        what is refused must not be overtaken.
        """
        errors: dict[int, KafkaError | None] = {}
        tried: list[_Row] = []
        lines: dict[tuple[str, str], deque[_Row]] = {}
        for row in rows:
            lines.setdefault((row.topic, row.instance), deque()).append(row)
        end_s = monotonic() + DELIVERY_S
        while lines and monotonic() < end_s:
            heads = [line.popleft() for line in lines.values()]
            for row in heads:
                self._produce(row, errors)
            self._producer.flush(DELIVERY_S + 1)
            tried += heads
            lines = {
                place: line
                for row, (place, line) in zip(heads, lines.items(), strict=True)
                if line and errors.get(row.id, _NO_REPORT) is None
            }
        return _counted(tried, errors)

    def _produce(self, row: _Row, errors: dict[int, KafkaError | None]) -> None:
        def told(error: KafkaError | None, _: Message) -> None:
            errors[row.id] = error

        headers: Headers = list(zip(row.headers[::2], row.headers[1::2], strict=True))
        while True:
            try:
                self._producer.produce(
                    row.topic, row.value, row.instance.encode(), headers=headers, on_delivery=told
                )
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as refusal:
                errors[row.id] = refusal.args[0]
                return
            else:
                return


def _counted(
    rows: Iterable[_Row], errors: dict[int, KafkaError | None]
) -> tuple[list[int], dict[int, str]]:
    """Which events were sent, and which are refused for good; each row was tried.

    Where the topic is at fault, and not the event, it is tried again until somebody has made it.
    """
    taken: list[int] = []
    refused: dict[int, str] = {}
    closed: dict[str, str] = {}
    for row in rows:
        error = errors.get(row.id, _NO_REPORT)
        if error is None:
            taken.append(row.id)
        elif isinstance(error, KafkaError) and error.code() in _OF_THE_TOPIC:
            closed[row.topic] = error.str()
        elif isinstance(error, KafkaError) and isinstance(
            outcome_of(row.event_id, error, None), Refused
        ):
            refused[row.id] = error.str()
            _LOG.error(
                "Kafka refuses an event for good: it and those behind it wait for a person",
                id=row.id, event_id=row.event_id, topic=row.topic, error=error.str(),
            )  # fmt: skip
        else:
            why = error.str() if isinstance(error, KafkaError) else error
            _LOG.warning("an event is not delivered yet", event_id=row.event_id, error=why)
    for topic, why in closed.items():
        _LOG.error("a topic takes no events: make it, or grant WRITE", topic=topic, error=why)
    return taken, refused


def _texts(parcel: Parcel) -> list[str]:
    """Headers as an array: what is written here is always UTF-8."""
    texts: list[str] = []
    for name, value in parcel.headers:
        texts += [name, value.decode() if isinstance(value, bytes) else value or ""]
    return texts
