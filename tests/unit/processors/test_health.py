"""Trouble is seen where people look, and looking cannot be blocked (O7)."""

import http.client
import socket
from time import monotonic
from typing import Any, cast

from tests.unit.processors.test_between_batches import assignment, rounds
from tests.unit.processors.test_keeping import Given, keeper, partition_at
from tests.unit.processors.test_ringing import ringing

from refold.processors.endpoint import Endpoint
from refold.processors.health import EVERY_S, Health
from refold.processors.jobs import Done
from refold.schemas.errors import Code, ServerError


def test_a_client_that_says_nothing_does_not_hold_up_the_probes() -> None:
    """A worker whose /livez does not answer is ended by who watches it."""
    endpoint = Endpoint(Health("w"), "127.0.0.1", 0)
    endpoint.start()
    try:
        with socket.create_connection(("127.0.0.1", endpoint.port)):
            asked = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=4)
            asked.request("GET", "/livez")
            assert asked.getresponse().status == 200
            asked.close()
    finally:
        endpoint.close()


def test_a_partition_that_cannot_be_saved_is_live_and_not_well() -> None:
    """Its worker folds on from memory for a while: nobody else would tell."""
    ours = assignment()
    partition, saver = partition_at(10), Given()
    ours.partitions[partition.name] = partition
    keeping = keeper(saver)
    keeping.save(partition)
    away = ServerError(Code.POSTGRES_AWAY, "PostgreSQL did not answer.")
    keeping.settle(Done(saver.jobs[0], good=False, error=away, seconds=0.1), partition)
    clock = iter((0.0, 2 * EVERY_S, 4 * EVERY_S))
    health = Health("w", lambda: next(clock))
    cast(Any, ours)._topics = {partition.topic: partition.workflow}
    cast(Any, ours).consumer = None
    health.publish(ours, keeping, rounds(ours), ringing(ours))
    (status,) = health.status.partitions
    assert (str(status.phase), status.code) == ("live", Code.POSTGRES_AWAY)
    assert "POSTGRES_AWAY" in health.status.troubles(monotonic())[-1]
    keeping.settle(Done(saver.jobs[0], good=True, error=None, seconds=0.1), partition)
    health.publish(ours, keeping, rounds(ours), ringing(ours))
    assert health.status.partitions[0].code == ""
