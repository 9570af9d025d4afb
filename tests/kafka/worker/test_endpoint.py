"""What probes and metrics see of a running worker: readiness, fences and counts (O7)."""

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.kafka.worker.stage import Stage

from refold.processors.endpoint import Endpoint
from refold.processors.worker import Worker
from refold.schemas.errors import Code
from refold.snapshots.grants import grant
from refold.snapshots.migrate import migrate

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@contextmanager
def endpoint(worker: Worker) -> Iterator[int]:
    served = Endpoint(worker.health, "127.0.0.1", 0)
    served.start()
    try:
        yield served.port
    finally:
        served.close()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_worker_is_ready_while_its_partitions_are_live_and_says_which_is_not(two: Stage) -> None:
    """O6, O7: alive with a fenced partition, but not ready; the code is in the answer."""
    (first, more), (other,) = two.names(0, 2), two.names(1, 1)
    two.place(first, other)
    two.fold()
    two.place(more)
    two.move_offset(2)
    with two.working() as worker, endpoint(worker) as port:
        two.until_codes(worker, {0: Code.OFFSETS_MOVED, 1: ""})
        code, told = ask(port, "/readyz")
        reasons: list[Any] = json.loads(told)["reasons"]
        assert code == 503
        assert len(reasons) == 1
        assert "OFFSETS_MOVED" in reasons[0]
        assert ask(port, "/livez")[0] == 200
        metrics = ask(port, "/metrics")[1]
        assert 'refold_fenced{partition="0",workflow="order"} 1.0' in metrics
        assert 'refold_fenced{partition="1",workflow="order"} 0.0' in metrics
        two.choose(Code.OFFSETS_MOVED, "silent")
        two.until_codes(worker, {0: "", 1: ""})
        assert ask(port, "/readyz")[0] == 200
        shown = json.loads(ask(port, "/status")[1])["partitions"]
        assert {each["partition"]: each["counts"] for each in shown} == {
            0: {"applied": 2},
            1: {"applied": 1},
        }
        assert ask(port, "/status", "POST")[0] == 405
        assert ask(port, "/other")[0] == 404


@pytest.fixture
def role(one: Stage) -> Iterator[str]:
    """A worker's role with the least rights, which the stage's workers are."""
    owner, name = one.dsn, f"test_{os.urandom(6).hex()}"
    migrate(owner)
    one.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    grant(owner, worker=name)
    one.dsn = make_conninfo(owner, user=name, password="x")
    yield name
    one.dsn = owner
    one.sql(f"DROP OWNED BY {name}")
    one.sql(f"DROP ROLE {name}")


def test_rights_that_are_taken_away_are_seen_where_people_look_and_their_return_too(
    one: Stage, role: str, database: str
) -> None:
    """What is in memory is folded on; the next owner could not even read it."""
    one.place(*one.names(0, 2))

    def as_owner(statement: str) -> Any:
        with psycopg.connect(database, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    with one.working(preflight_s=0.2) as worker, endpoint(worker) as port:
        one.until_saved()
        one.until(lambda: ask(port, "/readyz")[0] == 200, "every partition to be taken")
        as_owner(f"REVOKE SELECT ON refold.workflow_snapshot FROM {role}")
        one.until(lambda: ask(port, "/readyz")[0] == 503, "the worker to be not ready")
        told = ask(port, "/readyz")[1]
        assert "POSTGRES_REFUSED" in told
        assert "SELECT on workflow_snapshot" in told
        assert "refold_unchecked 1.0" in ask(port, "/metrics")[1]
        assert "SELECT on workflow_snapshot" in json.loads(ask(port, "/status")[1])["unchecked"]
        ((alarm,),) = as_owner("SELECT alarm FROM refold_v1.partitions")
        assert alarm.startswith("POSTGRES_REFUSED")
        as_owner(f"GRANT SELECT ON refold.workflow_snapshot TO {role}")
        one.until(lambda: ask(port, "/readyz")[0] == 200, "the worker to be ready")
        assert as_owner("SELECT alarm FROM refold_v1.partitions") == [("",)]
