"""One call: a handler or a question to the other side, and what its end means.

Law of this module: only `Declined`, `NotDone` and an answer say what happened; a time-out, a lost
connection, any other exception mean unknown. Nothing here touches the ledger.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from refold.executors.executor import Action, Call
from refold.executors.model import Claimed, Ended, Status
from refold.executors.outcome import CannotTell, Declined, Done, NotDone, Undone
from refold.executors.truth import ByKey, Neither, Queryable, Then
from refold.schemas.codec import codec_of
from refold.schemas.envelope import derived_id
from refold.schemas.errors import RecordError

ASK_AGAIN_S = 1.0


async def called(action: Action, claimed: Claimed) -> Ended:
    """Call the handler once, within the action's deadline."""
    try:
        command = action.codec.decode(claimed.request)
        answer = await _within(action.handler, command, _call(action, claimed), action)
        return _done(claimed, answer if isinstance(answer, Done) else Done(answer))
    except Declined as refusal:
        return _ended(claimed, Status.FAILED, refusal.event, reason=refusal.reason)
    except NotDone as later:
        return Ended(
            key=claimed.key, epoch=claimed.epoch, status=Status.PLANNED,
            reason=later.reason, retry_after_s=later.retry_after_s,
        )  # fmt: skip
    except Exception as error:  # whatever it was: nobody knows whether the other side acted
        return _unknown(claimed, f"{type(error).__name__}: {error}")


async def asked(action: Action, claimed: Claimed) -> Ended:  # noqa: PLR0911  # a way out each
    """Clear up an unknown outcome as the action's truth mode allows."""
    truth = action.truth
    if isinstance(truth, ByKey):
        if claimed.since_s < truth.remembers_s:
            return await called(action, claimed)
        return _unknown(claimed, "the other side no longer remembers the key")
    if isinstance(truth, Neither) and truth.then is Then.REPEAT:
        return await called(action, claimed)
    if not isinstance(truth, Queryable):
        return _unknown(claimed, "nobody can be asked: a person decides")
    try:
        command = action.codec.decode(claimed.request)
        answer = await _within(truth.reconcile, command, _call(action, claimed), action)
    except Exception as error:  # not asked is not told
        return _unknown(claimed, f"asking raised {type(error).__name__}: {error}")
    if isinstance(answer, Done):
        return _done(claimed, answer)
    if isinstance(answer, Undone):
        early = claimed.since_s < truth.visible_after_s + action.deadline_s
        if early:
            return _unknown(claimed, "not done, said too early to count")
        return Ended(key=claimed.key, epoch=claimed.epoch, status=Status.PLANNED)
    return _unknown(claimed, answer.reason if isinstance(answer, CannotTell) else "no answer")


def askable(action: Action) -> bool:
    """True where an unknown outcome can be cleared up without a person."""
    truth = action.truth
    return isinstance(truth, ByKey | Queryable) or (
        isinstance(truth, Neither) and truth.then is Then.REPEAT
    )


async def _within(
    function: Callable[[Any, Call], Any | Awaitable[Any]], command: Any, call: Call, action: Action
) -> Any:
    async def run() -> Any:
        if asyncio.iscoroutinefunction(function):
            return await function(command, call)
        return await asyncio.to_thread(function, command, call)

    return await asyncio.wait_for(run(), action.deadline_s)


def _call(action: Action, claimed: Claimed) -> Call:
    return Call(
        claimed.key, claimed.attempt, action.deadline_s, claimed.tenant, claimed.workflow,
        claimed.instance, claimed.trace,
    )  # fmt: skip


def _done(claimed: Claimed, answer: Done) -> Ended:
    try:
        return _ended(claimed, Status.SUCCEEDED, answer.event, already=answer.already)
    except RecordError as error:  # done, and not to be told: a bug of the handler, for a person
        return _unknown(claimed, f"it is done, but its event cannot be encoded: {error.what}")


def _ended(
    claimed: Claimed, status: Status, event: Any, *, already: bool = False, reason: str = ""
) -> Ended:
    codec = codec_of(type(event))
    attempt = () if status is Status.SUCCEEDED else (str(claimed.attempt),)
    return Ended(
        key=claimed.key,
        epoch=claimed.epoch,
        status=status,
        already=already,
        type=codec.name,
        value=codec.encode(event),
        event_id=derived_id("result", claimed.key, str(status), *attempt),
        reason=reason,
    )


def _unknown(claimed: Claimed, reason: str) -> Ended:
    return Ended(
        key=claimed.key, epoch=claimed.epoch, status=Status.UNKNOWN, reason=reason[:500],
        retry_after_s=ASK_AGAIN_S,
    )  # fmt: skip
