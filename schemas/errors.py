"""The tree of errors. The class says who is wrong, the code says what, the fields say where.

    RefoldError
    ├── UsageError            whoever called: a setting, a command line, an argument
    │   └── DefinitionError   the author of a definition
    ├── RecordError           the sender of one record: it is refused, its bytes are kept
    ├── ServerError           Kafka or PostgreSQL: away, too old, without rights; tried again
    ├── FenceError            one partition must not go on until a person or a check frees it
    └── InvariantViolation    refold itself: a bug, the partition stops loudly

Every code has a page in docs/errors/ (a test holds the two together). All are picklable.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, Self


class Code(StrEnum):
    """Every error code. A code never changes its meaning."""

    # usage and definitions
    BAD_SETTING = "BAD_SETTING"
    BAD_COMMAND_LINE = "BAD_COMMAND_LINE"
    DEFINITION_NOT_FOUND = "DEFINITION_NOT_FOUND"
    DEFINITION_INVALID = "DEFINITION_INVALID"
    DEFINITION_CHANGED = "DEFINITION_CHANGED"
    DEFINITION_MISSING = "DEFINITION_MISSING"
    IMPURE_REDUCER = "IMPURE_REDUCER"
    SCHEMA_INVALID = "SCHEMA_INVALID"
    SCHEMA_INCOMPATIBLE = "SCHEMA_INCOMPATIBLE"
    SCHEMA_COLLISION = "SCHEMA_COLLISION"
    NOT_FOUND = "NOT_FOUND"
    PARTITION_HELD = "PARTITION_HELD"
    KEY_REUSED = "KEY_REUSED"
    UNSETTLED = "UNSETTLED"
    # records
    BAD_KEY = "BAD_KEY"
    WRONG_PARTITION = "WRONG_PARTITION"
    BAD_ENVELOPE = "BAD_ENVELOPE"
    TOMBSTONE = "TOMBSTONE"
    RESERVED_TYPE = "RESERVED_TYPE"
    UNDECODABLE = "UNDECODABLE"
    SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN"
    CONFLICT = "CONFLICT"
    NO_TRANSITION = "NO_TRANSITION"
    STALE = "STALE"
    REDUCER_RAISED = "REDUCER_RAISED"
    UPCASTER_RAISED = "UPCASTER_RAISED"
    NOT_STORABLE = "NOT_STORABLE"
    INVARIANT_BROKEN = "INVARIANT_BROKEN"
    COMMAND_INVALID = "COMMAND_INVALID"
    COMMAND_TOO_LARGE = "COMMAND_TOO_LARGE"
    LIMIT_REACHED = "LIMIT_REACHED"
    QUEUED_BEHIND = "QUEUED_BEHIND"
    QUEUE_FULL = "QUEUE_FULL"
    REDRIVE_REFUSED = "REDRIVE_REFUSED"
    SUSPECT = "SUSPECT"
    ACTION_FAILED = "ACTION_FAILED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"
    JOIN_FAILED = "JOIN_FAILED"
    CHILD_EXISTS = "CHILD_EXISTS"
    ANSWER_MISSING = "ANSWER_MISSING"
    # servers
    KAFKA_AWAY = "KAFKA_AWAY"
    KAFKA_REFUSED = "KAFKA_REFUSED"
    POSTGRES_AWAY = "POSTGRES_AWAY"
    POSTGRES_REFUSED = "POSTGRES_REFUSED"
    REGISTRY_AWAY = "REGISTRY_AWAY"
    REGISTRY_REFUSED = "REGISTRY_REFUSED"
    TOPIC_MISSING = "TOPIC_MISSING"
    TOPIC_WRONG = "TOPIC_WRONG"
    SCHEMA_VERSION = "SCHEMA_VERSION"
    DELIVERY_REFUSED = "DELIVERY_REFUSED"
    DELIVERY_UNKNOWN = "DELIVERY_UNKNOWN"
    QUEUE_BACK_PRESSURE = "QUEUE_BACK_PRESSURE"
    # the local pair
    LOCAL_JAVA = "LOCAL_JAVA"
    LOCAL_PORT_TAKEN = "LOCAL_PORT_TAKEN"
    LOCAL_DOWNLOAD = "LOCAL_DOWNLOAD"
    LOCAL_DISK = "LOCAL_DISK"
    LOCAL_START = "LOCAL_START"
    DEMO_FAILED = "DEMO_FAILED"
    # fences of one partition
    FENCED = "FENCED"
    OFFSETS_MOVED = "OFFSETS_MOVED"
    OFFSETS_LOST = "OFFSETS_LOST"
    OFFSETS_OUT_OF_RANGE = "OFFSETS_OUT_OF_RANGE"
    LOG_REPLACED = "LOG_REPLACED"
    GROUP_CHANGED = "GROUP_CHANGED"
    PARTITIONS_CHANGED = "PARTITIONS_CHANGED"
    RETENTION_FINITE = "RETENTION_FINITE"
    REPLAY_DIVERGED = "REPLAY_DIVERGED"
    SNAPSHOT_DAMAGED = "SNAPSHOT_DAMAGED"
    # ourselves
    BROKEN_INVARIANT = "BROKEN_INVARIANT"


KNOWN_MOST: Final = 20
"""Names that one message lists."""


class RefoldError(Exception):
    """An error with a code, a sentence for a person, and the cure.

    Args:
        code: What went wrong; its page in docs/errors/ says what to do at length.
        what: One sentence: who is wrong, what was expected, what was found.
        cure: One sentence: what to do now.
        where: Coordinates for machines: topic, partition, offset, state, and so on.
    """

    def __init__(self, code: Code, what: str, cure: str = "", **where: object) -> None:
        super().__init__(code, what, cure, where)
        self.code = code
        self.what = what
        self.cure = cure
        self.where = where

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.what, self.cure, self.where))

    def __str__(self) -> str:
        where = "".join(f" {name}={value}" for name, value in self.where.items())
        cure = f" {self.cure}" if self.cure else ""
        return f"{self.code}: {self.what}{cure}" + (f" [{where.strip()}]" if where else "")

    @classmethod
    def of(cls, code: Code, what: str, cure: str, where: dict[str, object]) -> Self:
        """Build from parts that already stand in a dict."""
        return cls(code, what, cure, **where)


def _rebuild(
    cls: type[RefoldError], code: Code, what: str, cure: str, where: dict[str, object]
) -> RefoldError:
    return cls.of(code, what, cure, where)


def nearest(name: str, known: Iterable[str]) -> str:
    """The beginning of a cure: `Did you mean …? `, or nothing where no known name is near."""
    found = get_close_matches(name, [each for each in known if each != name], n=1, cutoff=0.7)
    return f"Did you mean {found[0]}? " if found else ""


class UsageError(RefoldError):
    """Whoever called refold is wrong."""


def unknown(what: str, name: str, where: str, known: Iterable[str]) -> UsageError:
    """There is nothing of that name; says which names there are.

    Args:
        what: What it would be: "workflow".
        name: As it was given.
        where: Where it was looked for: "in PostgreSQL".
        known: Every name that is there.
    """
    names = sorted(set(known))
    listed = ", ".join(names[:KNOWN_MOST]) + (", …" if len(names) > KNOWN_MOST else "")
    return UsageError(
        Code.NOT_FOUND,
        f"There is no {what} {name!r} {where}.",
        f"{nearest(name, names)}Known: {listed or 'none'}.",
    )


class DefinitionError(UsageError):
    """The author of a definition is wrong."""


class RecordError(RefoldError):
    """The sender of a record is wrong."""


class ServerError(RefoldError):
    """Kafka or PostgreSQL is away or refuses; nothing is lost, it is tried again."""


class FenceError(RefoldError):
    """One partition must not go on."""


class InvariantViolation(RefoldError):  # noqa: N818 - the name of the thing itself
    """refold is wrong: a bug. Never caught to go on."""

    def __init__(self, what: str, **where: object) -> None:
        super().__init__(
            Code.BROKEN_INVARIANT, what, "This is a bug in refold: please report it.", **where
        )

    @classmethod
    def of(cls, code: Code, what: str, cure: str, where: dict[str, object]) -> Self:
        """Build from parts; code and cure are always the same here."""
        return cls(what, **where)
