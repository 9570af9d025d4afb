"""Words about actions that come after their call: the other side's answer, a person's decision.

Law of this module: a word settles what is not settled, and nothing else; what is said too late,
twice or against what stands is kept and does no harm (P30). An answer that comes before any row
bears its reference waits for the row. Functions on a connection inside the caller's transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from refold.executors.model import Ended, Heard, Status, Word
from refold.executors.outcome import Declined, Done, Incurable, NotDone
from refold.executors.questions import TEXT
from refold.executors.statements import NEXT, RESULT, filled
from refold.processors.engine_events import Failed, Succeeded
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import Outcome, derived_id
from refold.schemas.errors import Code, RecordError, UsageError
from refold.schemas.limits import VALUE_BYTES, bounded_text
from refold.snapshots.sessions import Connection

Ending = Done | Declined | Incurable | NotDone
_OPEN: Final = frozenset({Status.PLANNED, Status.IN_FLIGHT, Status.UNKNOWN})

_TEXT: Final[Mapping[str, str]] = {
    # An answer and the call that brings its reference may come at the same moment.
    "hold": "SELECT pg_advisory_xact_lock(hashtextextended('refold:answer:$s:' || %s, 0))",
    "row": """
        SELECT key, attempt, epoch, status, reference <> '', lease_until < now(), contradicted,
               reply_to = '' AND type = 'json'
        FROM $s.workflow_action WHERE key = %s FOR UPDATE""",
    "bearer": """
        SELECT key, epoch FROM $s.workflow_reference WHERE target = %s AND reference = %s""",
    "keep": """
        INSERT INTO $s.workflow_early_answer (target, reference, status, type, value, reason)
        VALUES (%(target)s, %(reference)s, %(status)s, %(type)s, %(value)s, %(reason)s)
        ON CONFLICT DO NOTHING""",
    "bear": """
        INSERT INTO $s.workflow_reference (target, reference, key, epoch)
        SELECT target, reference, key, epoch FROM $s.workflow_action
        WHERE key = ANY (%s::text[]) AND status = 'in_flight' AND reference <> ''
        ON CONFLICT DO NOTHING""",
    "early": """
        DELETE FROM $s.workflow_early_answer w USING $s.workflow_action a
        WHERE a.key = ANY (%s::text[]) AND w.target = a.target AND w.reference = a.reference
        RETURNING a.key, w.status, w.type, w.value, w.reason""",
    "decide": f"""
        WITH o AS (
            SELECT * FROM unnest(%(key)s::text[], %(attempt)s::int[], %(status)s::text[],
                %(type)s::text[], %(value)s::bytea[], %(event_id)s::text[], %(reason)s::text[])
                AS o (key, attempt, status, type, value, event_id, reason)),
        settled AS (
            UPDATE $s.workflow_action a
            SET {NEXT},
                result_type = o.type, result = o.value, result_event = o.event_id,
                result_outcome = o.status, reason = o.reason, decided_by = %(who)s,
                recorded = now(), lease_until = NULL, not_before = now(),
                attempts = a.attempts || jsonb_build_object('epoch', a.epoch,
                    'attempt', a.attempt, 'worker', %(by)s::text, 'began', a.dispatched,
                    'ended', now(), 'outcome', o.status, 'reason', o.reason)
            FROM o WHERE a.key = o.key AND a.status = ANY (%(open)s::text[])
            RETURNING a.key, a.reply_to, a.instance_id, a.tenant, a.trace)
        {RESULT}
        SELECT s.key, s.reply_to, s.instance_id, s.tenant, o.event_id, o.type, o.value, o.attempt,
               o.status, s.trace, true
        FROM settled s JOIN o ON o.key = s.key WHERE s.reply_to <> ''
        ON CONFLICT (event_id) DO NOTHING""",
    "against": """
        UPDATE $s.workflow_action a
        SET contradicted = a.contradicted OR %(against)s,
            attempts = a.attempts || jsonb_build_object('epoch', a.epoch, 'attempt', a.attempt,
                'worker', %(by)s::text, 'ended', now(), 'outcome', %(status)s::text,
                'reason', %(reason)s::text, 'late', true)
        WHERE key = %(key)s AND (%(against)s OR jsonb_array_length(attempts) < 100)""",
    "clear": """
        UPDATE $s.workflow_action a
        SET contradicted = false, decided_by = %(who)s,
            attempts = a.attempts || jsonb_build_object('attempt', a.attempt, 'worker',
                %(who)s::text, 'ended', now(), 'outcome', a.status, 'reason', %(reason)s::text)
        WHERE key = %(key)s""",
}


class Standing(NamedTuple):
    """A row, locked."""

    key: str
    attempt: int
    epoch: int
    status: Status
    accepted: bool = False
    run_out: bool | None = None
    """Its lease is over; None: it has none."""
    contradicted: bool = False
    plain: bool = False
    """Of a `with` block: no workflow waits for it, its result is JSON."""


def word_of(ending: Ending, reason: str = "") -> Word:
    """What a `Done`, `Declined`, `Incurable` or `NotDone` says, as a word.

    Args:
        ending: What is said. Of an action without a workflow, plain data do as well as an event.
        reason: For people; else its own.

    Raises:
        RecordError: The event cannot be encoded.
        DefinitionError: Its type cannot be an event's.
    """
    if isinstance(ending, Done):
        if ending.event is None:
            return _word(Status.SUCCEEDED, Succeeded(text=""), reason, b"null")
        return _word(Status.SUCCEEDED, ending.event, reason)
    if isinstance(ending, Declined):
        return _word(Status.FAILED, ending.event, reason or ending.reason)
    after_ms = round(ending.retry_after_s * 1000) if isinstance(ending, NotDone) else 0
    failed = Failed(
        code=ending.code, text=bounded_text(ending.reason), retry=isinstance(ending, NotDone),
        retry_after_ms=after_ms,
    )  # fmt: skip
    return _word(Status.FAILED, failed, reason or ending.reason, b"null")


def nothing_to_undo() -> Word:
    """A compensation whose forward action was not done (P33)."""
    return declared_done("nothing to undo")


def declared_done(reason: str) -> Word:
    """It is done, or need not be, and has no event of the user's to say so."""
    return _word(Status.SUCCEEDED, Succeeded(text=bounded_text(reason)), reason, b"null")


