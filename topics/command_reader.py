"""Commands of one topic, read fast: what many of them share is judged once.

Law of this module: it gives what `read_command` gives, and never judges by itself. What the first
eight headers say, in the order in which refold writes them, is kept from a command that was read;
whatever else comes goes the long way.
"""

from typing import Final, NamedTuple

from confluent_kafka import Message

from refold.schemas.envelope import CommandRecord
from refold.schemas.limits import ID_BYTES, KEY_BYTES
from refold.topics.attributes import TRACE
from refold.topics.headers import RawHeaders, headers_of
from refold.topics.records import read_command

_SHARED: Final = (
    "ce_specversion",
    "ce_source",
    "content-type",
    "ce_replyto",
    "ce_type",
    "ce_tenant",
    "ce_state",
    "ce_attempt",
)
_HEAD: Final = len(_SHARED)
_OWN: Final = ("ce_id", "idempotency-key", "ce_time")
_CACHED: Final = 4096
"""Entries; a full cache is emptied, so memory is bounded."""


class _Shared(NamedTuple):
    """What the first headers say."""

    tenant: str
    workflow: str
    type: str
    attempt: int
    state: str
    reply_to: str


class CommandReader:
    """Reads commands; belongs to one thread, keeps nothing of any single command."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, bytes | None], ...], _Shared] = {}

    def read(self, message: Message) -> CommandRecord:
        """The envelope of a command.

        Raises:
            RecordError: As of `refold.topics.records.read_command`.
        """
        pairs = headers_of(message)
        shared = self._known.get(tuple(pairs[:_HEAD]))
        raw_instance, value = message.key(), message.value()
        if shared is None or not (value and raw_instance):
            return self._learn(message, pairs)
        try:
            (at_id, _), (at_key, raw_key), (at_time, raw_time), *traced = pairs[_HEAD:]
            instance, key, time = raw_instance.decode(), raw_key.decode(), raw_time.decode()  # type: ignore[union-attr]  # null is caught
        except (ValueError, AttributeError):  # UnicodeDecodeError is a ValueError
            return self._learn(message, pairs)
        if (
            (at_id, at_key, at_time) != _OWN
            or not (key and time and key.isprintable() and instance.isprintable())
            or len(raw_instance) > ID_BYTES
            or len(raw_key) > KEY_BYTES  # type: ignore[arg-type]  # it was decoded
            or (traced and not _is_trace(traced))
        ):
            return self._learn(message, pairs)
        tenant, workflow, kind, attempt, state, reply_to = shared
        return CommandRecord(
            tenant, instance, workflow, kind, key, attempt, state, reply_to, value,
            message.offset() or 0, time, traced[0][1] if traced else None,
        )  # fmt: skip

    def _learn(self, message: Message, pairs: RawHeaders) -> CommandRecord:
        record = read_command(message)
        if tuple(name for name, _ in pairs[:_HEAD]) == _SHARED:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[tuple(pairs[:_HEAD])] = _Shared(
                record.tenant, record.workflow, record.type, record.attempt, record.state,
                record.reply_to,
            )  # fmt: skip
        return record


def _is_trace(rest: RawHeaders) -> bool:
    """Whether what is left is a trace in the usual form, and no more."""
    (name, value), *more = rest
    return name == "traceparent" and not more and value is not None and bool(TRACE.match(value))
