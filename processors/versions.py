"""Versions of definitions: noted at first use, compared at start, accepted after a replay.

Law of this module: the same version with another fingerprint is refused until a replay of the
log has shown that no verdict, no command and no instance's state differs (P14); what is accepted
here is written on the log by the next owner of each partition, as an `activate` with the new
fingerprint (P13).
"""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import msgspec

from refold.processors.clients import Clients
from refold.processors.decisions import NOTHING, activations_of
from refold.processors.definition import Definition, Workflow
from refold.processors.replay import Replay, extent
from refold.processors.summary import hashes_of, summary
from refold.processors.verify import Report, Verified, compare
from refold.schemas.errors import Code, DefinitionError, FenceError, UsageError
from refold.snapshots.model import Definition as Noted
from refold.snapshots.model import PartitionRow
from refold.snapshots.store import PostgresStore
from refold.snapshots.upkeep import Upkeep
from refold.topics.specs import events_topic


class Registration:
    """Notes every version of these workflows, once, and compares those that are noted.

    Args:
        store: PostgreSQL.
        workflows: What this process folds.
    """

    def __init__(self, store: PostgresStore, workflows: Mapping[str, Workflow]) -> None:
        self._upkeep = Upkeep(store)
        self._workflows = workflows
        self._done = False
        self._lock = Lock()

    def __call__(self) -> None:
        """Do it, unless it is done.

        Raises:
            DefinitionError: DEFINITION_CHANGED, a version stands with another fingerprint.
            ServerError: PostgreSQL is away, or has no or another schema.
        """
        with self._lock:
            if self._done:
                return
            for workflow in self._workflows.values():
                for definition in workflow.versions.values():
                    self._upkeep.register(noted(definition))
            self._done = True

    def fence(self) -> FenceError | None:
        """The same for the preflight of a partition: what is wrong as its fence."""
        try:
            self()
        except DefinitionError as error:
            return FenceError(error.code, error.what, error.cure, **error.where)
        return None


