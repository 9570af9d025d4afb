"""docs/restore.md and docs/upgrade.md, step by step, on real servers."""

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from tests.crash.scene import Outcome, Scene, inputs, scene
from tests.running import running

from refold import ANY, Late, StateGraph
from refold.examples.order.graph import (
    Charge,
    Charged,
    ChargeDeclined,
    Order,
    OrderPlaced,
    Reserve,
    Reserved,
    charged,
    order,
    placed,
)
from refold.processors.definition import Workflow
from refold.processors.partition import Phase
from refold.processors.worker import Worker
from refold.schemas.codec import codec_of
from refold.snapshots.migrate import migrate
from refold.snapshots.preflight import findings
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.testing.servers import Kafka, Postgres
from refold.topics.records import event_headers

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

FEE = 1


def second_version() -> StateGraph[Order]:
    """The order again, with a fee on what is charged."""
    graph = StateGraph("order", version=2, context=Order, initial="new")
    graph.on("new", OrderPlaced, to="reserving")(placed)
    graph.on("charging", Charged, to="done")(charged)
    graph.enter("reserving", send=lambda ctx, _: Reserve(items=ctx.items))
    graph.on("reserving", Reserved, to="charging")
    graph.enter("charging", send=lambda ctx, _: Charge(amount=ctx.total + FEE))
    graph.on("charging", ChargeDeclined, to="failed")
    graph.already(("charging",), Reserved)
    graph.final("done", late={Charged: Late.ALREADY, ANY: Late.RECORD})
    graph.final("failed", late={ANY: Late.REFUSE})
    return graph


OLD = Workflow("order", [order])
BOTH = Workflow("order", [order, second_version()])


def folded(run: Scene) -> Outcome:
    """One worker for as long as there is something to fold, and what is there then."""
    worker = run.worker()
    run.until_folded()
    run.stop(worker)
    return run.outcome()


def backup_of(postgres: Postgres, dsn: str) -> str:
    """A copy of a database that nobody uses, as a backup is one."""
    name = str(conninfo_to_dict(dsn)["dbname"])
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(f"{name}_backup"), sql.Identifier(name)
            )
        )
    return postgres.dsn_of(f"{name}_backup")


def test_a_database_of_yesterday_is_folded_up_to_today_and_nothing_is_sent_twice(
    kafka: Kafka, postgres: Postgres, database: str
) -> None:
    with scene(kafka.bootstrap, database) as run:
        run.publish(0.0, 0.5)
        folded(run)
        backup = backup_of(postgres, database)
        try:
            run.publish(0.5, 1.0)
            today = folded(run)
            assert set(today.commands.values()) == {1}

            run.dsn = backup
            yesterday = run.outcome()
            assert sum(yesterday.markers) < sum(today.markers)
            assert findings(backup) == []
            assert folded(run) == today, run.logs()
        finally:
            postgres.drop_database(backup)


def test_an_emptied_database_is_made_again_from_the_log(
    kafka: Kafka, postgres: Postgres, database: str
) -> None:
    with scene(kafka.bootstrap, database) as run:
        run.publish()
        today = folded(run)
        empty = postgres.new_database()
        try:
            migrate(empty)
            assert findings(empty) == []
            run.dsn = empty
            assert folded(run) == today, run.logs()
        finally:
            postgres.drop_database(empty)


def versions(run: Scene) -> dict[str, int]:
    """Instance → version of the definition that it is folded by."""
    with psycopg.connect(run.dsn) as connection:
        rows = connection.execute(
            "SELECT DISTINCT instance_id, definition FROM refold.workflow_snapshot"
        ).fetchall()
    assert len(rows) == len({instance for instance, _ in rows}), "an instance changed its version"
    return dict(rows)


def owned(worker: Worker) -> int:
    """Partitions that a worker folds live."""
    return sum(each.phase == Phase.LIVE for each in worker.health.status.partitions)


