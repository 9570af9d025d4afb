"""A bank's log through the loan graph: every line gets a verdict, and a clean fold agrees.

The log is the BPI Challenge 2012's, which is not carried here: it is looked for where
REFOLD_BPIC2012 says, and beside the repository. The first cases of it in the normal run; all of
them with REFOLD_CHAOS set.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import pytest
from confluent_kafka.admin import AdminClient
from tests.tree import ROOT

from refold.cli.main import run
from refold.examples.loan import loan
from refold.examples.loan.log import Row, rows
from refold.processors.definition import Workflow
from refold.processors.service import build_worker
from refold.snapshots.migrate import migrate
from refold.snapshots.queries import PartitionView, Queries
from refold.testing.driver import Driver
from refold.testing.servers import Kafka
from refold.topics.publisher import Delivered, Draft, Publisher
from refold.topics.settings import Settings, load_settings
from refold.topics.specs import create, workflow_specs

FILE = Path(os.environ.get("REFOLD_BPIC2012") or ROOT.parent / "shared/data/bpic2012.xes.gz")
CASES = None if "REFOLD_CHAOS" in os.environ else 500
PARTITIONS = 2
PATIENCE_S = 600.0

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.skipif(
        not FILE.is_file(),
        reason="the log of the BPI Challenge 2012 is not here; name it with REFOLD_BPIC2012",
    ),
]


@pytest.fixture(scope="module")
def log() -> list[Row]:
    """The cases together, by time, as a bank would send them."""
    return sorted(rows(FILE, CASES), key=lambda row: datetime.fromisoformat(row.at))


@pytest.fixture
def settings(
    kafka: Kafka,
    database: str,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Settings:
    for name, value in {
        "REFOLD_NAMESPACE": unique("loan"),
        "REFOLD_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "REFOLD_POSTGRES_DSN": database,
        "REFOLD_WORKER_SESSION_TIMEOUT_MS": "6000",
        "REFOLD_WORKER_FRESHNESS_S": "0.2",
        "REFOLD_WORKER_SNAPSHOT_MAX_AGE_S": "0.5",
    }.items():
        monkeypatch.setenv(name, value)
    made = load_settings()
    migrate(database)
    topics = workflow_specs(made.namespace, "loan", ("letters", "payments"), PARTITIONS)
    create(AdminClient({"bootstrap.servers": kafka.bootstrap}), topics)
    return made


@pytest.fixture
def queries(database: str) -> Iterator[Queries]:
    made = Queries(database)
    yield made
    made.close()


def publish(settings: Settings, log: list[Row]) -> None:
    drafts = (Draft(instance=row.instance, event=row.event, id=row.id) for row in log)
    with Publisher(settings, "loan", "/bank", tenant="bank") as publisher:
        outcomes = Counter(type(each) for each in publisher.send_many(drafts))
    assert outcomes == {Delivered: len(log)}


def folded(settings: Settings, queries: Queries, records: int) -> list[PartitionView]:
    """Let a worker fold and save so many records, and end."""
    worker = build_worker(settings, {"loan": Workflow("loan", [loan.build()])})
    thread = Thread(target=worker.run, name="worker", daemon=True)
    thread.start()
    deadline_s = monotonic() + PATIENCE_S
    try:
        while sum(min(each.marker, each.rows_to) for each in queries.partitions()) < records:
            assert thread.is_alive(), "the worker ended"
            assert monotonic() < deadline_s, f"{queries.partitions()}"
            sleep(0.1)  # polls what another thread does
    finally:
        worker.stop()
        thread.join(30)
    return list(queries.partitions())


@pytest.mark.timeout(900)  # the whole log on a small machine
def test_the_log_is_folded_whole_and_a_clean_fold_agrees(
    log: list[Row],
    settings: Settings,
    queries: Queries,
    capfd: pytest.CaptureFixture[str],
) -> None:
    driver = Driver(loan, tenant="bank", source="/bank")
    for row in log:
        driver.send(row.instance, row.event, id=row.id)
    publish(settings, log)

    partitions = folded(settings, queries, len(log))

    counts: Counter[str] = Counter()
    for each in partitions:
        counts.update(each.counts)
    assert sum(each.marker for each in partitions) == len(log)
    assert sum(counts.values()) == len(log)
    assert counts == Counter(str(each) for each in driver.verdicts())
    assert set(counts) == {"applied", "late"}
    assert run(["verify", "refold.examples.loan:loan"]) == 0, capfd.readouterr()


def test_every_line_of_the_log_has_a_place_in_the_graph(log: list[Row]) -> None:
    driver = Driver(loan)
    for row in log:
        step = driver.send(row.instance, row.event, id=row.id)
        assert step.verdict in {"applied", "late"}, f"{row}: {step.reason}"

    paid = [send.key for send in driver.sent if send.action == "PayOut"]
    assert len(paid) == sum(each.state == "granted" for each in driver.instances.values()) > 0
    assert len(set(driver.keys())) == len(driver.keys())
    driver.check_counts()
