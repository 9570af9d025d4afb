"""SIGKILL of the owner of many live instances: how long until its successor sends again.

Measured from outside: detection is the moment at which the group's coordinator shows the
successor with partitions; the end is the first command that a `read_committed` reader sees after
it. Events come at a low and steady rate throughout.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from bench import latency, product, workload
from bench.limits import wire
from bench.openloop import sending
from bench.servers import Servers

SAVES_SOON = {"snapshot_max_age_s": "1"}
"""Of the worker before the victim: its last cut must not be cut short, or the tail is longer."""
NO_SNAPSHOTS = {"takeover_budget_s": "3600", "snapshot_max_age_s": "3600"}
STEP_TIMEOUT_S = 120.0
GO_ON_TIMEOUT_S = 30.0
"""Longest wait for the last partition to go on."""
SEEN_S = 1.0
"""For the reader to see what was committed."""


class Takeover(NamedTuple):
    """One kill and what followed, in seconds."""

    detection_s: float
    """From SIGKILL to the successor's assignment."""
    first_s: float
    """From there to the first new command on any partition."""
    last_s: float
    """From there until every partition had sent a new command."""
    behind: int
    """Records between the markers and the committed offsets at the kill."""
    fault: str = ""


def measure(servers: Servers, live: int, victim: Mapping[str, str], logs: Path) -> Takeover:
    """Folds `live` instances, saves them, folds as many events on top, kills, watches.

    Args:
        servers: Where.
        live: Instances, and events behind the marker where the victim takes no snapshots.
        victim: Settings of the worker that is killed.
        logs: Folder of the processes' outputs.
    """
    workload.renew(servers.bootstrap, wire.EVENTS)
    with product.fresh(servers, "w1") as deployment:
        workload.write(servers.bootstrap, wire.EVENTS, wire.events(live, moved_on=False))
        with deployment.worker(logs / "takeover-first", SAVES_SOON) as worker:
            fault = worker.until_folded(live, STEP_TIMEOUT_S)
            fault = fault or worker.until_saved(live, STEP_TIMEOUT_S) or worker.stop().fault
        if fault:
            return Takeover(0.0, 0.0, 0.0, 0, fault)
        with deployment.worker(logs / "takeover-victim", victim) as worker:
            workload.write(servers.bootstrap, wire.EVENTS, map(wire.paid, range(live)))
            fault = worker.until_folded(2 * live, STEP_TIMEOUT_S)
            if fault:
                return Takeover(0.0, 0.0, 0.0, 0, fault)
            return _kill(deployment, worker, live, logs)


def _kill(
    deployment: product.Deployment, worker: product.Worker, live: int, logs: Path
) -> Takeover:
    bootstrap = deployment.servers.bootstrap
    members = Members(deployment)
    before = set(members.with_partitions())
    with (
        latency.watching(bootstrap, wire.COMMANDS, logs / "watch") as reader,
        sending(bootstrap, wire.EVENTS, live, latency.RATE),
    ):
        time.sleep(1.0)
        behind = deployment.folded() - deployment.saved()
        killed = time.monotonic_ns()
        worker.kill()
        ends = deployment.ends()
        with deployment.worker(logs / "takeover-successor", {}) as successor:
            detected = members.until_another(before, STEP_TIMEOUT_S)
            if detected:
                _until_all_went_on(deployment, ends)
            words = "" if successor.process.is_running() else successor.process.last_words()
            seen = latency.seen_by(reader)
            successor.stop()
    if not detected:
        return Takeover(0.0, 0.0, 0.0, behind, words or "the successor got no partitions")
    first: dict[int, int] = {}
    for _, partition, at in seen:
        if at > detected:
            first.setdefault(partition, at)
    if not first:
        return Takeover(
            0.0, 0.0, 0.0, behind, words or f"no new command within {GO_ON_TIMEOUT_S:.0f} s"
        )
    waits = [(at - detected) / 1e9 for at in first.values()]
    whole = len(first) == workload.PARTITIONS
    fault = (
        "" if whole else f"only partitions {sorted(first)} went on within {GO_ON_TIMEOUT_S:.0f} s"
    )
    return Takeover((detected - killed) / 1e9, min(waits), max(waits), behind, fault)


def _until_all_went_on(deployment: product.Deployment, ends: Mapping[int, int]) -> None:
    """Waits until every partition is committed past the log's end at the kill, and is seen."""
    deadline = time.monotonic() + GO_ON_TIMEOUT_S
    while time.monotonic() < deadline:
        found = deployment.committed()
        if all(found.get(number, 0) > end for number, end in ends.items()):
            break
        time.sleep(product.POLL_S)
    time.sleep(SEEN_S)


class Members:
    """Who is in the group, asked of its coordinator."""

    def __init__(self, deployment: product.Deployment) -> None:
        self._group = deployment.group
        self._admin = AdminClient({"bootstrap.servers": deployment.servers.bootstrap})

    def with_partitions(self) -> list[str]:
        """Ids of the members that own partitions."""
        answer: Any = self._admin.describe_consumer_groups([self._group])[self._group].result(10)
        return [member.member_id for member in answer.members if member.assignment.topic_partitions]

    def until_another(self, before: set[str], timeout_s: float) -> int:
        """Monotonic nanoseconds at which another member owned partitions; 0 if none did."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if set(self.with_partitions()) - before:
                return time.monotonic_ns()
            time.sleep(0.02)
        return 0