def noted(definition: Definition) -> Noted:
    """A definition as PostgreSQL keeps it."""
    return Noted(
        workflow=definition.name,
        version=definition.version,
        fingerprint=definition.fingerprint,
        canonical=definition.to_json().decode(),
    )


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a workflow and who still needs it."""

    workflow: str
    version: int
    fingerprint: str
    state: str
    running: int
    """Instances on it that have not ended."""
    ended: int
    """Instances on it that have ended: a late event of theirs is judged by it."""
    begins: tuple[int, ...]
    """Partitions whose new instances begin with it."""
    folded: tuple[int, ...]
    """Partitions whose log it has folded: a replay from the beginning needs it."""
    removable: bool
    """True when nothing needs its code any more, and nothing will begin with it."""


def uses(store: PostgresStore, workflow: str, rows: Sequence[PartitionRow]) -> list[Use]:
    """Every version ever used of a workflow.

    Args:
        store: PostgreSQL.
        workflow: Its name.
        rows: Its partitions.
    """
    upkeep = Upkeep(store)
    running = upkeep.versions_in_use(workflow)
    every = upkeep.versions_known(workflow)
    by_partition = {row.partition: activations_of(row, NOTHING) for row in rows}
    every_version = upkeep.definitions(workflow)
    highest = max((each.version for each in every_version), default=0)
    coming = {highest, store.wanted(workflow)}
    found = []
    for each in every_version:
        version = each.version
        begins = tuple(
            number for number, known in by_partition.items() if known[-1:] and
            known[-1].version == version
        )  # fmt: skip
        folded = tuple(
            number
            for number, known in by_partition.items()
            if any(one.version == version for one in known)
        )
        count = running.get(version, 0)
        ended = every.get(version, 0) - count
        found.append(
            Use(
                workflow=workflow,
                version=version,
                fingerprint=each.fingerprint,
                state=each.state,
                running=count,
                ended=ended,
                begins=begins,
                folded=folded,
                removable=not (count or ended or begins or folded or version in coming),
            )
        )
    return found


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """One version whose code changed and whose folds did not."""

    workflow: str
    version: int
    before: str
    after: str
    partitions: tuple[int, ...]
    records: int
    """Records that were folded again to show it."""


def accept(
    clients: Clients,
    namespace: str,
    store: PostgresStore,
    workflow: Workflow,
    rows: Sequence[PartitionRow],
    progress: Callable[[int, int], None] = lambda position, end: None,
) -> list[Acceptance]:
    """Replay the retained log under changed code; accept it if nothing differs.

    What is compared, of each partition up to its marker: the digests of verdicts and commands,
    the counts, and the canonical hash of every instance with that of its newest snapshot.

    Args:
        clients: Makes readers.
        namespace: Prefix of the topics.
        store: PostgreSQL.
        workflow: With the changed code, under the versions that are noted.
        rows: The workflow's partitions.
        progress: Told (position, end) of each partition.

    Returns:
        What was accepted; nothing when no fingerprint differs.

    Raises:
        DefinitionError: DEFINITION_CHANGED, the replay differs; names the first instance.
        FenceError: The log lacks its beginning, or a version is missing.
        ServerError: Kafka or PostgreSQL is away.
    """
    upkeep = Upkeep(store)
    standing = {each.version: each.fingerprint for each in upkeep.definitions(workflow.name)}
    changed = [
        each
        for each in workflow.versions.values()
        if standing.get(each.version, each.fingerprint) != each.fingerprint
    ]
    if not changed:
        return []
    if not rows:
        raise UsageError(
            Code.NOT_FOUND,
            f"No worker ever claimed a partition of {workflow.name}.",
            "Check the namespace and the schema in the settings.",
        )
    records = sum(
        _equal(clients, namespace, upkeep, workflow, row.partition, progress) for row in rows
    )
    for each in changed:
        upkeep.accept(noted(each))
    return [
        Acceptance(
            workflow=workflow.name,
            version=each.version,
            before=standing[each.version],
            after=each.fingerprint,
            partitions=tuple(row.partition for row in rows),
            records=records,
        )
        for each in changed
    ]


def _equal(
    clients: Clients,
    namespace: str,
    upkeep: Upkeep,
    workflow: Workflow,
    partition: int,
    progress: Callable[[int, int], None],
) -> int:
    """Records of a partition that fold alike below its marker."""
    topic = events_topic(namespace, workflow.name)
    live = upkeep.partition_hashes(topic, partition)
    marker = live.row.marker
    where = extent(clients.admin(), topic, partition)
    folded = Replay(clients, namespace, workflow, where, end=marker).fold(
        progress=lambda position: progress(position, marker)
    )
    hashes = hashes_of(folded)
    told = summary(folded, hashes)
    found = compare(
        live,
        Report(
            summary=told,
            hashes=[(tenant, instance, each) for (tenant, instance), each in hashes.items()],
        ),
    )
    if not found.equal or folded.digests.packed() != live.row.digest:
        raise DefinitionError(
            Code.DEFINITION_CHANGED,
            f"Under the changed code {topic}[{partition}] folds otherwise below its marker"
            f" {marker}: {_difference(found)}. It is not the same version.",
            "Give it a new version; `refold verify` tells at which offset it differs.",
            topic=topic,
            partition=partition,
        )
    return told.records


def _difference(found: Verified) -> str:
    """What differs, the first instance first."""
    first = found.first
    if first is not None:
        named = f"instance {first.tenant}/{first.instance}"
        said = {
            "missing": f"{named} is there in the fold and has no snapshot",
            "surplus": f"{named} has a snapshot and is not there in the fold",
            "damaged": f"the snapshot of {named} is damaged",
        }.get(first.found, f"{named} has another state")
        more = found.differing - 1
        return f"{said}, and {more} more" if more else said
    if found.counts:
        name, (live, fold) = next(iter(found.counts.items()))
        return f"{name} was {live} and is {fold}"
    return "every state is the same, a verdict or a command is not"
