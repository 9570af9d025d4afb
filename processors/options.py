"""Everything that may be set about a worker, once, with the reason for its default.

Nothing here can change a verdict: what could is in the definition or on the log (P14).
"""

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one worker process; seconds end in `_s`, records in `_records`."""

    namespace: str = "refold"
    group: str = "refold.workers"
    name: str = ""
    """Name of this worker in status and logs; host and process id where empty."""
    activate_manually: bool = False
    """True for rolling deploys: another version waits for `refold definitions activate`."""
    batch_records: int = 5000
    """Most records of one transaction: beyond this the rate no longer grows (docs/figures.md)."""
    gather_s: float = 0.1
    """How long an idle loop waits before it looks after its partitions."""
    transaction_gap_s: float = 0.003
    """P10: the broker is still writing markers of the last transaction for about that long."""
    recoveries: int = 4
    """Partitions that are taken at the same time."""
    takeover_budget_s: float = 2.0
    """Seconds of silent replay that a successor may need: snapshots follow from it."""
    snapshot_max_age_s: float = 30.0
    """A dirty partition is saved at least that often."""
    freshness_s: float = 1.0
    """Age at which instance rows and event-log rows are flushed; the promise is twice that."""
    rows: bool = True
    """Write instance rows and the event-log index."""
    held_records: int = 200_000
    """Unsaved rows and dirty instances of a partition before its consumption pauses."""
    instances: int = 1_000_000
    """Instances held in memory; clean ones beyond it are evicted, oldest first (1 KB each)."""
    revoke_s: float = 2.0
    """P11: time for the final write when partitions are taken away."""
    retry_s: float = 0.5
    """Pause before a failed take is tried again."""
    fence_retry_s: float = 5.0
    """Pause before a fenced partition is looked at again: has a person chosen, is it cured?"""
    watchdog_s: float = 60.0
    """P12: a loop that hangs for this long ends the process with its traceback."""
    careful_records: int = 50
    """Good records after which careful mode ends."""
    preflight_s: float = 10.0
    """Pause between periodic preflights."""
    accept_finite_retention: bool = False
    timer_records: int = 500
    """Most timers of one transaction; twice as many may be on the log and not folded: so many
    other records wait behind at most, whatever is due at once."""
    horizon_s: float = 120.0
    """Timers that are due within so long are in memory; the rest stands in PostgreSQL."""
