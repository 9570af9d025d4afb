"""The outbox on real servers: what a transaction wrote is sent, in order, and nothing else is."""

import random
from collections.abc import Iterator
from threading import Thread

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.kafka.worker.stage import Stage, header

from refold.examples.order.graph import OrderPlaced
from refold.executors.migrate import migrate_ledger
from refold.executors.outbox import Outbox, Relay
from refold.schemas.errors import RecordError, ServerError
from refold.topics.publisher import Draft
from refold.topics.settings import Kafka, Settings

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


def settings_of(stage: Stage) -> Settings:
    return Settings(namespace=stage.namespace, kafka=Kafka(bootstrap=stage.bootstrap))


@pytest.fixture
def outbox(one: Stage) -> Outbox:
    migrate_ledger(one.dsn)
    return Outbox(settings_of(one), "order", "/shop/checkout", tenant="acme")


@pytest.fixture
def relay(one: Stage) -> Iterator[Relay]:
    found = Relay(settings_of(one), one.dsn)
    yield found
    found.close()


def draft(number: int, instance: str = "o-1") -> Draft:
    return Draft(instance=instance, event=OrderPlaced((f"book {number}",), 100), id=f"e{number}")


def sent(stage: Stage) -> list[str]:
    """Event ids on the log, in its order."""
    return [header(each, "ce_id") for each in stage.committed("events")]


def left(stage: Stage) -> int:
    with psycopg.connect(stage.dsn) as connection:
        row = connection.execute("SELECT count(*) FROM refold_ledger.workflow_outbox").fetchone()
    assert row is not None
    return int(row[0])


def test_an_event_is_sent_if_its_transaction_commits_and_only_then(
    one: Stage, outbox: Outbox, relay: Relay
) -> None:
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, draft(1))
        assert relay.once() == 0
        connection.rollback()
        assert outbox.publish(connection, draft(2)) == ["e2"]
        connection.commit()
    assert relay.once() == 1
    assert relay.once() == 0
    assert sent(one) == ["e2"]


def test_a_wrong_event_writes_nothing(one: Stage, outbox: Outbox) -> None:
    with psycopg.connect(one.dsn) as connection:
        with pytest.raises(RecordError):
            outbox.publish(connection, draft(1), Draft(instance="", event=draft(1).event, id="e"))
        connection.commit()
    assert left(one) == 0


def test_what_commits_late_is_neither_lost_nor_does_it_hold_others_back(
    one: Stage, outbox: Outbox, relay: Relay
) -> None:
    with psycopg.connect(one.dsn) as slow, psycopg.connect(one.dsn) as quick:
        outbox.publish(slow, draft(1, "o-1"))
        outbox.publish(quick, draft(2, "o-2"))
        quick.commit()
        assert relay.once() == 1
        slow.commit()
        assert relay.once() == 1
    assert sent(one) == ["e2", "e1"]


def test_events_of_one_instance_go_out_in_the_order_of_commits(
    one: Stage, outbox: Outbox, relay: Relay
) -> None:
    with psycopg.connect(one.dsn) as first, psycopg.connect(one.dsn) as second:
        second.execute("CREATE TABLE early (n int)")  # its transaction id is the lower one
        second.commit()
        second.execute("INSERT INTO early VALUES (1)")
        outbox.publish(first, draft(1))

        def wait() -> None:
            outbox.publish(second, draft(2))
            second.commit()

        waiting = Thread(target=wait)
        waiting.start()
        while not _waits_for_a_lock(one.dsn):
            assert waiting.is_alive()
        assert relay.once() == 0
        outbox.publish(first, draft(3))
        first.commit()
        waiting.join(30)
    assert relay.once() == 3
    assert sent(one) == ["e1", "e3", "e2"]


def _waits_for_a_lock(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        ).fetchone()
    return row is not None and row[0] > 0


def test_a_relay_that_ends_between_send_and_mark_sends_again_under_the_same_id(
    one: Stage, outbox: Outbox, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, draft(1), draft(2))
    send = relay._send

    def die_after_sending(rows: list[object]) -> object:
        told = send(rows)  # type: ignore[arg-type]
        with psycopg.connect(one.dsn, autocommit=True) as killer:
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'refold:relay:%' AND datname = current_database()"
            )
        return told

    monkeypatch.setattr(relay, "_send", die_after_sending)
    with pytest.raises(ServerError):
        relay.once()
    monkeypatch.undo()
    assert left(one) == 2
    assert relay.once() == 2
    assert sent(one) == ["e1", "e2", "e1", "e2"]


