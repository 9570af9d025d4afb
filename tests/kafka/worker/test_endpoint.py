"""What probes and metrics see of a running worker: readiness, fences and counts (O7)."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.kafka.worker.stage import Stage

from refold.processors.endpoint import Endpoint
from refold.processors.worker import Worker
from refold.schemas.errors import Code

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
