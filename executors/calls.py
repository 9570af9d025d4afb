"""One call: a handler or a question to the other side, and what its end means.

Law of this module: only the classes of `refold.executors.outcome` and an answer say what
happened; a time-out, a lost connection, any other exception mean unknown. Nothing here touches
the ledger; nothing that a handler raises leaves here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import isawaitable
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from refold.executors.circuit import Sign
from refold.executors.executor import Action, Call, Forward, Read, decoded
from refold.executors.model import Claimed, Ended, Status
from refold.executors.outcome import (
    Accepted,
    AnswerLostError,
    CannotTell,
    Declined,
    Done,
    Ending,
    Incurable,
    NotDone,
    TooLate,
    Unauthorized,
    Unavailable,
    Undone,
    said,
    shown,
)
from refold.executors.truth import Queryable
from refold.processors.engine_events import FAILED, SUCCEEDED, UNKNOWN, Failed, Succeeded, Unknown
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import Outcome, derived_id
from refold.schemas.errors import RefoldError
from refold.schemas.limits import VALUE_BYTES, bounded_text
from refold.schemas.types import Command
from refold.snapshots.faults import Fault, fault
from refold.snapshots.sessions import Connection

ASK_FIRST_S: Final = 0.25
ASK_MOST_S: Final = 60.0
"""Pause between two questions about one action: half its age, between these."""
POLL_SHARE: Final = 0.1
POLL_MOST_S: Final = 3600.0
"""Pause between two questions about what was accepted: as declared, or this share of its age."""
NEVER_S: Final = 3_000_000_000.0
"""No question and no repetition any more: a person decides."""
CALLS_MOST: Final = 5
"""Calls that ended with their process: then the workflow decides about another one."""
_SERVER_FAULTS: Final = frozenset(
    {Fault.LOST, Fault.READ_ONLY, Fault.CONFLICT, Fault.AWAY, Fault.SLOW, Fault.LOCKED}
)
"""What is the ledger's server's and not the fault of a local handler's own statements."""
_DOWN: Final = (ConnectionError, TimeoutError, AnswerLostError)


class End(NamedTuple):
    """How a call ended, and what that says about the other side."""

    claimed: Claimed
    ended: Ended
    sign: Sign


def perform(claimed: Claimed, action: Action, call: Call, command: Any) -> End:
    """Call an ordinary handler once."""
    try:
        call.before_send()
        answer = action.handler(command, call)
    except BaseException as error:
        return judged(claimed, raised, error)
    return judged(claimed, returned, answer)


async def perform_async(claimed: Claimed, action: Action, call: Call, command: Any) -> End:
    """Call an asynchronous handler once."""
    try:
        call.before_send()
        answer: Any = await action.handler(command, call)  # type: ignore[misc]  # it is one
    except BaseException as error:
        return judged(claimed, raised, error)
    return judged(claimed, returned, answer)


def judged(claimed: Claimed, judge: Callable[[Claimed, Any], End], said_: Any) -> End:
    """What a handler gave, judged; what cannot even be looked at means unknown."""
    try:
        return judge(claimed, said_)
    except Exception as error:
        reason = f"its {type(said_).__name__} cannot be judged: {_said(error)}"
        return End(claimed, unknown(claimed, reason), Sign.NOTHING)


def returned(claimed: Claimed, answer: Any) -> End:
    """What a handler's answer means."""
    if isinstance(answer, Accepted):
        return End(claimed, _accepted(claimed, answer), Sign.ANSWERED)
    if isawaitable(answer):
        if isinstance(answer, Coroutine):
            answer.close()
        reason = "it gave something to be awaited: declare it with `async def`"
        return End(claimed, unknown(claimed, reason, ask_after_s=NEVER_S), Sign.NOTHING)
    done = answer if isinstance(answer, Done) else Done(answer)
    return End(claimed, succeeded(claimed, done), Sign.ANSWERED)


def raised(claimed: Claimed, error: BaseException) -> End:
    """What an exception of a handler means."""
    if isinstance(error, Declined):
        return End(claimed, declined(claimed, error), Sign.ANSWERED)
    if not isinstance(error, Ending):
        return End(claimed, unknown(claimed, _said(error)), _sign(error))
    if claimed.known is Status.UNKNOWN:
        # This attempt did nothing; what the one before it did is as unknown as it was.
        return End(claimed, unknown(claimed, error.reason), _sign(error))
    return End(claimed, _without_effect(claimed, error), _sign(error))


def _without_effect(claimed: Claimed, error: Ending) -> Ended:
    """The end of a call that certainly had no effect."""
    if isinstance(error, Unauthorized | TooLate):
        return _planned(claimed, error.reason)
    if isinstance(error, NotDone):
        return failed(claimed, error.code, error.reason, retry_after_s=error.retry_after_s)
    return failed(claimed, error.code, error.reason, retry=False)


def overdue(claimed: Claimed, deadline_s: float) -> End:
    """The call has not ended in its time."""
    return End(claimed, unknown(claimed, f"no answer within {deadline_s:g} s"), Sign.DOWN)


