"""One partition as its worker holds it: records in memory, how far they are, what is unsaved.

Law of this module: plain data of the loop thread. `held` has committed records only: a batch
folds into an `Overlay`, which is merged when its transaction is known to be committed (P9).
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from refold.processors.definition import Workflow
from refold.processors.digest import Committed, Digests
from refold.processors.dues import Dues
from refold.processors.instance import Instance
from refold.schemas.errors import Code, FenceError
from refold.schemas.verdicts import Activate, Decision
from refold.snapshots.model import EventRow, ResolvedRow
from refold.topics.records import EventReader

Name = tuple[str, int]
"""(topic, partition number)."""
Key = tuple[str, str]
"""(tenant, instance id): identity within one workflow."""


class Phase(StrEnum):
    """Life of an assigned partition: taking → recovering → live; fenced until it is freed."""

    TAKING = "taking"
    RECOVERING = "recovering"
    LIVE = "live"
    FENCED = "fenced"


@dataclass(slots=True)
class Overlay:
    """What one batch makes of one partition, forgotten if its transaction aborts."""

    position: int
    digests: Digests
    instances: dict[Key, Instance] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    events: list[EventRow] = field(default_factory=list)
    resolved: list[ResolvedRow] = field(default_factory=list)
    folds: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    activations: list[Activate] = field(default_factory=list)
    decided_to: int = 0
    """Position on the decision log behind what this batch put there; 0: it put nothing."""

    def close(self) -> None:
        """Bring the digests up to the last folded record."""
        self.digests = Digests(
            self.digests.fold.extended(self.folds), self.digests.command.extended(self.commands)
        )
        self.folds, self.commands = [], []


@dataclass(slots=True)
class Partition:
    """State of one owned partition. Changed by the loop thread only."""

    topic: str
    number: int
    topic_id: str
    workflow: Workflow
    reader: EventReader
    epoch: int
    position: int
    """Next offset to fold."""
    silent_to: int
    """Below this offset everything was already sent (O5)."""
    expected: Committed | None
    digests: Digests
    marker: int
    rows_to: int
    decided_from: int
    """Position on the decision log of the last cut: decisions at or past its marker follow."""
    decided_to: int
    """Position on the decision log behind the decisions that are known."""
    complete: bool
    """True while memory holds every instance that the partition ever had."""
    counts: dict[str, int] = field(default_factory=dict)
    decisions: dict[int, Decision] = field(default_factory=dict)
    """Decisions on the log at or past the position: obeyed (P13)."""
    forced: dict[int, Decision] = field(default_factory=dict)
    """Decisions of this worker that are still to be written, by careful mode or a refusal."""
    activations: list[Activate] = field(default_factory=list)
    pending: Activate | None = None
    held: dict[Key, Instance] = field(default_factory=dict)
    dirty: dict[Key, Instance] = field(default_factory=dict)
    """Records newer than the last cut, by reference into `held`."""
    saving: dict[Key, Instance] = field(default_factory=dict)
    """Records of the cut on its way: not clean before it is confirmed (P16)."""
    touched: dict[Key, Instance] = field(default_factory=dict)
    """Records newer than the last flush of instance rows."""
    events: list[EventRow] = field(default_factory=list)
    resolved: list[ResolvedRow] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    """What silent replay decided, as the fold digest has it: for the case that it differs."""
    dues: Dues | None = None
    """Its timers that are due soon; None where no version of the workflow has any."""
    careful: int = 0
    """Good records that are still to be folded one by one, after takes without progress (P12)."""
    taken_s: float = 0.0
    """When its fold began here: its turn, for one that recovers."""
    dirty_since_s: float = 0.0
    """When the first record past the last cut was folded; likewise the next for the flush."""
    touched_since_s: float = 0.0

    @property
    def partitions(self) -> int:
        """Partition count that f(key) uses here."""
        return self.reader.partitions

    @property
    def name(self) -> Name:
        """(topic, partition number)."""
        return self.topic, self.number

    @property
    def decided(self) -> int:
        """Where a successor that starts at the position must read decisions from (P4, P13)."""
        return self.decided_from if self.decisions else self.decided_to

    @property
    def silent(self) -> bool:
        """True while records are folded that were already sent."""
        return self.position < self.silent_to

    @property
    def unproved(self) -> bool:
        """True while this code has still to show that it decides as the one that ran (P19)."""
        return self.silent and self.expected is not None

    def overlay(self) -> Overlay:
        """An empty overlay over the present state."""
        return Overlay(self.position, self.digests)

    def merge(self, overlay: Overlay, now_s: float, *, rows: bool) -> None:
        """Take over what a batch made, its transaction being committed (or silent)."""
        if overlay.instances:
            self.held.update(overlay.instances)
            self.dirty.update(overlay.instances)
        if self.position == self.marker:
            self.dirty_since_s = now_s
        if rows and overlay.position > self.rows_to:
            if not (self.touched or self.events):
                self.touched_since_s = now_s
            self.touched.update(overlay.instances)
            self.events.extend(overlay.events)
            self.resolved.extend(overlay.resolved)
        for verdict, count in overlay.counts.items():
            self.counts[verdict] = self.counts.get(verdict, 0) + count
        self.position, self.digests = overlay.position, overlay.digests
        self.decided_to = max(self.decided_to, overlay.decided_to)
        for activation in overlay.activations:
            self.activations.append(activation)
        self._forget_decisions()
        if self.dues is not None:
            self.dues.merged(overlay.instances, overlay.position, self.held.get)

    def active(self, offset: int) -> int:
        """Definition version that an instance begun at this offset is folded with (P13).

        Raises:
            FenceError: DEFINITION_MISSING when no activation stands at or below the offset.
        """
        place = bisect_right(self.activations, offset, key=lambda each: each.offset)
        if place:
            return self.activations[place - 1].version
        if self.pending is not None and self.pending.offset <= offset:
            return self.pending.version
        raise FenceError(
            Code.DEFINITION_MISSING,
            f"No definition of {self.workflow.name} is active at offset {offset}.",
            "The partition's decision log has lost its first activation: restore it, or rebuild.",
            topic=self.topic,
            partition=self.number,
            offset=offset,
        )

    def diverged(self) -> str | None:
        """At the end of silent replay: how the digests differ from the committed, None if not."""
        if self.expected is None or self.position < self.silent_to:
            return None
        found = self.digests.fold.value()
        if found == self.expected.fold:
            return None
        return f"expected fold digest {self.expected.fold}, found {found}"

    def worded_otherwise(self) -> bool:
        """At the end of silent replay: True when a command that was sent had another value.

        Its key is the same, so nothing is sent twice: an alarm, no fence (P19).
        """
        if self.expected is None or self.position != self.silent_to:
            return False
        return self.digests.command.value() != self.expected.command

    def _forget_decisions(self) -> None:
        for known in (self.decisions, self.forced):
            for offset in list(takewhile(lambda each: each < self.position, known)):
                del known[offset]