def declared_failed(reason: str, *, retry: bool) -> Word:
    """A person's word that certainly nothing happened."""
    event = Failed(code="DECIDED", text=bounded_text(reason), retry=retry, retry_after_ms=0)
    return _word(Status.FAILED, event, reason, b"null")


def standing(connection: Connection, schema: str, key: str) -> Standing | None:
    """The row of a key, locked until the end of the transaction."""
    row = connection.execute(words(schema)["row"], [key]).fetchone()
    if row is None:
        return None
    return Standing(row[0], row[1], row[2], Status(row[3]), *row[4:])


def hear(
    connection: Connection, schema: str, key: str, word: Word, by: str, epoch: int | None = None
) -> Heard:
    """Take the other side's word about a key.

    Args:
        connection: In a transaction.
        schema: Where the tables stand.
        key: Whose.
        word: What is said.
        by: Who heard it.
        epoch: Of the call that it is about, where that is known.

    Raises:
        UsageError: BAD_KEY, a workflow waits for it, and plain data are no event.
    """
    row = standing(connection, schema, key)
    if row is None:
        return Heard.STRANGE
    _check(row, word)
    failed = word.status is Status.FAILED
    stale = failed and epoch is not None and epoch != row.epoch
    if row.status in _OPEN and not stale and not (failed and row.status is Status.PLANNED):
        decide(connection, schema, [(row, word)], by, _OPEN)
        return Heard.SETTLED
    against = not stale and row.status not in _OPEN and row.status is not word.status
    if row.status is not word.status:
        values = {"key": key, "status": word.status, "reason": word.reason, "by": by}
        connection.execute(words(schema)["against"], values | {"against": against})
    return Heard.CONTRADICTS if against else Heard.KNOWN


def answer(
    connection: Connection, schema: str, target: str, reference: str, word: Word, by: str
) -> Heard:
    """Take an answer that bears the other side's reference; kept where no row bears it yet.

    Raises:
        UsageError: BAD_KEY, plain data: what bears references belongs to a workflow.
    """
    sql = words(schema)
    _check(Standing(reference, 0, 0, Status.UNKNOWN), word)
    hold(connection, schema, {reference})
    bearer = connection.execute(sql["bearer"], [target, reference]).fetchone()
    if bearer is not None:
        return hear(connection, schema, bearer[0], word, by, bearer[1])
    kept = {
        "target": target, "reference": reference, "status": word.status, "type": word.type,
        "value": word.value, "reason": word.reason,
    }  # fmt: skip
    connection.execute(sql["keep"], kept)
    return Heard.KEPT


def hold(connection: Connection, schema: str, references: Collection[str]) -> None:
    """Before rows come to bear references: answers that bear one of these wait."""
    for each in sorted(references):
        connection.execute(words(schema)["hold"], [each])


def bear(connection: Connection, schema: str, keys: Sequence[str], by: str) -> list[str]:
    """Rows bear their references from now on; gives those that an early answer settled."""
    sql = words(schema)
    connection.execute(sql["bear"], [keys])
    early = connection.execute(sql["early"], [keys], binary=True).fetchall()
    settled = []
    for key, status, type_, value, reason in early:
        word = Word(status=Status(status), type=type_, value=value, reason=reason)
        if hear(connection, schema, key, word, by) is Heard.SETTLED:
            settled.append(key)
    return settled


