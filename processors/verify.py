"""Does live state equal the log? Folded again in a fresh process that differs where it may.

Law of this module: the live side is read in one REPEATABLE READ transaction that ends before the
fold begins (P22); the fold runs in a child process with another hash seed, time zone and locale,
under the purity guard, up to exactly the marker; what is compared are canonical hashes, the fold
digest and the counts (O2).
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from refold.processors.clients import Clients
from refold.processors.definition import Workflow
from refold.processors.digest import unpacked
from refold.processors.instance_codec import encode, partition_hash
from refold.processors.partition import Key, Overlay
from refold.processors.replay import Impure, Replay, extent
from refold.processors.summary import Summary, hashes_of, summary
from refold.schemas.errors import Code, RefoldError, UsageError
from refold.snapshots.model import EventRow, PartitionHashes, Snapshot, content_hash
from refold.topics.specs import events_topic

OTHER_WORLD: Final = {"PYTHONHASHSEED": "20261", "TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8"}
"""Where a fold that reads hash order, zone or locale gives something else."""
SECOND_WORLD: Final = {"PYTHONHASHSEED": "1", "TZ": "America/St_Johns", "LC_ALL": "POSIX"}
"""Taken when this process already runs in the first one."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the instance that is traced, as the fold saw it."""

    row: EventRow
    hash: bytes
    """State hash behind it; empty while there is no instance."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the child found, handed over in a file."""

    summary: Summary
    hashes: list[tuple[str, str, bytes]]
    impure: list[Impure] = []
    trace: list[Moment] = []


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first instance that differs, and where."""

    tenant: str
    instance: str
    found: str
    """`different`, `damaged` (the bytes that stand are not those that were hashed), `missing`
    (only the log knows it) or `surplus` (only PostgreSQL knows it)."""
    after: int = -1
    """Offset of its last kept snapshot that agrees; -1: none does."""
    upto: int = -1
    """Offset of its first kept snapshot that does not."""
    row: int | None = None
    """Offset of the first row of the event-log index that differs, where one stands."""
    text: str = ""


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `verify`."""

    topic: str
    partition: int
    begin: int
    marker: int
    instances: int
    equal: bool
    """State, digest and counts agree, nothing impure was seen, and something was compared."""
    live_hash: str
    fold_hash: str
    live_digest: str
    fold_digest: str
    differing: int = 0
    first: Difference | None = None
    counts: dict[str, tuple[int, int]] = {}
    """Verdicts whose count differs: (live, fold)."""
    impure: list[Impure] = []

    @property
    def verdict(self) -> str:
        """In words: `equal`, `DIFFERENT`, or that nothing is folded and saved so far."""
        if self.equal:
            return "equal"
        same = not (self.differing or self.counts or self.impure)
        if same and self.live_digest == self.fold_digest:
            return "nothing to compare yet: no record is folded and saved"
        return "DIFFERENT"


def report_of(
    clients: Clients,
    namespace: str,
    workflow: Workflow,
    partition: int,
    end: int,
    traced: Key | None = None,
) -> Report:
    """The child's work: fold under the guard, hash, trace one instance if asked.

    Args:
        clients: Makes readers.
        namespace: Prefix of every topic.
        workflow: With every version that the log used.
        partition: Its number.
        end: The marker.
        traced: Fold this instance alone and keep each of its moments.
    """
    where = extent(clients.admin(), events_topic(namespace, workflow.name), partition)
    replay = Replay(
        clients,
        namespace,
        workflow,
        where,
        end=end,
        only=traced,
        rows=traced is not None,
        guarded=traced is None,
        single=traced is not None,
    )
    trace: list[Moment] = []

    def taken(overlay: Overlay) -> None:
        for row in overlay.events:
            record = overlay.instances.get(traced) if traced is not None else None
            state = b""
            if record is not None:
                state = content_hash(encode(record, workflow.versions[record.definition]))
            elif trace:
                state = trace[-1].hash
            trace.append(Moment(row=row, hash=state))

    folded = replay.fold(taken=taken)
    hashes = hashes_of(folded)
    return Report(
        summary=summary(folded, hashes),
        hashes=[(tenant, instance, each) for (tenant, instance), each in hashes.items()],
        impure=replay.impure,
        trace=trace,
    )


