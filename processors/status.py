"""What an instance is doing, for people and queries: derived, never set.

Law of this module: a closed list and one pure function from a record to it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

from refold.processors.instance import Instance


class RunStatus(StrEnum):
    """The closed list of what an instance can be doing."""

    RUNNING = "running"
    WAITING_CALLBACK = "waiting_callback"
    WAITING_INPUT = "waiting_input"
    WAITING_TIMER = "waiting_timer"
    RETRYING = "retrying"
    COMPENSATING = "compensating"
    PARKED = "parked"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    COMPENSATED = "compensated"
    TERMINATED = "terminated"
    CONTINUED = "continued"


ENDED: Final = frozenset(
    {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.COMPENSATED, RunStatus.CONTINUED}
)
"""What a final state may declare; `terminated` is an operator's end and not a state's."""
WAITING: Final = frozenset(
    {
        RunStatus.RUNNING,
        RunStatus.WAITING_CALLBACK,
        RunStatus.WAITING_INPUT,
        RunStatus.WAITING_TIMER,
        RunStatus.RETRYING,
        RunStatus.COMPENSATING,
        RunStatus.PAUSED,
    }
)
"""What a state that goes on may declare."""


class Statuses(Protocol):
    """What `run_status` needs of a definition."""

    @property
    def statuses(self) -> Mapping[str, RunStatus]:
        """Declared status of each state that declares one."""
        ...


def run_status(definition: Statuses, instance: Instance) -> RunStatus:
    """Derive what the instance is doing: parking, an operator's end, a retry, then its state."""
    if instance.more.parked is not None:  # an undoing may still fail after an operator's end
        return RunStatus.PARKED
    if instance.more.ended:
        return RunStatus.TERMINATED
    if instance.more.actions and any(one.known == "retrying" for one in instance.more.actions):
        return RunStatus.RETRYING
    return definition.statuses.get(instance.state, RunStatus.RUNNING)