def decide(
    connection: Connection,
    schema: str,
    words_: Sequence[tuple[Standing, Word]],
    by: str,
    open_: Collection[Status],
    who: str = "",
) -> None:
    """Settle rows by words, with the events that tell it; the relay publishes them.

    Args:
        connection: In a transaction that has locked the rows.
        schema: Where the tables stand.
        words_: Rows, each once, with what is said of it.
        by: Who records it.
        open_: Rows of another status are left.
        who: The person who decided.
    """
    values: dict[str, Any] = {
        "key": [row.key for row, _ in words_],
        "attempt": [row.attempt for row, _ in words_],
        "status": [word.status for _, word in words_],
        "type": [TEXT if row.plain else word.type for row, word in words_],
        "value": [word.plain if row.plain else word.value for row, word in words_],
        "event_id": [event_id_of(row.key, word.status, row.attempt) for row, word in words_],
        "reason": [word.reason for _, word in words_],
        "who": who,
        "by": by,
        "open": sorted(open_),
    }
    connection.execute(words(schema)["decide"], values)


def decided(connection: Connection, schema: str, key: str, word: Word, who: str) -> Heard:
    """Take a person's word about a key, as `Ledger.decide` says."""
    row = standing(connection, schema, key)
    if row is None:
        raise UsageError(
            Code.NOT_FOUND, f"the ledger has no key {key!r}.", "`refold ledger list` lists them."
        )
    _check(row, word)
    if row.status is Status.IN_FLIGHT and not row.accepted and row.run_out is False:
        raise UsageError(
            Code.UNSETTLED,
            f"a worker is at {key!r} now.",
            "Wait until its call has ended, or its lease: then decide.",
        )
    if row.status in _OPEN:
        decide(connection, schema, [(row, word)], who, _OPEN, who)
        return Heard.SETTLED
    if row.contradicted and row.status is Status.FAILED and word.status is Status.SUCCEEDED:
        clear(connection, schema, key, who, word.reason)
        decide(connection, schema, [(row, word)], who, {Status.FAILED}, who)
        return Heard.SETTLED
    if row.status is not word.status:
        raise UsageError(
            Code.BAD_COMMAND_LINE,
            f"{key!r} is {row.status}, and what is settled never changes.",
            "Set right what it did by an event or another action; `--as "
            f"{row.status}` says that you have seen to a contradiction.",
        )
    if row.contradicted:
        clear(connection, schema, key, who, word.reason)
    return Heard.KNOWN


def clear(connection: Connection, schema: str, key: str, who: str, reason: str) -> None:
    """A person has seen to a contradiction."""
    values = {"key": key, "who": who, "reason": reason}
    connection.execute(words(schema)["clear"], values)


def event_id_of(key: str, status: Status, attempt: int) -> str:
    """Id of the event that tells a result (P30)."""
    if status is Status.SUCCEEDED:
        return derived_id("result", key, Outcome.SUCCEEDED)
    return derived_id("result", key, Outcome(status), str(attempt))


def accepted(ended: Sequence[Ended]) -> list[Ended]:
    """Those that the other side answers later."""
    return [each for each in ended if each.reference and each.status is Status.IN_FLIGHT]


@cache
def words(schema: str) -> Mapping[str, bytes]:
    """The statements by name."""
    return filled(_TEXT, schema)


def plain_word(status: Status, data: bytes, reason: str) -> Word:
    """A word about an action without a workflow: its result is JSON."""
    return Word(
        status=status, type=TEXT, value=data, plain=data, reason=bounded_text(reason)
    )  # fmt: skip


def _check(row: Standing, word: Word) -> None:
    """A workflow is told by an event."""
    if word.type == TEXT and not row.plain:
        raise UsageError(
            Code.BAD_KEY,
            f"a workflow waits for {row.key!r}, and plain data are no event.",
            "Give an event of its own: `--type MODULE:NAME` with `--data`, or `Done(event)`.",
        )


def _word(status: Status, event: Any, reason: str, plain: bytes | None = None) -> Word:
    if isinstance(event, dict | list | str | int | float):
        return plain_word(status, msgspec.json.encode(event, order="sorted"), reason)
    codec: Codec[Any] = codec_of(type(event))
    value = codec.encode(event)
    if len(value) > VALUE_BYTES:
        raise RecordError(
            Code.NOT_STORABLE,
            f"{codec.name} has {len(value):,} bytes, at most {VALUE_BYTES:,} are sent.",
            "Keep what is large elsewhere, and say where it is.",
        )
    return Word(
        status=status,
        type=codec.name,
        value=value,
        reason=bounded_text(reason),
        plain=shown(event) if plain is None else plain,
    )


def shown(event: Any) -> bytes:
    """An event as JSON, for actions that have no workflow to tell it to."""
    try:
        return msgspec.json.encode(event, order="sorted")
    except (TypeError, ValueError, RecursionError):
        return msgspec.json.encode(repr(event))