def perform_local(
    claimed: Claimed, action: Action, call: Call, command: Any, connection: Connection
) -> Ended:
    """Call the handler of a `Local` action in the ledger's transaction.

    What a handler that raises has written is rolled back, and the action has certainly not been
    done.

    Raises:
        psycopg.Error: The whole transaction is to be run again, or is lost.
    """
    connection.execute("SAVEPOINT handler")
    try:
        call.before_send()
        ended = judged(claimed, returned, action.handler(command, call, connection)).ended
        if ended.status is Status.SUCCEEDED:
            # Here, and not at the end of the transaction, where the handler's fault is the row's.
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            if connection.info.transaction_status is TransactionStatus.INTRANS:
                return ended
        reason = ended.reason or "a local action is done when its transaction is"
        error: BaseException = Incurable("LOCAL_ANSWER", reason)
    except BaseException as raised_:
        if isinstance(raised_, psycopg.Error) and fault(raised_) in _SERVER_FAULTS:
            raise
        error = raised_
    if connection.info.transaction_status is TransactionStatus.IDLE:
        reason = f"its handler ended the ledger's transaction itself: {_said(error)}"
        return unknown(claimed, reason, ask_after_s=NEVER_S)  # what it wrote may stand, or not
    connection.execute("ROLLBACK TO SAVEPOINT handler")
    if isinstance(error, Ending):
        return judged(claimed, raised, error).ended
    return failed(claimed, "LOCAL_RAISED", _said(error))


async def asked(claimed: Claimed, action: Action, asking: Awaitable[Any]) -> End:
    """What the other side says about a call whose outcome is unknown, or that it has accepted.

    Of what it has accepted only "done" counts: everything else means "not yet".

    Args:
        claimed: The row.
        action: Its action.
        asking: Brings the answer; an exception is brought as a value.
    """
    task = asyncio.ensure_future(asking)
    try:
        # Not `wait_for`, which waits for ever for a question that will not be cancelled.
        await asyncio.wait({task}, timeout=action.deadline_s)
    finally:
        given_up = not task.done() and task.cancel()
    if given_up or task.cancelled():
        answer: Any = TimeoutError(f"no answer within {action.deadline_s:g} s")
    else:
        answer = task.exception() or task.result()
    return judged(claimed, partial(_heard, action), answer)


def _heard(action: Action, claimed: Claimed, answer: Any) -> End:
    if isinstance(answer, Done):
        return End(claimed, succeeded(claimed, answer), Sign.ANSWERED)
    if claimed.known is Status.IN_FLIGHT:
        return _not_yet(claimed, action, answer)
    if isinstance(answer, Undone):
        return End(claimed, _undone(claimed, action), Sign.ANSWERED)
    reason = _untold(answer) or "the other side cannot tell"
    return End(claimed, unknown(claimed, reason), Sign.DOWN)


def _not_yet(claimed: Claimed, action: Action, answer: Any) -> End:
    """The other side goes on with what it has accepted, or could not be asked about it."""
    poll_s = action.truth.poll_s if isinstance(action.truth, Queryable) else None
    pause_s = max(poll_s or ASK_MOST_S, min(POLL_SHARE * claimed.since_s, POLL_MOST_S))
    ended = Ended(
        key=claimed.key, epoch=claimed.epoch, attempt=claimed.attempt, status=Status.IN_FLIGHT,
        reason=bounded_text(_untold(answer)), retry_after_s=pause_s,
    )  # fmt: skip
    told = {Undone: Sign.ANSWERED, CannotTell: Sign.NOTHING}
    return End(claimed, ended, told.get(type(answer), Sign.DOWN))


def _untold(answer: Any) -> str:
    """Why an answer to a question does not tell what happened."""
    if isinstance(answer, Undone):
        return ""
    if isinstance(answer, CannotTell):
        return said(answer.reason)
    if isinstance(answer, BaseException):  # not asked is not told
        return f"asking: {_said(answer)}"
    return f"asked, it answered {shown(answer):.80}"


def call_of(
    claimed: Claimed, action: Action, until_s: float | None = None, read: Read = decoded
) -> Call:
    """What a handler is told about its call."""
    forward = None
    if claimed.forward_result is not None:
        forward = Forward(claimed.forward_type, claimed.forward_result, read)
    return Call(
        claimed.key, claimed.attempt, action.deadline_s, until_s, claimed.tenant,
        claimed.workflow, claimed.instance, claimed.trace,
        repeated=claimed.known is Status.UNKNOWN, forward=forward,
    )  # fmt: skip


def succeeded(claimed: Claimed, done: Done) -> Ended:
    """The end of an action that is done."""
    if done.event is None:
        text = "it had been done before" if done.already else ""
        return _told(
            claimed, Outcome.SUCCEEDED, SUCCEEDED, Succeeded(text=text), already=done.already
        )
    try:
        if isinstance(done.event, Command):
            raise TypeError("a command, and an event is wanted")
        codec: Codec[Any] = codec_of(type(done.event))
        return _told(claimed, Outcome.SUCCEEDED, codec, done.event, already=done.already)
    except Exception as error:  # it took place and cannot be told: no second call
        reason = f"it is done, but its event cannot be sent: {_said(error)}"
        return unknown(claimed, reason, ask_after_s=NEVER_S)