def other_world(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that differs from this one in hash seed, time zone and locale."""
    same = any(environment.get(name) == value for name, value in OTHER_WORLD.items())
    return {**environment, **(SECOND_WORLD if same else OTHER_WORLD)}


def child_report(arguments: Sequence[str], timeout_s: float | None = None) -> Report:
    """Run `refold replay …` in a fresh process and read its report.

    Args:
        arguments: The command line without the program, up to the report's file.
        timeout_s: Longest run; None waits as long as it takes.

    Raises:
        UsageError: The child failed; its own words are shown.
    """
    with tempfile.TemporaryDirectory(prefix="refold-") as folder:
        file = Path(folder) / "report"
        command = [sys.executable, "-m", "refold.cli.main", *arguments, "--report", str(file)]
        ended = subprocess.run(  # noqa: S603  # our own module, no shell
            command,
            env=other_world(os.environ),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if ended.returncode != 0 or not file.is_file():
            raise _failed(ended.stderr)
        return msgspec.msgpack.decode(file.read_bytes(), type=Report)


def compare(live: PartitionHashes, report: Report) -> Verified:
    """Set the live side against the fold.

    Args:
        live: As `Upkeep.partition_hashes` read it.
        report: The child's.
    """
    stored = {(each.tenant, each.instance): each.hash for each in live.instances}
    folded = {(tenant, instance): each for tenant, instance, each in report.hashes}
    differing = sorted(
        key for key in stored.keys() | folded.keys() if stored.get(key) != folded.get(key)
    )
    row, found = live.row, report.summary
    live_digest = unpacked(row.digest).fold.value()
    counts = {
        name: (row.counts.get(name, 0), found.counts.get(name, 0))
        for name in sorted({*row.counts, *found.counts})
        if row.counts.get(name, 0) != found.counts.get(name, 0)
    }
    first = None
    if differing:
        key = differing[0]
        kind = "surplus" if key not in folded else "missing" if key not in stored else "different"
        if stored.get(key) == b"":
            kind = "damaged"
        first = Difference(tenant=key[0], instance=key[1], found=kind)
    same = not differing and not counts and not report.impure and live_digest == found.digest
    equal = same and row.marker > 0  # at marker 0 nothing was compared
    return Verified(
        topic=row.topic,
        partition=row.partition,
        begin=found.begin,
        marker=row.marker,
        instances=len(stored),
        equal=equal,
        live_hash=partition_hash(stored.items()).hex(),
        fold_hash=found.hash,
        live_digest=live_digest,
        fold_digest=found.digest,
        differing=len(differing),
        first=first,
        counts=counts,
        impure=report.impure,
    )


def located(
    first: Difference,
    trace: Sequence[Moment],
    kept: Sequence[Snapshot],
    rows: Mapping[int, tuple[str, str, str, str, list[str]]],
) -> Difference:
    """Say between which offsets an instance went another way.

    Args:
        first: The instance that differs.
        trace: Its moments in the child's fold, in log order.
        kept: Its kept snapshots.
        rows: Offset → (verdict, transition, state before, state after, commands) of the
            event-log index, as far as it stands.
    """
    after, upto = -1, -1
    for snapshot in sorted(kept, key=lambda each: each.version):
        states = [each.hash for each in trace if each.row.offset <= snapshot.last_offset]
        if states and states[-1] == snapshot.hash == content_hash(snapshot.data):
            after = snapshot.last_offset
        else:
            upto = snapshot.last_offset
            break
    row, text = None, ""
    for moment in trace:
        folded, stands = moment.row, rows.get(moment.row.offset)
        now = (
            str(folded.verdict),
            folded.transition,
            folded.state_before,
            folded.state_after,
            list(folded.commands),
        )
        if stands is not None and stands != now:
            row, text = folded.offset, f"the index says {stands}, the fold {now}"
            break
    return msgspec.structs.replace(first, after=after, upto=upto, row=row, text=text)


def _failed(words: str) -> RefoldError:
    last = [line for line in words.strip().splitlines() if line.strip()]
    told = " / ".join(line.strip() for line in last[-4:]) or "it said nothing"
    return UsageError(
        Code.BAD_COMMAND_LINE,
        f"The fresh process that folds the log failed: {told[:800]}.",
        "Run the same `refold replay` by hand to see all of it.",
    )