def test_new_instances_begin_with_version_2_and_old_ones_end_with_version_1(
    kafka: Kafka, database: str
) -> None:
    third = 40 / len(inputs(1))  # of 120 orders, placed one after the other
    with scene(kafka.bootstrap, database) as run:
        with running(run, workflow=OLD) as old:
            run.publish(0, third)
            run.until_folded()
            with running(run, workflow=BOTH) as new:
                run.until(lambda: owned(old) == 1 and owned(new) == 1, "both at work")
                run.publish(third, 2 * third)
                run.until_folded()
        with running(run, workflow=BOTH):
            run.publish(2 * third, 1.0)
            run.until_folded()

        found, came = versions(run), run.outcome()
        assert {found[f"order-{number}"] for number in range(40)} == {1}
        assert {found[f"order-{number}"] for number in range(40, 80)} == {1, 2}
        assert {found[f"order-{number}"] for number in range(80, 120)} == {2}
        assert states_of(came) == {
            f"order-{number}": "done" if number % 4 else "failed" for number in range(120)
        }
        assert commands_of(came) == expected_of(found)
        assert set(came.commands.values()) == {1}


def states_of(outcome: Outcome) -> dict[str, str]:
    """Instance → state."""
    return {instance: state for instance, (state, _, _) in outcome.states.items()}


def commands_of(outcome: Outcome) -> set[tuple[str, str]]:
    """Key and value of every command."""
    keys = (line.rpartition(" ") for line in outcome.commands)
    return {(key.strip(), value) for key, _, value in keys}


def expected_of(found: dict[str, int]) -> set[tuple[str, str]]:
    """Every order reserves and charges, at the price of its version, under the same keys."""
    reserve = codec_of(Reserve).encode(Reserve(items=("pen", "ink"))).hex()
    commands = set()
    for instance, version in found.items():
        number = instance.removeprefix("order-")
        amount = int(number) + (FEE if version == 2 else 0)
        charge = codec_of(Charge).encode(Charge(amount=amount)).hex()
        start = f"r1:acme:order:{instance}"
        commands.add((f"{start}:reserving:Reserve:%2Fshop%1Fplaced-{number}:forward", reserve))
        commands.add((f"{start}:charging:Charge:%2Fshop%1Freserved-{number}:forward", charge))
    return commands


def test_a_worker_that_lacks_version_2_fences_and_the_next_one_that_has_it_goes_on(
    kafka: Kafka, database: str
) -> None:
    with scene(kafka.bootstrap, database, partitions=1) as run:
        with running(run, workflow=BOTH):
            place(run, "first")
            run.until_folded()
        place(run, "second")
        with running(run, workflow=OLD) as old:
            run.until(lambda: codes(old) == {"DEFINITION_MISSING"}, "the fence")
        assert len(commands_of(run.outcome())) == 1
        with running(run, workflow=BOTH):
            run.until_folded()
        assert versions(run) == {"first": 2, "second": 2}
        assert set(run.outcome().commands.values()) == {1}


def codes(worker: Worker) -> set[str]:
    """Codes of what keeps a worker's partitions from being live."""
    return {each.code for each in worker.health.status.partitions}


def place(run: Scene, instance: str) -> None:
    """Publish the first event of an order."""
    producer = Producer({"bootstrap.servers": run.bootstrap, "partitioner": "murmur2_random"})
    codec = codec_of(OrderPlaced)
    producer.produce(
        f"{run.namespace}.order.events",
        codec.encode(OrderPlaced(items=("pen", "ink"), total=1)),
        instance.encode(),
        headers=event_headers(f"placed-{instance}", "/shop", codec.name, "acme"),
    )
    assert producer.flush(30) == 0


def test_with_manual_activation_version_2_begins_when_a_person_says_so(
    kafka: Kafka, database: str
) -> None:
    """P13: a rolling deploy under which no worker meets a version that it lacks."""
    with scene(kafka.bootstrap, database, partitions=1) as run:
        with running(run, workflow=OLD):
            place(run, "first")
            run.until_folded()
        slow = {"activate": "manual", "preflight_s": 1.0}
        with running(run, workflow=BOTH, worker=slow) as worker:
            place(run, "second")
            run.until_folded()
            store = PostgresStore(run.dsn)
            try:
                assert not Upkeep(store).activate("order", 7, "ada", "a typing error")
                assert Upkeep(store).activate("order", 2, "ada", "all workers have it")
            finally:
                store.close()
            run.until(lambda: 2 in _active(worker), "version 2 is active")
            place(run, "third")
            run.until_folded()

        assert versions(run) == {"first": 1, "second": 1, "third": 2}


def _active(worker: Worker) -> set[int]:
    return {each.active for each in worker.health.status.partitions}
