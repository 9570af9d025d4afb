"""What proves that a server of the pair does its work, not only that it listens.

Law of this module: each probe is one bounded round trip through everything that refold uses:
for Kafka a transaction, its read back and a group's offsets; for PostgreSQL a committed write.
"""

import uuid
from typing import Final

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PROBE_TOPIC: Final = "refold.local.probe"
ROUND_TRIP_S: Final = 10.0
"""For each step; the caller repeats a failed probe until its own time is over."""


def probe_kafka(bootstrap: str) -> None:
    """Produce and commit offsets in one transaction, then read the record back.

    Raises:
        KafkaException: When a step failed or took too long.
    """
    _ensure_topic(bootstrap)
    mark = uuid.uuid4().hex
    consumer = Consumer(
        {
            **_client(bootstrap),
            "group.id": PROBE_TOPIC,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        offset = _produce_in_transaction(bootstrap, mark, consumer)
        consumer.assign([TopicPartition(PROBE_TOPIC, 0, offset)])
        message = consumer.poll(ROUND_TRIP_S)
        if message is None or message.value() != mark.encode():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the probe was not read back"))
    finally:
        consumer.close()


def _produce_in_transaction(bootstrap: str, mark: str, consumer: Consumer) -> int:
    producer = Producer(
        {
            **_client(bootstrap),
            "transactional.id": PROBE_TOPIC,
            "transaction.timeout.ms": int(ROUND_TRIP_S * 1000),
        }
    )
    producer.init_transactions(ROUND_TRIP_S)
    producer.begin_transaction()
    _, before = consumer.get_watermark_offsets(TopicPartition(PROBE_TOPIC, 0), ROUND_TRIP_S)
    producer.produce(PROBE_TOPIC, mark, partition=0)
    producer.send_offsets_to_transaction(
        [TopicPartition(PROBE_TOPIC, 0, before)], consumer.consumer_group_metadata(), ROUND_TRIP_S
    )
    producer.commit_transaction(ROUND_TRIP_S)
    return before


def _ensure_topic(bootstrap: str) -> None:
    topic = NewTopic(PROBE_TOPIC, 1, 1, config={"retention.ms": "600000"})
    admin = AdminClient(_client(bootstrap))  # its futures die with it
    created = admin.create_topics([topic], request_timeout=ROUND_TRIP_S)
    try:
        created[PROBE_TOPIC].result(ROUND_TRIP_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _client(bootstrap: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,  # while a server starts, refused connections are no news
        "socket.connection.setup.timeout.ms": 2000,
        "reconnect.backoff.max.ms": 200,
    }


def postgres_version(dsn: str) -> str:
    """The server's version, such as `18.6`."""
    with psycopg.connect(dsn, connect_timeout=int(ROUND_TRIP_S)) as connection:
        return str(connection.info.parameter_status("server_version"))


def probe_postgres(dsn: str) -> None:
    """Ask for one row and commit a write.

    Raises:
        psycopg.Error: When the server is not there or cannot write.
    """
    with psycopg.connect(dsn, connect_timeout=int(ROUND_TRIP_S)) as connection:
        connection.execute("SELECT 1")
        connection.execute("CREATE SCHEMA IF NOT EXISTS refold_probe")
        connection.execute("CREATE TABLE IF NOT EXISTS refold_probe.probe (at timestamptz)")
        connection.execute("DELETE FROM refold_probe.probe")
        connection.execute("INSERT INTO refold_probe.probe VALUES (now())")
