"""What an author says about a workflow, as plain data, before it is checked and compiled.

Law of this module: data only. `graph.StateGraph` fills a `Spec`, `check` judges it,
`definition` compiles it, `fingerprint` hashes it, and none of them knows the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Any, Final

import msgspec

from refold.processors.status import RunStatus
from refold.processors.triggers import Anything, Duration, command_name, trigger_of
from refold.schemas.limits import DEDUP_ENTRIES, VALUE_BYTES

Function = Callable[..., Any]
"""A user's pure function: (context, event) or (context, event, step)."""


class Late(StrEnum):
    """What a final state does with an event that comes after the end (always verdict late)."""

    RECORD = "record"
    """Note it; the end stands."""
    REFUSE = "refuse"
    """Note it, and say no to whoever asks what became of it."""
    ALREADY = "already"
    """Note it as the same fact once more: success for the sender."""
    COMPENSATE = "compensate"
    """It says that an action was done which the end did not wait for: that action is undone."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """Late policy: the instance goes on in a state, which is entered."""

    state: str
    reducer: "Function | None" = None
    """None: the context stays as it is."""
    when: "Function | None" = None
    """None: each time."""
    otherwise: "Late | Forward" = Late.RECORD

    def __str__(self) -> str:
        return f"reopen {self.state}" + (f", else {self.otherwise}" if self.when else "")


@dataclass(frozen=True, slots=True)
class Forward:
    """Late policy: the event goes to the instance of the same id in another workflow."""

    workflow: str

    def __str__(self) -> str:
        return f"forward {self.workflow}"


LatePolicy = Late | Reopen | Forward
"""What a final state does with an event that comes after the end: `Late.…`, `reopen(…)` or
`forward(…)`."""
LatePolicies = Mapping[type | Anything, LatePolicy]
"""What `final(late=…)` takes: a policy by event type, `ANY` for the rest."""


def reopen(
    state: str,
    reducer: "Function | None" = None,
    *,
    when: "Function | None" = None,
    otherwise: Late | Forward = Late.RECORD,
) -> Reopen:
    """The late policy that takes an instance up again; it counts how often.

    Args:
        state: A state of the graph that is not final; it is entered with its commands and timers.
        reducer: As for `StateGraph.on`; left out: the context stays as it is.
        when: As `guard` of `StateGraph.on`: where it does not hold, the end stands.
        otherwise: What becomes of the event then.
    """
    return Reopen(state, reducer, when, otherwise)


def forward(workflow: str) -> Forward:
    """The late policy that hands an event on, in the same Kafka transaction.

    An event that another workflow handed on is not handed on again: it is noted.

    Args:
        workflow: Name of the workflow; the event reaches its instance of the same tenant and id.
    """
    return Forward(workflow)


class Everything(Enum):
    """The type of `ALL`."""

    ALL = "all"


ALL: Final = Everything.ALL
"""In `join(need=…)`: every branch."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a definition. All count per instance; None means no bound.

    Reaching `transitions`, `visits` or `unchanged` parks the instance, or takes it to the final
    state `over` where one is named. They are part of the definition: another value is another
    version (P14).
    """

    transitions: int | None = 10_000
    """Applied events: an endless loop of events stops here."""
    visits: int | None = None
    """Entries into any one state."""
    unchanged: int | None = 1_000
    """Applied events in a row that change neither state nor context."""
    over: str | None = None
    """Final state that is entered, without a reducer, in place of parking."""
    deferred: int = 100
    """Events that a state may keep for later; one more parks the instance."""
    parked: int = 10_000
    """Events that queue behind a parked one; one more is refused, its bytes are kept."""
    command_bytes: int = VALUE_BYTES
    """Encoded value of one command."""
    actions: int = 1_000
    """Actions that are open or can be undone; one more parks the instance."""
    branches: int = 10_000
    """Branches of forks that have not ended, 8 bytes each; one more parks the instance."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When an action is tried again after an attempt that certainly did nothing.

    The first attempt counts. Between two lies `first_s`, each time `factor` times longer, at most
    `most_s`, never less than the other side asks for, and longer by up to `jitter` of itself: a
    share that is derived from key and attempt and not drawn.
    """

    attempts: int = 5
    first_s: float = 1.0
    factor: float = 2.0
    most_s: float = 300.0
    elapsed_s: float | None = None
    """No attempt begins later after the first one."""
    jitter: float = 0.1
    never: tuple[str, ...] = ()
    """Codes of failures that are not tried again."""


PATIENT: Final = Retry(
    attempts=1_000, first_s=1.0, factor=2.0, most_s=1_800.0, elapsed_s=3 * 86_400.0
)
"""When an undoing is tried again that declares no `retry`: after 1 s, each time twice as long, up
to half an hour, for three days: one that fails for good parks its instance, and a system that is
down over a weekend comes back."""


@dataclass(slots=True)
class Rule:
    """One declared transition: `state × event [guard] → to`, with its reducer."""

    state: str
    event: type
    to: str | None
    """None: stays in the state without entering it again (no entry commands)."""
    guard: Function | None = None
    reducer: Function | None = None
    """None: the context stays as it is."""
    renew: bool = False
    """True: the instance goes on as new: a run ends here and the next begins."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Commands that a state sends when it is entered."""

    state: str
    send: Function


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """Where a command type goes and what its action is called in idempotency keys."""

    type: type
    target: str | None
    action: str | None
    each: str | None
    """Field that tells apart several commands of this type from one step."""
    answers: tuple[Any, ...] = ()
    """Events that its executor answers with; with one, a retry or an undoing it is an open action
    of the instance until it is answered."""
    retry: Retry | None = None
    compensate: Function | None = None
    """(context, command) → the command that undoes it."""


