"""One partition's part of a batch: fold its records in order into an overlay, emit as they come.

Law of this module: the same code folds live and silently; only the emitter differs, and in
silence there is none (O5). Nothing here touches PostgreSQL or commits anything (P8).
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from zlib import crc32

import structlog
from confluent_kafka import Message

from refold.processors.effects import Step
from refold.processors.fold import fold, obey
from refold.processors.instance import Instance
from refold.processors.partition import Key, Overlay, Partition
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, InvariantViolation
from refold.schemas.verdicts import DECIDED, Decision, Reason, Verdict
from refold.snapshots.model import EventRow, ResolvedRow
from refold.topics.reading import offset_of
from refold.topics.records import Fault

LETTERS: Final[Mapping[str, str]] = {
    "applied": "a",
    "duplicate": "d",
    "already": "y",
    "conflict": "c",
    "refused": "r",
    "late": "l",
    "deferred": "w",
    "parked": "p",
    "poison": "x",
}
"""What the fold digest writes for a verdict."""

Pair = tuple[Message, EventRecord | Fault]
Run = Sequence[Pair]
"""Records of one partition in log order, with their envelopes."""
Released = Mapping[int, EventRecord]
"""Payloads that a redrive in this run needs, by offset (P28)."""

_LOG = structlog.get_logger("refold.fold")
_APPLIED: Final = Verdict.APPLIED
_NEVER: Final = 1 << 63
"""An offset that no record has."""


class Emitter(Protocol):
    """What happens to the effects of a live fold, inside the open transaction.

    Contract: `send` and `decide` only enqueue; order is the order of calls; they raise
    `confluent_kafka.KafkaException` when the client refuses, and the batch is aborted.
    """

    def send(self, event: EventRecord, step: Step) -> None:
        """Put the step's commands, and events for other workflows, on their topics."""
        ...

    def decide(self, message: Message, decision: Decision) -> None:
        """Put a decision with the record's bytes on the partition's decision log."""
        ...


def past(partition: Partition, run: list[Pair]) -> list[Pair]:
    """The records at or past the position: what the client gives from before was folded.

    Args:
        partition: Where they were read.
        run: At least one record, in log order.
    """
    if offset_of(run[0][0]) >= partition.position:
        return run
    fresh = [pair for pair in run if offset_of(pair[0]) >= partition.position]
    _LOG.warning("read again", partition=partition.number, records=len(run) - len(fresh))
    return fresh


def fold_run(
    partition: Partition,
    overlay: Overlay,
    run: Run,
    emitter: Emitter | None,
    released: Released,
    *,
    rows: bool,
) -> None:
    """Fold records into the overlay; with an emitter, emit what they want.

    Args:
        partition: The committed state; not changed.
        overlay: Gets instances, digests, counts and rows; its position moves past each record.
        run: Records at or past the overlay's position.
        emitter: None while folding silently.
        released: Payloads for a redrive in this run.
        rows: True to collect rows of the event-log index.

    Raises:
        InvariantViolation: An offset did not rise.
        FenceError: DEFINITION_MISSING.
        KafkaException: The client refused to enqueue.
    """
    fresh, held, workflow = overlay.instances, partition.held, partition.workflow
    plain = not (partition.decisions or partition.forced)
    rows_from = partition.rows_to if rows else _NEVER
    position, applied = overlay.position, 0
    for message, event in run:
        if plain and type(event) is EventRecord:
            offset, key = event.offset, (event.tenant, event.instance)
            instance = fresh.get(key) or held.get(key)
            if instance is None:
                step = _first(partition, message, event, released)
            else:
                step = fold(workflow, instance.definition, instance, event, released)
        else:
            offset = offset_of(message)
            key, instance, step = _decided(partition, overlay, message, event, offset, released)
        if offset < position:
            raise _fallen(partition, position, offset)
        position = offset + 1
        after = step.instance
        if after is not instance and after is not None:
            fresh[key] = after
        if step.verdict is _APPLIED and not step.resolutions:
            applied += 1
            line = f"{offset} a"
        else:
            line = _other(partition, overlay, message, offset, step, emitter)
        if step.effects:
            line += _sent(overlay, event, step, emitter)
        overlay.folds.append(line)
        if offset >= rows_from:
            overlay.events.append(_row(offset, message, event, instance, step))
    overlay.position = position
    if applied:
        overlay.counts["applied"] = overlay.counts.get("applied", 0) + applied