def assumed(claimed: Claimed) -> Ended:
    """The end of an unknown action that is declared to count as done."""
    said = Succeeded(text="nobody knows; assumed done, as declared")
    return _told(claimed, Outcome.SUCCEEDED, SUCCEEDED, said, reason=said.text)


def declined(claimed: Claimed, refusal: Declined) -> Ended:
    """The end of an action that was refused, with the event that says so."""
    try:
        codec: Codec[Any] = codec_of(type(refusal.event))
        return _told(
            claimed, Outcome.FAILED, codec, refusal.event, Status.FAILED, reason=refusal.reason
        )
    except Exception as error:
        reason = f"declined, with an event that cannot be sent: {_said(error)}"
        return failed(claimed, "UNENCODABLE", reason, retry=False)


def failed(
    claimed: Claimed, code: str, reason: str, *, retry: bool = True, retry_after_s: float = 0.0
) -> Ended:
    """The end of an attempt that certainly did nothing."""
    event = Failed(
        code=code, text=bounded_text(reason), retry=retry,
        retry_after_ms=max(0, round(retry_after_s * 1000)),
    )  # fmt: skip
    return _told(claimed, Outcome.FAILED, FAILED, event, Status.FAILED, reason=reason)


def unknown(claimed: Claimed, reason: str, ask_after_s: float | None = None) -> Ended:
    """The end of an attempt that may have done it; told once, when it becomes unknown."""
    if ask_after_s is None:
        ask_after_s = min(max(ASK_FIRST_S, 0.5 * claimed.since_s), ASK_MOST_S)
    if claimed.known is Status.UNKNOWN:
        return Ended(
            key=claimed.key, epoch=claimed.epoch, attempt=claimed.attempt, status=Status.UNKNOWN,
            reason=bounded_text(reason), retry_after_s=ask_after_s,
        )  # fmt: skip
    return _told(
        claimed, Outcome.UNKNOWN, UNKNOWN, Unknown(text=bounded_text(reason)), Status.UNKNOWN,
        reason=reason, retry_after_s=ask_after_s,
    )  # fmt: skip


def _told(
    claimed: Claimed, outcome: Outcome, codec: Codec[Any], event: Any,
    status: Status = Status.SUCCEEDED, *, already: bool = False, reason: str = "",
    retry_after_s: float = 0.0,
) -> Ended:  # fmt: skip
    attempt = () if outcome is Outcome.SUCCEEDED else (str(claimed.attempt),)
    value = codec.encode(event)
    if len(value) > VALUE_BYTES:
        raise ValueError(f"it has {len(value):,} bytes, at most {VALUE_BYTES:,} are sent")
    return Ended(
        key=claimed.key,
        epoch=claimed.epoch,
        attempt=claimed.attempt,
        status=status,
        outcome=outcome,
        already=bool(already),
        type=codec.name,
        value=value,
        event_id=derived_id("result", claimed.key, outcome, *attempt),
        reason=bounded_text(reason) if reason else "",
        retry_after_s=retry_after_s,
    )


def _planned(claimed: Claimed, reason: str) -> Ended:
    """Not sent: the row is as it was before the claim, and no attempt is used up."""
    return Ended(
        key=claimed.key, epoch=claimed.epoch, attempt=claimed.attempt, status=Status.PLANNED,
        reason=bounded_text(reason),
    )  # fmt: skip


def _accepted(claimed: Claimed, answer: Accepted) -> Ended:
    return Ended(
        key=claimed.key, epoch=claimed.epoch, attempt=claimed.attempt, status=Status.IN_FLIGHT,
        reference=answer.reference, until_s=answer.deadline_s,
    )  # fmt: skip


def _undone(claimed: Claimed, action: Action) -> Ended:
    """The other side has not done it, if it would show it by now (P31)."""
    visible_s = action.truth.visible_after_s if isinstance(action.truth, Queryable) else 0.0
    early_s = action.deadline_s + visible_s - claimed.since_s
    if early_s > 0:
        return unknown(claimed, "not done, said too early to count", ask_after_s=early_s)
    if claimed.lost and claimed.epoch < CALLS_MOST:
        return _planned(claimed, "the call ended with its process, and had not been done")
    return failed(claimed, "UNDONE", "the other side has not done it")


def _sign(error: BaseException) -> Sign:
    """What an exception says about the other side."""
    if isinstance(error, Unauthorized):
        return Sign.SHUT
    if isinstance(error, TooLate):
        return Sign.NOTHING
    if isinstance(error, (Unavailable, *_DOWN)):
        return Sign.DOWN
    return Sign.ANSWERED if isinstance(error, Ending) else Sign.NOTHING


def _said(error: BaseException) -> str:
    what = error.what if isinstance(error, RefoldError) else said(error)
    return f"{type(error).__name__}: {what}".rstrip(": ")