@dataclass(frozen=True, slots=True)
class TimerSpec:
    """A timer that a state arms when it is entered."""

    state: str
    name: str
    duration: Duration


class Start(msgspec.Struct, frozen=True, gc=False):
    """A wish for an instance of another workflow, which works for this one; made by `start`."""

    workflow: str
    instance: str
    event: Any


def start(workflow: str, instance: str, event: Any) -> Start:
    """What a `send` returns to start an instance of another workflow as a part of this one.

    Args:
        workflow: Its name, as declared with `StateGraph.child`.
        instance: Id of the instance, derived from what the context knows; the tenant is the same.
        event: The event that starts it.
    """
    return Start(workflow, instance, event)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """Another workflow whose instances work for those of this one."""

    workflow: str
    event: type
    """Type of the event that starts one."""
    answers: tuple[Any, ...]
    cancel: Function | None
    """(context, event that started it) → event that asks for the undoing."""


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Where branches come together: a state that sends commands and waits for their ends."""

    state: str
    command: type | str
    """Type of the command, or name of the workflow, that is a branch."""
    need: int | Everything
    cancel_rest: bool

    @property
    def name(self) -> str:
        """Name of the command's type as open actions have it."""
        return command_name(self.command)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When instances of a workflow are started by the calendar: one for each occurrence.

    Args:
        id: Its name: an instance of its own, and the beginning of the ids of those it starts.
        cron: Minute, hour, day of the month, month, day of the week, by the zone's clock.
        zone: A name of the IANA database: `Europe/Berlin`, `UTC`.
        start: Workflow whose instances are started.
        event: Makes the event that starts one, from when it is due: an aware datetime by the
            zone's clock. It runs in the worker, not in the fold.
        catch_up: Of the occurrences that were missed while no worker ran, the latest so many are
            started; 1 to 1,000.
        within: An occurrence that could only be started later than this is not started; None: it
            is, however late.
        paused: True: nothing is started, and what falls due meanwhile is not made good.
    """

    id: str
    cron: str
    zone: str
    start: str
    event: Callable[[datetime], Any]
    catch_up: int = 1
    within: timedelta | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class UndoSpec:
    """A state that undoes, and what leads to it."""

    state: str
    when: tuple[Any, ...]
    """Events and triggers; `refold.processors.spelling` makes rules of them."""
    during: tuple[str, ...] | None
    """States in which they lead there; None: each undoable state."""


@dataclass(frozen=True, slots=True)
class Upcaster:
    """A pure function from the fields of an older shape to the newest ones."""

    type: type
    """The event type, or the context's class."""
    sequence: int
    """Of the old schema on the schema topic; of a context: the older version."""
    lift: Function


