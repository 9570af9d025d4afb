"""The ends that are asked for and those that are not: a stop during an outage, a zombie's cut."""

import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from tests.crash.scene import Outcome, Scene, scene
from tests.running import settings_of

from refold.processors.clients import KafkaClients
from refold.testing.boundary import Plan
from refold.testing.servers import Kafka, OwnKafka
from refold.topics.reading import batches

pytestmark = [pytest.mark.crash, pytest.mark.kafka, pytest.mark.postgres]


def steps(run: Scene) -> dict[str, list[str]]:
    """Instance → states whose commands stand on the log, in log order."""
    found: dict[str, list[str]] = defaultdict(list)
    for number in range(2):
        reader = KafkaClients(settings_of(run)).reader()
        try:
            for some in batches(reader, f"{run.namespace}.order.commands", number, 0):
                for each in some:
                    found[key_of(each)].append(text(each, "ce_state"))
        finally:
            reader.close()
    return found


def key_of(message: Message) -> str:
    return bytes(message.key() or b"").decode()


def text(message: Message, name: str) -> str:
    held: Any = dict(message.headers() or ()).get(name)
    return bytes(held).decode()


@pytest.mark.slow
def test_a_stop_during_an_outage_loses_no_command_and_keeps_their_order(
    undisturbed: Outcome, own_kafka: OwnKafka, database: str
) -> None:
    """B012, B013: SIGTERM while the broker is away; what was not confirmed was not passed."""
    broker = own_kafka()
    with scene(broker.bootstrap, database) as run:
        run.publish(0.0, 0.9)
        first = run.worker()
        run.until_cut()
        broker.kill()
        first.send_signal(signal.SIGTERM)
        broker.start()
        run.stop(first)
        run.publish(0.9, 1.0)
        second = run.worker()
        run.until_folded()
        run.stop(second)

        assert run.outcome() == undisturbed, run.logs()
        assert {tuple(each) for each in steps(run).values()} == {("reserving", "charging")}


def test_b007_a_zombies_cut_is_refused_and_a_third_owner_sees_nothing_of_it(
    undisturbed: Outcome, kafka: Kafka, database: str
) -> None:
    """B007, O4: paused before its save past its session; it wakes up beside its successor."""
    with scene(kafka.bootstrap, database) as run:
        run.publish(0.0, 0.5)
        zombie = run.worker(Plan("store.save", 2, "before", "pause"))
        run.until(lambda: _paused(zombie.pid), "the pause")
        second = run.worker()
        run.until_folded()
        zombie.send_signal(signal.SIGCONT)
        run.until(lambda: "dropped" in run.logs() or "lost" in run.logs(), "its step down")
        second.kill()
        second.wait()
        run.publish(0.5, 1.0)
        run.stop(zombie)
        third = run.worker()
        run.until_folded()
        run.stop(third)

        assert run.outcome() == undisturbed, run.logs()


def _paused(pid: int) -> bool:
    if not os.path.exists(f"/proc/{pid}/stat"):
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
