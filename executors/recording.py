"""A call of any service through the ledger, without a graph and without Kafka.

    with ledger.action("refund:4711", action="Refund", target="bank",
                       request={"amount": 4800}, truth=ByKey(remembers_s=86_400)) as call:
        receipt = call.run(bank.refund, 4800, key=call.key)

Law of this module: the intent is durable before the body runs, and how the body ended is durable
before the block is left. `Declined`, `NotDone` and the like say that nothing happened; whatever
else leaves the body, and a process that dies in it, mean unknown. A key that was done is not done
again; one of unknown outcome goes on as its truth mode says, and by nothing else.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import cache
from math import inf
from threading import Thread
from time import monotonic
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, Self

import msgspec
import psycopg
import structlog

from refold.executors.executor import Call
from refold.executors.model import Ended, Settled, Status
from refold.executors.outcome import (
    LONGEST_S,
    CannotTell,
    Declined,
    Done,
    Ending,
    NotDone,
    TooLate,
    Undone,
    said,
)
from refold.executors.outcome import shown as shown_
from refold.executors.questions import TEXT
from refold.executors.statements import filled, statements
from refold.executors.truth import Local, Neither, Queryable, Then, Truth, fault_of, repeatable
from refold.executors.words import shown
from refold.schemas.canonical import hash16
from refold.schemas.errors import Code, RecordError, ServerError, UsageError
from refold.schemas.limits import KEY_BYTES, SOURCE_BYTES, bounded_text, id_fault
from refold.snapshots.runner import Runner
from refold.snapshots.sessions import CommitUnknownError, Connection, transaction

P = ParamSpec("P")
_LOG = structlog.get_logger("refold.ledger")
DEADLINE_S: Final = 60.0

_TEXT: Final[Mapping[str, str]] = {
    "begin": """
        INSERT INTO $s.workflow_action (key, tenant, workflow, instance_id, state, action,
            direction, target, target_system, truth, type, request, request_hash, attempt, wanted,
            status, epoch, worker, lease_until, reply_to, trace, partition, log_offset, dispatched,
            first_sent)
        VALUES (%(key)s, '', '', %(instance)s, '', %(action)s, 'forward', %(target)s, %(target)s,
            %(truth)s, %(type)s, %(request)s, %(hash)s, 1, 1, 'in_flight', 1, %(worker)s,
            now() + %(lease_s)s * interval '1 second', '', %(trace)s, -1, 0, now(), now())
        ON CONFLICT (key) DO NOTHING RETURNING epoch, dispatched""",
    "look": """
        SELECT status, epoch, attempt, request_hash = %(hash)s, contradicted, result,
               coalesce(extract(epoch FROM now() - first_sent), 0)::float8,
               coalesce(extract(epoch FROM now() - dispatched), 0)::float8,
               coalesce(lease_until < now(), true), dispatched
        FROM $s.workflow_action WHERE key = %(key)s FOR UPDATE SKIP LOCKED""",
    "again": """
        UPDATE $s.workflow_action
        SET status = 'in_flight', epoch = epoch + 1, attempt = %(attempt)s,
            wanted = greatest(wanted, %(attempt)s), truth = %(truth)s, worker = %(worker)s,
            lease_until = now() + %(lease_s)s * interval '1 second', dispatched = now(),
            first_sent = coalesce(first_sent, now()), lost = false, reference = ''
        WHERE key = %(key)s AND epoch = %(epoch)s AND status <> 'succeeded'
        RETURNING epoch, dispatched""",
    "standing": "SELECT epoch, dispatched FROM $s.workflow_action WHERE key = %(key)s",
    "lost": """
        UPDATE $s.workflow_action
        SET status = 'unknown', lost = true, recorded = now(), lease_until = NULL,
            reason = 'the lease ran out: its process died or hangs',
            attempts = attempts || jsonb_build_object('epoch', epoch, 'attempt', attempt,
                'worker', worker, 'began', dispatched, 'ended', now(), 'outcome', 'unknown',
                'reason', 'the lease ran out')
        WHERE key = %(key)s AND status = 'in_flight'""",
    "clash": """
        INSERT INTO $s.workflow_clash AS w (key, request_hash, type, request, attempt, partition,
                                            log_offset)
        VALUES (%(key)s, %(hash)s, %(type)s, %(request)s, 1, -1, 0)
        ON CONFLICT (key, request_hash) DO UPDATE SET seen = w.seen + 1, last_seen = now()""",
    "lock": """
        SELECT FROM $s.workflow_action
        WHERE key = %(key)s AND epoch = %(epoch)s AND status = 'in_flight' FOR UPDATE""",
}


class Records(Protocol):
    """What this module needs of a ledger."""

    worker: str
    schema: str
    runner: Runner

    def settle(self, ended: list[Ended]) -> Settled:
        """Record ends."""
        ...

    def settle_in(self, connection: Connection, ended: list[Ended]) -> Settled:
        """Record ends inside a transaction of the caller's."""
        ...


