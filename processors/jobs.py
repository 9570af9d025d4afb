"""What the loop asks the saver for, as data; and how it ended.

Law of this module: frozen; records are held by reference, as they stood when the job was made.
"""

from collections.abc import Sequence

import msgspec

from refold.processors.definition import Workflow
from refold.processors.digest import Digests
from refold.processors.instance import Instance
from refold.schemas.errors import RefoldError
from refold.schemas.verdicts import Activate
from refold.snapshots.model import EventRow, ResolvedRow


class CutJob(msgspec.Struct, frozen=True, kw_only=True):
    """Save these records and move the marker."""

    topic: str
    partition: int
    workflow: Workflow
    epoch: int
    previous: int
    marker: int
    decisions: int
    digests: Digests
    counts: dict[str, int]
    activations: Sequence[Activate]
    records: Sequence[Instance]


class FlushJob(msgspec.Struct, frozen=True, kw_only=True):
    """Write these rows and move `rows_to`."""

    topic: str
    topic_id: str
    partition: int
    workflow: Workflow
    epoch: int
    previous: int
    rows_to: int
    records: Sequence[Instance]
    events: Sequence[EventRow]
    resolved: Sequence[ResolvedRow]


class ReleaseJob(msgspec.Struct, frozen=True, kw_only=True):
    """Mark the partition as given back."""

    topic: str
    partition: int
    epoch: int


class NoteJob(msgspec.Struct, frozen=True, kw_only=True):
    """Write down the fence that a partition met: tools show it (O7)."""

    topic: str
    partition: int
    epoch: int
    fence: str


Job = CutJob | FlushJob | ReleaseJob | NoteJob


class Done(msgspec.Struct, frozen=True):
    """How a job ended: `good` is False when fenced, `error` is set when it must be repeated."""

    job: Job
    good: bool
    error: RefoldError | None
    seconds: float
