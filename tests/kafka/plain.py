"""A service without refold: confluent-kafka, fastavro and hashlib, by docs/wire.md alone.

It publishes an event, and as an executor it does commands once each and answers with events.
"""

import io
import json
from hashlib import blake2b
from typing import Any

import fastavro
import fastavro.schema
from confluent_kafka import Consumer, Producer

MARKER = b"\xc3\x01"
ORDER_PLACED = {
    "type": "record",
    "name": "OrderPlaced",
    "doc": "What the shop sends; docs and key order are its own business.",
    "fields": [
        {"name": "items", "type": {"type": "array", "items": "string"}},
        {"name": "total", "type": "long"},
    ],
}
CHARGED = {
    "type": "record",
    "name": "Charged",
    "fields": [{"name": "receipt", "type": "string"}],
}


def fingerprint(schema: Any) -> bytes:
    form = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))


def encode(schema: Any, value: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, value)
    return MARKER + fingerprint(schema) + body.getvalue()


def decode(value: bytes, schemas: dict[bytes, Any]) -> Any:
    assert value[:2] == MARKER
    return fastavro.schemaless_reader(io.BytesIO(value[10:]), schemas[value[2:10]], None)


def derived_id(kind: str, *parts: str) -> str:
    body = b"".join(b"%d:%b" % (len(part.encode()), part.encode()) for part in parts)
    return f"{kind}-{blake2b(body, digest_size=16).hexdigest()}"


class Service:
    """One producer; `reads` makes consumers that see committed records only."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "acks": "all",
            }
        )

    def publish(
        self,
        topic: str,
        instance: str,
        tenant: str,
        event_id: str,
        source: str,
        schema: dict[str, Any],
        value: dict[str, Any],
    ) -> None:
        headers: dict[str, str | bytes | None] = {
            "ce_specversion": "1.0",
            "ce_id": event_id,
            "ce_source": source,
            "ce_type": schema["name"],
            "ce_tenant": tenant,
            "content-type": "application/avro",
        }
        failures: list[object] = []
        self.producer.produce(
            topic,
            encode(schema, value),
            instance.encode(),
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        assert self.producer.flush(20) == 0
        assert not failures

    def reads(self, topic: str, group: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        return consumer

    def schemas(self, topic: str, wanted: int) -> dict[bytes, Any]:
        """Schemas by fingerprint, from the schema topic; the first one counts."""
        consumer = self.reads(topic, "plain-schemas")
        found: dict[bytes, Any] = {}
        while len(found) < wanted:
            message = consumer.poll(20)
            assert message is not None, "too few schemas"
            if message.error() is None:
                schema = json.loads(message.value() or b"")
                found.setdefault(fingerprint(schema), schema)
        consumer.close()
        return found


class Executor:
    """Charges once for each idempotency key, and answers on the reply topic."""

    def __init__(self, service: Service, schemas: dict[bytes, Any]) -> None:
        self.service = service
        self.schemas = schemas
        self.effects: dict[str, Any] = {}
        self.seen: list[str] = []

    def run(self, topic: str, count: int) -> None:
        consumer = self.service.reads(topic, "plain-executor")
        done = 0
        while done < count:
            message = consumer.poll(20)
            assert message is not None, "too few commands"
            if message.error() is not None:
                continue
            pairs: Any = message.headers()
            headers: dict[str, str] = {name: value.decode() for name, value in pairs}
            key = headers["idempotency-key"]
            self.seen.append(key)
            if key not in self.effects:
                self.effects[key] = decode(message.value() or b"", self.schemas)
            self.service.publish(
                headers["ce_replyto"],
                (message.key() or b"").decode(),
                headers["ce_tenant"],
                derived_id("result", key, "succeeded"),
                "/payments",
                CHARGED,
                {"receipt": f"receipt of {self.effects[key]['amount']}"},
            )
            consumer.commit(message=message, asynchronous=False)
            done += 1
        consumer.close()
