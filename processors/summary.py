"""What a fold came to: counts, states and hashes, for people, for JSON and for `verify`.

Law of this module: pure; reads a folded partition and changes nothing.
"""

from collections.abc import Iterable, Mapping

import msgspec

from refold.processors.instance_codec import encode, partition_hash, state_hash
from refold.processors.partition import Key, Partition
from refold.processors.status import run_status


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a fold came to, for people and for JSON."""

    workflow: str
    topic: str
    partition: int
    begin: int
    end: int
    records: int
    counts: dict[str, int]
    states: dict[str, int]
    statuses: dict[str, int]
    instances: int
    hash: str
    """Over all instances: `instance_codec.partition_hash`."""
    digest: str
    """The fold digest: over every verdict and key."""


def hashes_of(partition: Partition) -> dict[Key, bytes]:
    """State hash of every instance that is held."""
    versions = partition.workflow.versions
    return {
        key: state_hash(encode(record, versions[record.definition]))
        for key, record in partition.held.items()
    }


def summary(partition: Partition, hashes: Mapping[Key, bytes], begin: int = 0) -> Summary:
    """Count what a fold came to.

    Args:
        partition: As folded.
        hashes: As `hashes_of` gives them.
        begin: Offset at which the fold began.
    """
    versions = partition.workflow.versions
    records = partition.held.values()
    return Summary(
        workflow=partition.workflow.name,
        topic=partition.topic,
        partition=partition.number,
        begin=begin,
        end=partition.position,
        records=sum(n for name, n in partition.counts.items() if "." not in name),
        counts=dict(sorted(partition.counts.items())),
        states=_counted(record.state for record in records),
        statuses=_counted(str(run_status(versions[each.definition], each)) for each in records),
        instances=len(partition.held),
        hash=partition_hash(hashes.items()).hex(),
        digest=partition.digests.fold.value(),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))
