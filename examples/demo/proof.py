"""The proof: the log folded again, and what the outside did counted against it.

Law of this module: nothing is believed that a worker says. The live side is what stands in
PostgreSQL; the other side is folded from the log in fresh processes with another hash seed and
time zone (`refold verify`); effects are counted in the outside's own journal.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final

import msgspec

from refold.examples.demo.executor import Journal
from refold.examples.demo.play import Played
from refold.examples.demo.stage import PARTITIONS, Stage
from refold.examples.incident import incident
from refold.processors.clients import KafkaClients
from refold.processors.definition import Workflow
from refold.processors.partition import Overlay
from refold.processors.replay import Replay, extent
from refold.processors.verify import Verified
from refold.schemas.errors import Code, ServerError
from refold.snapshots.queries import EventView, InstanceView, PartitionView, Queries
from refold.topics.specs import events_topic

SPEC: Final = "refold.examples.incident:incident"
AT_ONCE: Final = 2
"""Folds at once: one a core of a small machine."""

UPDATES: Final = 8
"""Updates of the incident that is shown, or about so many."""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident of a partition that changed hands, to show."""

    tenant: str
    instance: str
    partition: int
    state: str
    run_status: str
    context: dict[str, Any]
    history: Sequence[EventView]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    read: int
    """Records on the event topic, all of them read."""
    sent: int
    """Of these, from the desks."""
    verdicts: dict[str, int]
    instances: int
    commands: dict[str, int]
    """Commands that the fold asks for, by action."""
    effects: int
    doubles: int
    lost: int
    invented: int
    """Effects that the fold did not ask for."""
    live_hash: str
    fold_hash: str
    verified: bool
    states: dict[str, int]
    shown: Incident

    @property
    def faults(self) -> list[str]:
        """What is wrong, a sentence each; nothing if all is as it must be."""
        wrong = {
            f"{self.doubles} effects happened more than once": self.doubles,
            f"{self.lost} effects never happened": self.lost,
            f"{self.invented} effects happened that nobody asked for": self.invented,
            "the verdicts do not add up to the records read": sum(self.verdicts.values())
            != self.read,
            "live state is not what the log says": not self.verified,
            "the answers and the desks' events are not what stands on the log": self.sent
            + self.effects
            != self.read,
            "not every incident came to its end": self.states.keys() != {"surveyed"},
        }
        return [text for text, found in wrong.items() if found]


def prove(stage: Stage, played: Played) -> Proof:
    """Find out what is true.

    Raises:
        ServerError: A tool failed.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        both = [
            (pool.submit(_verified, stage, number), pool.submit(_commands, stage, number))
            for number in range(PARTITIONS)
        ]
        verified = [each.result() for each, _ in both]
        keys = [key for _, each in both for key in each.result()]
    journal = Journal(stage.journal)
    effects = journal.effects()
    journal.close()
    queries = Queries(stage.dsn)
    try:
        partitions = queries.partitions("incident")
        instances = list(_instances(queries))
        shown = _shown(queries, instances, played.takeover.partitions)
    finally:
        queries.close()
    return Proof(
        read=played.ended,
        sent=played.sent,
        verdicts=_verdicts(partitions),
        instances=len(instances),
        commands=dict(Counter(key.split(":")[-3] for key in keys)),
        effects=sum(times for times, _ in effects.values()),
        doubles=sum(times - 1 for times, _ in effects.values()) + len(keys) - len(set(keys)),
        lost=len(set(keys) - effects.keys()),
        invented=len(effects.keys() - set(keys)),
        live_hash=_joined([each.live_hash for each in verified]),
        fold_hash=_joined([each.fold_hash for each in verified]),
        verified=all(each.equal for each in verified)
        and sum(each.marker for each in verified) == played.ended,
        states=dict(Counter(each.state for each in instances)),
        shown=shown,
    )


def _verified(stage: Stage, partition: int) -> Verified:
    """`refold verify`, in a process of its own as a user would run it."""
    command = ["refold.cli.main", "verify", SPEC, "--partition", str(partition), "--json"]
    ended = subprocess.run(  # noqa: S603  # our own module, no shell
        [sys.executable, "-m", *command],
        env=stage.environment,
        capture_output=True,
        check=False,
    )
    if not ended.stdout:
        raise ServerError(
            Code.DEMO_FAILED, f"`refold verify` failed: {ended.stderr.decode()[-800:]}"
        )
    return msgspec.json.decode(ended.stdout, type=list[Verified])[0]


def _commands(stage: Stage, partition: int) -> list[str]:
    """Idempotency keys of every command that the log asks for."""
    clients = KafkaClients(stage.settings)
    workflow = Workflow("incident", [incident.build()])
    where = extent(clients.admin(), events_topic(stage.namespace, "incident"), partition)
    keys: list[str] = []

    def taken(overlay: Overlay) -> None:
        for event in overlay.events:
            keys.extend(event.commands)

    Replay(clients, stage.namespace, workflow, where, rows=True).fold(taken=taken)
    return keys


def _verdicts(partitions: Sequence[PartitionView]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in partitions:
        found.update({name: n for name, n in each.counts.items() if "." not in name})
    return dict(found.most_common())


def _instances(queries: Queries) -> list[InstanceView]:
    found: list[InstanceView] = []
    after: tuple[str, str] | None = None
    while page := queries.instances("incident", after=after, limit=1_000):
        found.extend(page)
        after = (page[-1].tenant, page[-1].instance_id)
    return found


def _shown(
    queries: Queries, instances: Sequence[InstanceView], partitions: Sequence[int]
) -> Incident:
    """A reopened incident of a partition that changed hands, whose way fits on the screen."""

    def fitting(each: InstanceView) -> tuple[bool, bool, int]:
        context = each.context
        return (
            each.partition not in partitions,
            not context["reopened"],
            abs(context["updates"] - UPDATES),
        )

    one = min(instances, key=fitting)
    history = queries.history("incident", one.tenant, one.instance_id, limit=1_000)
    return Incident(
        tenant=one.tenant,
        instance=one.instance_id,
        partition=one.partition,
        state=one.state,
        run_status=one.run_status,
        context=one.context,
        history=history,
    )


def _joined(hashes: Sequence[str]) -> str:
    return sha256("".join(hashes).encode()).hexdigest()
