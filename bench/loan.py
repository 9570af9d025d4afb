"""A bank's whole log through one worker: `python -m bench.loan FILE`.

FILE is the event log of the BPI Challenge 2012 (doi 10.4121/uuid:3926db30-f712-4394-aebc-
75976070e91f), which is not carried here. The log is published first; what is measured is one
ordinary `refold worker`, from its first committed record to the last, rows and snapshots
included.
"""

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.processes import Process
from bench.servers import Servers, servers
from refold.examples.loan.log import Row, rows
from refold.snapshots.migrate import migrate
from refold.topics.publisher import Draft, Publisher
from refold.topics.settings import load_settings
from refold.topics.specs import create, events_topic, workflow_specs

PARTITIONS = 4
LIMIT_S = 600.0
POLL_S = 0.02
LOG = Path(__file__).parent / "results" / "tmp" / "loan.log"


def main() -> int:
    """Measures and prints one line; returns the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("python -m bench.loan FILE: the log is bpic2012.xes.gz\n")
        return 2
    log = sorted(rows(Path(sys.argv[1])), key=lambda row: datetime.fromisoformat(row.at))
    with servers() as found, _place(found) as environment:
        os.environ.update(environment)
        _publish(log)
        process = Process(_worker(), LOG)
        try:
            seconds = _folded(len(log))
        finally:
            process.signal(signal.SIGTERM)
            ended = process.wait(60.0)
    rate = len(log) / seconds
    sys.stdout.write(
        f"loan: {len(log):,} events in {seconds:.1f} s, {rate:,.0f} a second,"
        f" worker's CPU {ended.cpu_s:.1f} s, {ended.cpu_s / len(log) * 1e6:.0f} µs an event\n"
    )
    return 0


def _worker() -> list[str]:
    return [sys.executable, "-m", "refold.cli.main", "worker", "refold.examples.loan:loan"]


@contextmanager
def _place(found: Servers) -> Iterator[Mapping[str, str]]:
    namespace, database = f"loan-{uuid.uuid4().hex[:8]}", found.new_database()
    admin = AdminClient({"bootstrap.servers": found.bootstrap})
    specs = workflow_specs(namespace, "loan", ("letters", "payments"), PARTITIONS)
    create(admin, specs)
    migrate(database)
    try:
        yield {
            "REFOLD_NAMESPACE": namespace,
            "REFOLD_KAFKA_BOOTSTRAP": found.bootstrap,
            "REFOLD_POSTGRES_DSN": database,
        }
    finally:
        for done in admin.delete_topics([each.name for each in specs]).values():
            done.exception(30)
        found.drop_database(database)


def _publish(log: list[Row]) -> None:
    with Publisher(load_settings(), "loan", "/bank", tenant="bank") as publisher:
        drafts = (Draft(instance=row.instance, event=row.event, id=row.id) for row in log)
        for _ in publisher.send_many(drafts):
            pass


def _folded(events: int) -> float:
    """Seconds from the first committed record to the last."""
    settings = load_settings()
    asking = Consumer(
        {"bootstrap.servers": settings.kafka.bootstrap, "group.id": settings.group}
    )  # asks for the group's offsets and never joins
    topic = events_topic(settings.namespace, "loan")
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    began_s = began_at = 0.0
    limit_s = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < limit_s:
            done = sum(max(0, each.offset) for each in asking.committed(places, 10.0))
            now_s = time.monotonic()
            if done and not began_s:
                began_s, began_at = now_s, done
            if done >= events:
                return (now_s - began_s) * events / (events - began_at)
            time.sleep(POLL_S)
    finally:
        asking.close()
    raise TimeoutError(f"{events} events were not folded in {LIMIT_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
