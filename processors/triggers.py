"""What moves a graph beside the user's own events: reports about actions, timers, an undoing's end.

Law of this module: a trigger is a class, so that a transition names it where it names an event; it
carries the name under which the table knows it. Two calls with equal arguments give the same class.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Final

import msgspec

from refold.processors.engine_events import (
    FAILED,
    OCCURRENCE,
    SCHEDULE,
    SUCCEEDED,
    TIMER,
    UNKNOWN,
    Failed,
    Occurrence,
    Rung,
    Scheduled,
    Succeeded,
    Unknown,
)
from refold.schemas.codec import codec_of
from refold.schemas.errors import Code, DefinitionError
from refold.schemas.types import Event

Duration = timedelta | Callable[[Any], timedelta | datetime]
"""How long a timer runs, or a pure function of the context that says so, or until when."""


class Undone(Event):
    """Everything that a state had to undo is undone; never on the log."""


class Joined(Event):
    """How many branches a state began, and how they ended; never on the log."""

    asked: int
    succeeded: int
    failed: int
    open: int
    """Neither yet."""


class Anything(Enum):
    """The type of `ANY`."""

    ANY = "*"


ANY: Final = Anything.ANY
"""In `final(late=…)`: every event type that is not named beside it. In `failed(…)`, `unknown(…)`
and `succeeded(…)`: every action that the state asks for."""

UNDONE: Final = "refold.undone"
JOINED: Final = "refold.joined"
MISSED: Final = "refold.missed"
REOPENED: Final = "refold.reopen"
INNER: Final = (f"{JOINED}:", f"{MISSED}:", f"{REOPENED}:", UNDONE)
"""Rows of the table that no event on the log has begin so."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a trigger's class stands for."""

    name: str
    """Its row of the table: no event type has such a name."""
    title: str
    """How people call it."""
    command: type | str | Anything | None = None
    """The command, or the child workflow, whose action it reports about."""


def failed(command: type | str | Anything) -> type[Failed]:
    """The trigger of an action that failed for good: after the last attempt, or incurably.

    Args:
        command: Type of its command, name of a child workflow, or `ANY`: whatever the state asks
            for; of what it joins, that the join cannot be reached.
    """
    found: type[Failed] = _reported(command, Failed, FAILED.name, "failed")
    return found


def unknown(command: type | str | Anything) -> type[Unknown]:
    """The trigger of an action of which nobody knows whether it was done.

    Args:
        command: Type of its command, name of a child workflow, or `ANY`.
    """
    found: type[Unknown] = _reported(command, Unknown, UNKNOWN.name, "unknown")
    return found


def succeeded(command: type | str | Anything) -> type[Succeeded]:
    """The trigger of an action that was done, where its executor has no event to say so.

    Args:
        command: Type of its command, name of a child workflow, or `ANY`.
    """
    found: type[Succeeded] = _reported(command, Succeeded, SUCCEEDED.name, "succeeded")
    return found


def joined(command: type | str) -> type[Joined]:
    """The trigger of a join: so many branches were done as it needs.

    Args:
        command: Type of the branches' command, or name of a child workflow.
    """
    found: type[Joined] = _reported(command, Joined, JOINED, "joined")
    return found


def missed(command: type | str) -> type[Joined]:
    """The trigger of a join that cannot be reached any more: too many branches have failed.

    Args:
        command: Type of the branches' command, or name of a child workflow.
    """
    found: type[Joined] = _reported(command, Joined, MISSED, "missed")
    return found


def _reported(command: type | str | Anything, base: Any, name: str, word: str) -> Any:
    """The trigger with this word for an action.

    Raises:
        DefinitionError: It names no command.
    """
    any_of_a_join = base is Joined and command is ANY  # a join says of which command it is
    if any_of_a_join or not isinstance(command, type | str | Anything):
        raise DefinitionError(
            Code.DEFINITION_INVALID,
            f"{word}({command!r}) names no command.",
            "Give the command's class, or the name of a child workflow, one at a time.",
        )
    return _report(command, base, name, word)


@cache
def _report(command: type | str | Anything, base: Any, name: str, word: str) -> Any:
    title = f"{word}({called_of(command)})"
    return _made(base, Trigger(f"{name}:{command_name(command)}", title, command=command))


def command_name(command: type | str | Anything) -> str:
    """Name of a command's type as open actions have it; of a child workflow: `child:<name>`."""
    if isinstance(command, Anything):
        return command.value
    return f"child:{command}" if isinstance(command, str) else codec_of(command).name


def called_of(command: type | str | Anything) -> str:
    """How people call a command's type, or a child workflow."""
    if isinstance(command, Anything):
        return command.name
    return command if isinstance(command, str) else command.__name__


@cache
def rung(name: str) -> type[Rung]:
    """The trigger of a state's timer with this name."""
    made: type[Rung] = _made(Rung, Trigger(f"{TIMER.name}:{name}", f"after({name})"))
    return made


@cache
def reopened(event: type) -> type[Event]:
    """The trigger of an event that opens an instance again after its end."""
    name = f"{REOPENED}:{codec_of(event).name}"
    made: type[Event] = _made(Event, Trigger(name, f"reopen({event.__name__})"))
    return made


def _made(base: type, trigger: Trigger) -> Any:
    namespace = {"__trigger__": trigger, "__module__": __name__}
    made = msgspec.defstruct("Trigger", [], bases=(base,), namespace=namespace, frozen=True)
    made.__name__ = made.__qualname__ = trigger.title
    return made


NEXT: Final = "next"
"""Name of the timer of a schedule: it rings as an occurrence."""
SCHEDULED: Final[type[Scheduled]] = _made(Scheduled, Trigger(SCHEDULE.name, "scheduled"))
OCCURRED: Final[type[Occurrence]] = _made(Occurrence, Trigger(f"{OCCURRENCE.name}:{NEXT}", "due"))
UNDONE_TRIGGER: Final[Any] = _made(Undone, Trigger(UNDONE, "undone"))


FAILED_ANY: Final = failed(ANY)
_BY_KIND: Final[Mapping[type, Callable[[type | str], type]]] = {
    FAILED_ANY: failed, unknown(ANY): unknown, succeeded(ANY): succeeded,
}  # fmt: skip


def named_of(kind: type, command: type | str) -> type:
    """The trigger of one command for that of any."""
    return _BY_KIND[kind](command)


def trigger_of(kind: type) -> Trigger | None:
    """What a class stands for; None for an event of the user's."""
    found = getattr(kind, "__trigger__", None)
    return found if isinstance(found, Trigger) else None


def name_of(kind: type) -> str:
    """Under which name the table knows an event type or a trigger."""
    trigger = trigger_of(kind)
    return codec_of(kind).name if trigger is None else trigger.name


def lasting(duration: timedelta) -> str:
    """A duration as a timer's name: `90s`, `24h`, `14d`, `1500ms`."""
    ms = duration // timedelta(milliseconds=1)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size == 0 and ms >= size:
            return f"{ms // size}{unit}"
    return f"{ms}ms"
