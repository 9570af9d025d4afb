"""The closed set of what a step may decide and want. Data only; `fold` makes it, others act.

Law of this module: no function with an effect, no import that does I/O.
"""

import msgspec

from refold.processors.instance import Instance
from refold.schemas.envelope import Answer, Parent
from refold.schemas.verdicts import Reason, Verdict


class Send(msgspec.Struct, frozen=True, gc=False):
    """A command to put on `<ns>.<target>.commands`, encoded, with its idempotency key."""

    target: str
    type: str
    action: str
    key: str
    state: str
    value: bytes
    attempt: int = 1


class Publish(msgspec.Struct, frozen=True, gc=False):
    """An event to put on `<ns>.<workflow>.events`: for an instance of another workflow.

    Its source is `/refold/workflow/<workflow that sends it>`.
    """

    workflow: str
    instance: str
    """Of that workflow, in the tenant of the instance that sends it."""
    type: str
    id: str
    """Derived: the same event, folded again, has the same one."""
    value: bytes
    time: str | None = None
    answer: Answer | None = None
    parent: Parent | None = None
    """Of an event that starts an instance for this one, or asks for its undoing."""

    @property
    def key(self) -> str:
        """How digest and event-log index know it."""
        return self.id


Effect = Send | Publish
"""What is wanted of the world and of other workflows; timers are kept in the instance."""


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """What became, by this step, of an earlier record that was deferred or parked."""

    offset: int
    verdict: Verdict
    reason: Reason | None = None
    transition: str = ""


class Step(msgspec.Struct, frozen=True, gc=False):
    """The outcome of one record: what was decided, the new instance record, what is wanted.

    `instance` is the very object that went in when nothing changed, None if there is none.
    """

    verdict: Verdict
    instance: Instance | None
    effects: tuple[Effect, ...] = ()
    reason: Reason | None = None
    transition: str = ""
    """`<from>/<type>/<n>` of the transition that consumed the event, empty if none."""
    resolutions: tuple[Resolution, ...] = ()
