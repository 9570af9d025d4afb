"""The test bench itself: real servers, ready when a test gets them, shared, not mixed (B058)."""

from collections.abc import Callable

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from refold.local.probe import probe_kafka, probe_postgres
from refold.testing.servers import Kafka, Postgres


@pytest.mark.kafka
def test_the_broker_is_ready_for_transactions_when_a_test_gets_it(kafka: Kafka) -> None:
    probe_kafka(kafka.bootstrap)


@pytest.mark.kafka
def test_a_mistyped_topic_is_not_made(kafka: Kafka, unique: Callable[[str], str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.list_topics(unique("nobody-made-me"), timeout=10)
    assert unique("nobody-made-me") not in admin.list_topics(timeout=10).topics


@pytest.mark.postgres
def test_the_database_server_takes_writes_when_a_test_gets_it(postgres: Postgres) -> None:
    probe_postgres(postgres.dsn)


@pytest.mark.postgres
def test_every_test_gets_an_empty_database_of_its_own(database: str, postgres: Postgres) -> None:
    other = postgres.new_database()
    with psycopg.connect(database) as here, psycopg.connect(other) as there:
        here.execute("CREATE TABLE t (i int)")
        here.commit()
        assert there.execute("SELECT to_regclass('t')").fetchone() == (None,)
    postgres.drop_database(other)


def test_unique_names_differ_only_between_tests(unique: Callable[[str], str]) -> None:
    assert unique("orders") == unique("orders")
    assert unique("orders") != unique("payments")
