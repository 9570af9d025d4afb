"""An instance's history as JSON lines: what `refold history export` writes and tests read back.

Law of this module: one record of the event topic a line, its value whole (base64); a line that
was not written so is refused with its number. Beside the record stand the decision about it, if
one is on the log (P13), and the activated version at the first line of each.
"""

from collections.abc import Iterable, Iterator

import msgspec

from refold.schemas.envelope import Answer, EventRecord, Parent, body_digest, event_identity
from refold.schemas.errors import Code, UsageError
from refold.schemas.verdicts import Decision


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of the log, as JSON."""

    offset: int
    tenant: str
    instance: str
    source: str
    id: str
    type: str
    value: bytes
    log_time_ms: int
    time: str | None = None
    expected_state: str | None = None
    expected_version: int | None = None
    active: int | None = None
    """Definition version that a new instance begins with at this offset."""
    decision: Decision | None = None
    answer: Answer | None = None
    parent: Parent | None = None

    def record(self) -> EventRecord:
        """The record as the topic's reader hands it over."""
        return EventRecord(
            self.tenant,
            self.instance,
            self.source,
            self.id,
            self.type,
            self.value,
            self.offset,
            self.log_time_ms,
            event_identity(self.source, self.id),
            body_digest(self.type, self.value),
            self.time,
            self.expected_state,
            self.expected_version,
            answer=self.answer,
            parent=self.parent,
        )


def line_of(
    event: EventRecord, active: int | None = None, decision: Decision | None = None
) -> Line:
    """A record as a line of history."""
    return Line(
        offset=event.offset,
        tenant=event.tenant,
        instance=event.instance,
        source=event.source,
        id=event.id,
        type=event.type,
        value=event.value,
        log_time_ms=event.log_time_ms,
        time=event.time,
        expected_state=event.expected_state,
        expected_version=event.expected_version,
        active=active,
        decision=decision,
        answer=event.answer,
        parent=event.parent,
    )


def written(lines: Iterable[Line]) -> Iterator[str]:
    """Lines as JSON text, without line ends."""
    return (msgspec.json.encode(line).decode() for line in lines)


def read(text: Iterable[str]) -> Iterator[Line]:
    """Read lines back; empty ones are passed over.

    Raises:
        UsageError: A line is not a line of history.
    """
    for number, one in enumerate(text, 1):
        if not one.strip():
            continue
        try:
            yield msgspec.json.decode(one, type=Line)
        except msgspec.DecodeError as error:
            raise UsageError(
                Code.BAD_COMMAND_LINE,
                f"Line {number} of the history cannot be read: {error}.",
                "Export it again with `refold history export`.",
                line=number,
            ) from None
