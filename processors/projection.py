"""The instance row: what a person and a query see of an instance.

Law of this module: a projection. What JSON cannot hold is shown as far as it can be, marked
lossy, and never stops the canonical snapshot.
"""

from collections.abc import Sequence

import msgspec

from refold.processors.definition import Definition
from refold.processors.forks import BRANCH_BYTES
from refold.processors.instance import NOTHING_MORE, Instance, More, OpenAction, Timer
from refold.processors.keys import COMPENSATE, FORWARD
from refold.processors.status import run_status
from refold.snapshots.model import InstanceRow

_JSON = msgspec.json.Encoder(order="sorted", decimal_format="string")


class ShownTimer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An armed timer as a row has it."""

    id: str
    name: str
    due_ms: int
    attempt: int
    """Of the action that it tries again; 1 for a timer of the state."""
    key: str = ""


class ShownAction(msgspec.Struct, frozen=True, kw_only=True):
    """An open action as a row has it, without the command's value."""

    key: str
    action: str
    target: str
    state: str
    direction: str
    attempt: int
    status: str
    """`waiting` for its answer, `retrying` until its timer rings, or `unknown`."""
    since_ms: int


_TIMERS = msgspec.json.Decoder(list[ShownTimer])


def instance_row(definition: Definition, record: Instance) -> InstanceRow:
    """Project one instance record.

    Args:
        definition: The version that folds it.
        record: The committed record.
    """
    context = _JSON.encode(definition.plain(record.context))
    more = record.more
    parked = more.parked
    timers = actions = None
    if more is not NOTHING_MORE:
        timers = _JSON.encode(shown_timers(more)) if more.timers else None
        actions = _JSON.encode(shown_actions(more)) if more.actions else None
    return InstanceRow(
        tenant=record.tenant,
        instance=record.id,
        definition=record.definition,
        state=record.state,
        state_since_ms=record.since_ms,
        run_status=str(run_status(definition, record)),
        context=context,
        lossy=b"\\u0000" in context,
        version=record.version,
        last_offset=record.last_offset,
        last_source=record.last_source,
        last_id=record.last_id,
        due_ms=None if parked is not None else more.due_ms,
        failure_code=parked.code if parked else None,
        failure_text=parked.text if parked else None,
        created_ms=record.created_ms,
        updated_ms=record.fold_ms,
        timers=timers,
        actions=actions,
    )


def shown_timers(more: More) -> Sequence[ShownTimer]:
    """The armed timers in the order in which they ring."""
    attempts = {one.key: one.attempt + 1 for one in more.actions}
    return [
        ShownTimer(
            id=one.id,
            name=one.name,
            due_ms=one.due_ms,
            attempt=attempts.get(one.key, 1),
            key=one.key,
        )
        for one in sorted(more.timers, key=lambda each: each.due_ms)
    ]


class ShownFork(msgspec.Struct, frozen=True, kw_only=True):
    """Branches that a state began, for people."""

    branches: str
    """Type of their commands, or the workflow whose instances they are."""
    asked: int
    succeeded: int
    failed: int
    open: int


def shown_forks(more: More) -> Sequence[ShownFork]:
    """The forks of the present state."""
    return [
        ShownFork(
            branches=one.type,
            asked=one.asked,
            succeeded=one.succeeded,
            failed=one.failed,
            open=len(one.pending) // BRANCH_BYTES,
        )
        for one in more.forks
    ]


def shown_actions(more: More) -> Sequence[ShownAction]:
    """The open actions in the order in which they were asked for."""
    return [_shown(one) for one in more.actions]


def timers_of(shown: str) -> tuple[Timer, ...]:
    """The timers of a row, as the fold has them.

    Raises:
        msgspec.MsgspecError: The text was not written here.
    """
    return tuple(Timer(one.id, one.name, one.due_ms, one.key) for one in _TIMERS.decode(shown))


def _shown(one: OpenAction) -> ShownAction:
    return ShownAction(
        key=one.key,
        action=one.action,
        target=one.target,
        state=one.state,
        direction=COMPENSATE if one.undoes else FORWARD,
        attempt=one.attempt,
        status=one.known or "waiting",
        since_ms=one.since_ms,
    )