def test_of_several_relays_one_works_and_another_takes_over(
    one: Stage, outbox: Outbox, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Relay(settings_of(one), one.dsn)
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, *map(draft, range(1, 8)))
    send, beside = relay._send, []

    def meanwhile(rows: list[object]) -> object:
        beside.append(other.once())
        return send(rows)  # type: ignore[arg-type]

    monkeypatch.setattr(relay, "_send", meanwhile)
    assert relay.once() == 7
    assert beside == [0]
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, draft(8))
    assert other.once() == 1
    assert sent(one) == [f"e{number}" for number in range(1, 9)]
    other.close()


def test_an_event_that_kafka_refuses_for_good_holds_back_its_own_instance_only(
    one: Stage, outbox: Outbox, relay: Relay
) -> None:
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, draft(1, "o-1"), draft(2, "o-1"), draft(3, "o-2"))
        connection.execute(
            "UPDATE refold_ledger.workflow_outbox SET value = %s WHERE event_id = 'e1'",
            [bytes(4_000_000)],
        )
    assert relay.once() == 1
    assert relay.once() == 0
    assert sent(one) == ["e3"]
    with psycopg.connect(one.dsn) as connection:
        fault = connection.execute(
            "SELECT fault FROM refold_ledger.workflow_outbox WHERE event_id = 'e1'"
        ).fetchone()
        assert fault is not None
        assert "too large" in fault[0]
        connection.execute("DELETE FROM refold_ledger.workflow_outbox WHERE event_id = 'e1'")
    assert relay.once() == 1
    assert sent(one) == ["e3", "e2"]


def test_what_the_broker_refuses_later_is_not_overtaken_by_what_follows_it(
    one: Stage, outbox: Outbox, relay: Relay
) -> None:
    limit(one, "events", 2_000)
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, draft(1), draft(2), draft(3), draft(4, "o-2"))
        connection.execute(
            "UPDATE refold_ledger.workflow_outbox SET value = %s WHERE event_id = 'e2'",
            [random.Random(1).randbytes(100_000)],  # the client would take it
        )
    while relay.once():
        pass
    assert sorted(sent(one)) == ["e1", "e4"]
    limit(one, "events", 1_000_000)
    with psycopg.connect(one.dsn) as connection:  # somebody has mended it
        connection.execute("UPDATE refold_ledger.workflow_outbox SET fault = ''")
    while relay.once():
        pass
    assert [each for each in sent(one) if each != "e4"] == ["e1", "e2", "e3"]


def limit(stage: Stage, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    name = f"{stage.namespace}.order.{topic}"
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def test_a_topic_that_takes_nothing_holds_up_no_other(
    one: Stage, outbox: Outbox, relay: Relay
) -> None:
    with psycopg.connect(one.dsn) as connection:
        connection.execute(
            "INSERT INTO refold_ledger.workflow_outbox (topic, instance, event_id, headers, value)"
            " SELECT 'gone.nowhere.events', 'x' || n, 'x' || n, '{}', 'x'"
            " FROM generate_series(1, 1100) AS n"
        )
        outbox.publish(connection, draft(1))
    assert relay.once() == 1
    assert sent(one) == ["e1"]
    with psycopg.connect(one.dsn) as connection:  # none is refused for good: a topic can be made
        faults = connection.execute(
            "SELECT count(*) FILTER (WHERE fault = ''), count(*) FROM refold_ledger.workflow_outbox"
        ).fetchone()
    assert faults == (1100, 1100)


def test_a_relay_runs_until_it_is_stopped(one: Stage, outbox: Outbox) -> None:
    relay = Relay(settings_of(one), one.dsn)
    running = Thread(target=relay.run, daemon=True)
    running.start()
    with psycopg.connect(one.dsn) as connection:
        outbox.publish(connection, draft(1))
    one.until(lambda: left(one) == 0, "the event to be sent")
    relay.stop()
    running.join(30)
    assert not running.is_alive()
    assert sent(one) == ["e1"]