class _Row(NamedTuple):
    status: Status
    epoch: int
    attempt: int
    same: bool
    contradicted: bool
    result: bytes | None
    first_s: float
    since_s: float
    over: bool
    dispatched: datetime | None


class Recording:
    """One action of a service: the thing that `with ledger.action(…)` gives.

    Args:
        book: The ledger.
        key: Idempotency key; give it to the other side.
        action: What is done, as people know it.
        target: Who it is done by, as people know it.
        request: What is asked for, anything that JSON can hold: the same for the same key.
        truth: How an unknown outcome is cleared up.
        deadline_s: Seconds after which a call that has not ended counts as unknown, above 0.
        instance: What it belongs to: an order's number.
        trace: W3C traceparent, for people.

    Raises:
        UsageError: BAD_SETTING or BAD_KEY, the declaration cannot be kept.
        RecordError: NOT_STORABLE, the request is nothing that JSON can hold.

    Contract: a `with` block, once. `async with` does the same beside the event loop.
    """

    def __init__(
        self, book: Records, key: str, *, action: str, target: str, request: Any, truth: Truth,
        deadline_s: float = DEADLINE_S, instance: str = "", trace: str = "",
    ) -> None:  # fmt: skip
        _check(key, action, target, truth, deadline_s, instance + trace)
        self.key = key
        self.attempt = 1
        self.done = False
        """True where it had been done before: the body must not do it again."""
        self.repeated = False
        """True where an earlier call may have done it."""
        self._book = book
        self._sql = _statements(book.schema)
        self._truth = truth
        self._request = request
        self._deadline_s = deadline_s
        body = _json(request, "the request")
        self._values: dict[str, Any] = {
            "key": key, "action": action, "target": target, "truth": truth.mode, "type": TEXT,
            "request": body, "hash": hash16(body), "worker": book.worker, "lease_s": deadline_s,
            "instance": instance, "trace": trace,
        }  # fmt: skip
        self._epoch = 0
        self._mine: tuple[int, datetime] | None = None
        """Epoch and moment of a claim whose COMMIT may not have been answered."""
        self._until_s = inf
        self._result: Any = None
        self._ran = False
        """The function that was given to `run` has returned."""
        self._connection: Connection | None = None
        self._stack = ExitStack()

    @property
    def result(self) -> Any:
        """What the action gave, now or when it was done: data as JSON holds it."""
        return self._result

    @result.setter
    def result(self, value: Any) -> None:
        if self.done:
            raise UsageError(
                Code.KEY_REUSED,
                f"the action {self.key!r} had been done before, and its body ran again.",
                "Do the call through call.run(…), or under `if not call.done:`.",
            )
        self._result = value

    @property
    def connection(self) -> Connection:
        """For `Local`: the transaction that records the action; write the effect here.

        Raises:
            UsageError: BAD_SETTING, another truth mode.
        """
        if self._connection is None:
            raise UsageError(
                Code.BAD_SETTING,
                f"the action {self.key!r} has no connection: only a Local one that is to be done.",
                "Declare truth=Local(), and write under `if not call.done:` or in call.run(…).",
            )
        return self._connection

    def run(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function unless the action was done; gives the result either way.

        Raises:
            RecordError: NOT_STORABLE, the result is nothing that JSON can hold; it is recorded
                as done, without its result.
        """
        if not self.done:
            self.before_send()
            self.result = function(*args, **kwargs)
            self._ran = True
            self._result = msgspec.json.decode(self._stored())
        return self._result

    def before_send(self) -> None:
        """Directly before the effect: stop here if this call must not be made any more (P31).

        `run` asks it; a body that does slow things first and calls by itself asks it too.

        Raises:
            TooLate: The deadline is over; another process may be about to clear the call up.
        """
        if monotonic() >= self._until_s:
            raise TooLate("its time was over before it was sent")

    def __enter__(self) -> Self:
        self._until_s = monotonic() + self._deadline_s
        row = self._book.runner.run("beginning an action", self._begin)
        if row is not None:
            self._go_on(row)
        if isinstance(self._truth, Local) and not self.done:
            self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.done:
            return
        if self._connection is not None:
            self._close(error)
            return
        self._record(self._ended(error), error)
        if error is None:
            self._stored()

    async def __aenter__(self) -> Self:
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(self._give_up)
            raise

    def _give_up(self, entering: asyncio.Future[Self]) -> None:
        """Nobody is there any more to run the body: the action is left as not done."""
        if not entering.cancelled() and entering.exception() is None:
            error = NotDone("given up before it began")
            Thread(target=self.__exit__, args=(NotDone, error, None), daemon=True).start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _begin(self, connection: Connection) -> _Row | None:
        """Write the intent; gives the row that stands already."""
        with transaction(connection):
            new = connection.execute(self._sql["begin"], self._values).fetchone()
            if new is not None:
                self._epoch, self._mine = new[0], tuple(new)
                return None
            found = connection.execute(self._sql["look"], self._values, binary=True).fetchone()
            if found is None:
                raise self._unsettled("another process is at it now")
            row = _Row(Status(found[0]), *found[1:])
            if self._mine == (row.epoch, row.dispatched):
                return None  # written by this, and its COMMIT was not answered
            if not row.same:
                connection.execute(self._sql["clash"], self._values)
            elif row.status is Status.IN_FLIGHT and row.over:
                connection.execute(self._sql["lost"], self._values)
                row = row._replace(status=Status.UNKNOWN)
        return row

    def _go_on(self, row: _Row) -> None:
        """Go on from what is known of the key."""
        if not row.same:
            raise UsageError(
                Code.KEY_REUSED,
                f"the key {self.key!r} stands in the ledger with another request.",
                "One key is one request: derive it from what is asked for.",
            )
        self._epoch, self.attempt = row.epoch, row.attempt
        if row.status is Status.SUCCEEDED:
            self._take(row.result)
        elif row.status is Status.PLANNED:
            self._claim(row.attempt)
        elif row.status is Status.FAILED and not row.contradicted:
            self._claim(row.attempt + 1)
        elif row.status in (Status.UNKNOWN, Status.FAILED):
            self._clear_up(row)
        else:
            raise self._unsettled(f"it is {row.status}")

    def _clear_up(self, row: _Row) -> None:
        truth = self._truth
        if isinstance(truth, Local):
            self._claim(row.attempt)  # what it wrote would have settled the row
        elif isinstance(truth, Queryable):
            self._ask(truth, row)
        elif repeatable(truth, row.first_s):
            self.repeated = True
            self._claim(row.attempt)
        elif isinstance(truth, Neither) and truth.then is Then.ASSUME_DONE:
            self._found_done(Done(), "declared to count as done")
        else:
            raise self._unsettled("its outcome is unknown, and nobody can be asked")

    def _ask(self, truth: Queryable, row: _Row) -> None:
        call = Call(
            key=self.key, attempt=row.attempt, deadline_s=self._deadline_s, tenant="",
            workflow="", instance=self._values["instance"], trace=self._values["trace"],
        )  # fmt: skip
        try:
            answer = truth.reconcile(self._request, call)
            if asyncio.iscoroutine(answer):
                answer = asyncio.run(answer)
        except Exception as error:
            raise self._unsettled(f"the other side was asked in vain: {shown_(error)}") from error
        if isinstance(answer, Done):
            self._found_done(answer, "the other side says so")
        elif not isinstance(answer, Undone):
            said = answer.reason if isinstance(answer, CannotTell) else ""
            raise self._unsettled(f"the other side cannot tell{said and ': '}{said}")
        elif row.since_s < self._deadline_s + truth.visible_after_s:
            raise self._unsettled("the other side has not done it, said too early to count")
        else:
            self._claim(row.attempt)

    def _claim(self, attempt: int) -> None:
        """Take the row for a call, if nobody has taken it meanwhile."""
        values = self._values | {"attempt": attempt, "epoch": self._epoch}

        def work(connection: Connection) -> bool:
            with transaction(connection):
                taken = connection.execute(self._sql["again"], values).fetchone()
                if taken is None:  # by another, or by this, and its COMMIT was not answered
                    taken = connection.execute(self._sql["standing"], values).fetchone()
                    return taken is not None and self._mine == tuple(taken)
                self._mine = tuple(taken)
            return True

        self._until_s = monotonic() + self._deadline_s
        if not self._book.runner.run("claiming an action", work) or self._mine is None:
            raise self._unsettled("another process is at it now")
        self._epoch, self.attempt = self._mine[0], attempt

    def _found_done(self, answer: Done, reason: str) -> None:
        value = _json(answer.event, "the answer")
        self._book.settle([self._end(Status.SUCCEEDED, reason, value)])
        self._take(value)

    def _take(self, stored: bytes | None) -> None:
        self.done = True
        self._result = msgspec.json.decode(stored) if stored else None

    def _open(self) -> None:
        """Begin the transaction that holds the effect and the row."""
        connection = self._stack.enter_context(self._book.runner.sessions.borrow())
        self._stack.enter_context(transaction(connection))
        values = {"key": self.key, "epoch": self._epoch}
        if connection.execute(self._sql["lock"], values).fetchone() is None:
            self._stack.close()
            raise self._unsettled("another process is at it now")
        connection.execute(statements(self._book.schema)["untuned"])
        self._connection = connection

    def _close(self, error: BaseException | None) -> None:
        """End that transaction: both stand, or neither."""
        connection, self._connection = self._connection, None
        if error is None and connection is not None:
            try:
                with self._stack:
                    self._book.settle_in(connection, [self._ended(None)])
            except (psycopg.Error, CommitUnknownError) as away:
                raise ServerError(
                    Code.POSTGRES_AWAY,
                    f"PostgreSQL went away while {self.key!r} was recorded: {away}.",
                    "Run it again: if it stands it is not done again.",
                ) from away
            return
        if error is not None:
            self._stack.__exit__(type(error), error, error.__traceback__)
        self._record(self._end(Status.FAILED, f"taken back: {shown_(error)}", b"null"), error)

    def _record(self, ended: Ended, error: BaseException | None) -> None:
        try:
            self._book.settle([ended])
        except ServerError as away:
            if error is None:
                raise
            _LOG.error("an action's end is not recorded", key=self.key, error=str(away))

    def _ended(self, error: BaseException | None) -> Ended:
        if error is None or (self._ran and isinstance(error, RecordError)):
            try:
                return self._end(Status.SUCCEEDED, "", self._stored())
            except RecordError as unfit:
                return self._end(Status.SUCCEEDED, unfit.what, b"null")
        if isinstance(error, Ending) and not self.repeated:
            event = error.event if isinstance(error, Declined) else None
            return self._end(Status.FAILED, error.reason or error.code, shown(event))
        return self._end(Status.UNKNOWN, f"{type(error).__name__}: {said(error)}", b"null")

    def _stored(self) -> bytes:
        return _json(self._result, f"the action {self.key!r} is done, and its result")

    def _end(self, status: Status, reason: str, value: bytes) -> Ended:
        return Ended(
            key=self.key, epoch=self._epoch, attempt=self.attempt, status=status,
            outcome=str(status), type=TEXT, value=value, reason=bounded_text(reason),
        )  # fmt: skip

    def _unsettled(self, why: str) -> UsageError:
        return UsageError(
            Code.UNSETTLED,
            f"the action {self.key!r} cannot be done now: {why}.",
            "Try again later; `refold ledger show` tells what is known, "
            "`refold ledger settle` decides.",
        )


def _check(key: str, action: str, target: str, truth: Truth, deadline_s: float, rest: str) -> None:
    """Pass what a ledger can hold.

    Raises:
        UsageError: BAD_SETTING or BAD_KEY.
    """
    code, fault = Code.BAD_KEY, ""
    if not isinstance(key, str) or id_fault(key, KEY_BYTES):
        fault = f"has a key that {id_fault(key, KEY_BYTES) if isinstance(key, str) else 'is none'}"
    else:
        code = Code.BAD_SETTING
        for what, text in (("name", action), ("target", target)):
            if id_fault(text):
                fault = fault or f"has a {what} that {id_fault(text)}"
        if rest and id_fault(rest, 2 * SOURCE_BYTES):
            fault = fault or f"has an instance or trace that {id_fault(rest, 2 * SOURCE_BYTES)}"
        if not 0 < deadline_s <= LONGEST_S:
            fault = fault or "needs a deadline above 0 s, and of ten years at most"
        fault = fault or fault_of(truth, deadline_s)
    if fault:
        raise UsageError(code, f"the action {said(action)[:80]!r} {fault}.")


@cache
def _statements(schema: str) -> Mapping[str, bytes]:
    return filled(_TEXT, schema)


def _json(value: Any, what: str) -> bytes:
    try:
        return msgspec.json.encode(value, order="sorted")
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(
            Code.NOT_STORABLE, f"{what} cannot be written as JSON: {error}.",
            "Give plain data: numbers, texts, lists, mappings.",
        ) from error  # fmt: skip
