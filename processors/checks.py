"""Preflight of a worker: before a partition is taken, and again while it is owned (design 4).

Law of this module: asks Kafka and PostgreSQL, judges with their own judgements, and raises the
fence of what is not as it must be; it repairs nothing. Answers about a whole topic or server
are kept for a moment, since many partitions are taken at once.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic
from typing import Final

from refold.processors.clients import Admin
from refold.processors.definition import Workflow
from refold.processors.options import Options
from refold.processors.spec import Forward
from refold.schemas.errors import Code, FenceError
from refold.snapshots.preflight import Finding as ServerFinding
from refold.topics.facts import TopicFacts, topic_facts
from refold.topics.preflight import findings, judge_pair, judge_topic
from refold.topics.specs import TopicSpec, events_topic, workflow_specs

KEPT_S: Final = 5.0
"""Answers about a topic or a server are asked for again after this."""
ANSWER_S: Final = 10.0


class Checks:
    """The preflight of one worker.

    Args:
        options: Settings.
        workflows: What it folds.
        admin: Admin client, shared by threads.
        database: The judgement of PostgreSQL, as of now.
        versions: What is wrong with the versions of the workflows, None if nothing.
    """

    def __init__(
        self,
        options: Options,
        workflows: Mapping[str, Workflow],
        admin: Admin,
        database: Callable[[], list[ServerFinding]],
        versions: Callable[[], FenceError | None] = lambda: None,
    ) -> None:
        self._options = options
        self._admin = admin
        self._database = database
        self._versions = versions
        self._specs: dict[str, tuple[TopicSpec, ...]] = {}
        for workflow in workflows.values():
            specs = workflow_specs(options.namespace, workflow.name, targets(workflow), 1)
            specs += tuple(
                TopicSpec(events_topic(options.namespace, other), 1, {})  # it is theirs to set
                for other in sorted(others(workflow))
            )
            self._specs[specs[0].name] = specs
        self._lock = Lock()
        self._kept: dict[str, tuple[float, FenceError | None]] = {}

    def __call__(self, facts: TopicFacts) -> None:
        """Check everything that the partitions of this event topic rely on.

        Args:
            facts: The event topic as the cluster describes it now.

        Raises:
            FenceError: Named by its code, with the way out.
            ServerError: Kafka or PostgreSQL is away; try again.
        """
        self._once("postgres", self._postgres)
        self._once("versions", self._versions)
        self._once(facts.topic, lambda: self._topics(facts))

    def _once(self, name: str, check: Callable[[], FenceError | None]) -> None:
        with self._lock:
            made_s, fence = self._kept.get(name, (float("-inf"), None))
            if monotonic() - made_s > KEPT_S:
                fence = check()
                self._kept[name] = (monotonic(), fence)
        if fence is not None:
            raise fence

    def _postgres(self) -> FenceError | None:
        fatal = [each for each in self._database() if each.fatal]
        for finding in fatal:
            if finding.code != Code.POSTGRES_AWAY and not finding.passes:
                return FenceError(finding.code, finding.what, finding.cure)
        if fatal:
            raise fatal[0].error()
        return None

    def _topics(self, facts: TopicFacts) -> FenceError | None:
        events, rejected, *others = self._specs[facts.topic]
        accept = self._options.accept_finite_retention
        found = judge_topic(events, facts, accept_finite_retention=accept)
        found += findings(
            self._admin.client, [rejected, *others], accept_finite_retention=accept, counts=False
        )
        if not found:
            found += judge_pair(facts, topic_facts(self._admin.client, rejected.name, ANSWER_S))
        return found[0].fence() if found else None


def targets(workflow: Workflow) -> frozenset[str]:
    """Targets of every version's commands: the command topics that must exist (P9)."""
    return frozenset(
        command.target
        for definition in workflow.versions.values()
        for command in definition.commands.values()
    )


def others(workflow: Workflow) -> frozenset[str]:
    """Workflows that events of some version go to: their event topics must exist likewise."""
    found: set[str] = set()
    for definition in workflow.versions.values():
        policies = [late for one in definition.finals.values() for late in one.late.values()]
        found.update(late.workflow for late in policies if isinstance(late, Forward))
        found.update(definition.children)
        found.update(one.start for one in (definition.schedules or {}).values())
    return frozenset(found)