def _sent(overlay: Overlay, event: EventRecord | Fault, step: Step, emitter: Emitter | None) -> str:
    """Digest a step's commands and emit them."""
    line = ""
    for send in step.effects:
        line += " " + send.key
        overlay.commands.append(f"{crc32(send.value):x}")
    if emitter is not None and isinstance(event, EventRecord):  # a fault has no effects
        emitter.send(event, step)
    return line


def _first(partition: Partition, message: Message, event: EventRecord, released: Released) -> Step:
    """Fold a record whose instance is not known: is it on the right partition at all?"""
    fault = partition.reader.misplaced(message.key(), partition.number)  # type: ignore[arg-type]
    if fault is not None:
        return Step(fault.verdict, None, reason=fault.reason)
    return fold(partition.workflow, partition.active(event.offset), None, event, released)


def _decided(
    partition: Partition,
    overlay: Overlay,
    message: Message,
    event: EventRecord | Fault,
    offset: int,
    released: Released,
) -> tuple[Key, Instance | None, Step]:
    """The rarer ways: decisions stand, or the envelope is at fault."""
    decision = partition.decisions.get(offset) or partition.forced.get(offset)
    if not isinstance(event, EventRecord):
        verdict, reason = event.verdict, event.reason
        if decision is not None:
            verdict, reason = decision.verdict, decision.reason
        return ("", ""), None, Step(verdict, None, reason=reason)
    key = (event.tenant, event.instance)
    instance = overlay.instances.get(key) or partition.held.get(key)
    if decision is None and instance is None:
        return key, None, _first(partition, message, event, released)
    version = partition.active(offset) if instance is None else instance.definition
    if decision is None:
        return key, instance, fold(partition.workflow, version, instance, event, released)
    return key, instance, obey(partition.workflow, version, instance, event, decision)


def _other(
    partition: Partition,
    overlay: Overlay,
    message: Message,
    offset: int,
    step: Step,
    emitter: Emitter | None,
) -> str:
    verdict = step.verdict
    name = str(verdict)
    overlay.counts[name] = overlay.counts.get(name, 0) + 1
    if emitter is not None and verdict in DECIDED and offset not in partition.decisions:
        reason = step.reason or Reason(Code.BROKEN_INVARIANT, "no reason was given")
        if verdict is Verdict.PARKED and reason.code is not Code.QUEUED_BEHIND and step.instance:
            _LOG.warning(
                "parked",
                tenant=step.instance.tenant,
                instance=step.instance.id,
                code=str(reason.code),
                why=reason.text,
                partition=partition.number,
                offset=offset,
            )
        emitter.decide(message, Decision(offset, verdict, reason))
    line = f"{offset} {LETTERS[name]}"
    return line + _resolve(overlay, offset, step) if step.resolutions else line


def _resolve(overlay: Overlay, offset: int, step: Step) -> str:
    line = ""
    for each in step.resolutions:
        name = f"resolved.{each.verdict}"
        overlay.counts[name] = overlay.counts.get(name, 0) + 1
        line += f" {each.offset}{LETTERS[str(each.verdict)]}"
        code, text = (each.reason.code, each.reason.text) if each.reason else ("", "")
        overlay.resolved.append(ResolvedRow(each.offset, str(each.verdict), offset, code, text))
    return line


def _row(
    offset: int,
    message: Message,
    event: EventRecord | Fault,
    before: Instance | None,
    step: Step,
) -> EventRow:
    after, reason = step.instance, step.reason
    code, text = (reason.code, reason.text) if reason else ("", "")
    if not isinstance(event, EventRecord):
        stamp = message.timestamp()[1]
        return EventRow(
            offset, "", "", "", "", "", stamp, str(step.verdict), "", "", "", (), code, text
        )
    return EventRow(
        offset,
        event.tenant,
        event.instance,
        event.source,
        event.id,
        event.type,
        event.log_time_ms,
        step.verdict,
        step.transition,
        before.state if before else "",
        after.state if after else "",
        [send.key for send in step.effects],
        code,
        text,
    )


def _fallen(partition: Partition, position: int, offset: int) -> InvariantViolation:
    return InvariantViolation(
        f"expected an offset at or past {position}, but read {offset}",
        topic=partition.topic,
        partition=partition.number,
        offset=offset,
    )