@dataclass(frozen=True, slots=True)
class FinalState:
    """A final state: what it does with late events and what it means for the run."""

    state: str
    late: LatePolicies
    status: RunStatus
    answer: Function | None = None
    """context → event that tells a parent; None: the engine's own."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A predicate on (state, context) that holds after every step."""

    name: str
    holds: Callable[[str, Any], bool]
    states: tuple[str, ...] | None
    """None: every state."""


@dataclass(slots=True)
class Spec:
    """Everything declared on a `StateGraph`, in declaration order."""

    name: str
    version: int
    context: type
    initial: str
    dedup: int = DEDUP_ENTRIES
    tenant: str = ""
    """Tenant of events that name none; empty refuses them."""
    limits: Limits = field(default_factory=Limits)
    rules: list[Rule] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    commands: list[CommandSpec] = field(default_factory=list)
    deferred: list[tuple[str, type]] = field(default_factory=list)
    already: list[tuple[str, type]] = field(default_factory=list)
    finals: list[FinalState] = field(default_factory=list)
    waits: list[tuple[str, RunStatus]] = field(default_factory=list)
    invariants: list[Invariant] = field(default_factory=list)
    timers: list[TimerSpec] = field(default_factory=list)
    children: list[ChildSpec] = field(default_factory=list)
    joins: list[JoinSpec] = field(default_factory=list)
    undos: list[UndoSpec] = field(default_factory=list)
    """States in which what was done is undone."""
    pivots: list[str] = field(default_factory=list)
    """States after which nothing is undone any more."""
    upcasters: list[Upcaster] = field(default_factory=list)
    """Of event types."""
    context_upcasters: list[Upcaster] = field(default_factory=list)

    def states(self) -> tuple[str, ...]:
        """Every state that is named anywhere, the initial one first, in order of appearance."""
        named: dict[str, None] = {self.initial: None}
        for rule in self.rules:
            named[rule.state] = None
            if rule.to is not None:
                named[rule.to] = None
        for final in self.finals:
            named[final.state] = None
        return tuple(named)

    def kinds(self) -> tuple[type, ...]:
        """Every event type and every trigger that is named anywhere, in order of appearance."""
        late = [kind for final in self.finals for kind in final.late if isinstance(kind, type)]
        every = [rule.event for rule in self.rules]
        every += [kind for _, kind in self.deferred] + [kind for _, kind in self.already] + late
        every += [kind for one in self.commands for kind in one.answers]
        every += [kind for one in self.children for kind in one.answers]
        return tuple(dict.fromkeys(every))

    def events(self) -> tuple[type, ...]:
        """The event types among them."""
        return tuple(kind for kind in self.kinds() if trigger_of(kind) is None)

    @property
    def undoing(self) -> list[str]:
        """States in which what was done is undone."""
        return [one.state for one in self.undos]

    def tracked(self) -> frozenset[type]:
        """Command types whose actions are open until they are answered."""
        said = [one.type for one in self.commands if one.answers or one.retry or one.compensate]
        triggers = (trigger_of(kind) for kind in self.kinds())
        asked = [one.command for one in triggers if one is not None and one.command is not None]
        return frozenset((*said, *(one for one in asked if isinstance(one, type))))
