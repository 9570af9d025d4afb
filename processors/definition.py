"""A checked definition, compiled for the fold: tables that are looked up, nothing that is searched.

Law of this module: frozen data made from a `Spec` that `check` has passed. Two definitions with
equal canonical JSON and equal fingerprints fold alike.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from sys import maxsize
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from refold.processors.fingerprint import fingerprint_of
from refold.processors.form import canonical_json
from refold.processors.instance import NOTHING_MORE, Instance, More
from refold.processors.sends import command_types, targets_of, undoing_types
from refold.processors.spec import (
    PATIENT,
    ChildSpec,
    Entry,
    FinalState,
    Function,
    Invariant,
    JoinSpec,
    LatePolicy,
    Limits,
    Rule,
    Schedule,
    Spec,
    TimerSpec,
)
from refold.processors.status import RunStatus
from refold.processors.table import Cell, CommandType, Sending, Transition
from refold.processors.triggers import ANY, INNER, command_name, name_of, trigger_of
from refold.schemas.canonical import Canonical, canonical_of, pack, unpack
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import EventRecord
from refold.schemas.errors import Code, DefinitionError, FenceError
from refold.schemas.evolve import Upcasts
from refold.schemas.shapes import Choice, Entries, Items, Record, Shape

States = tuple[str, ...]
Stated = TypeVar("Stated", bound=JoinSpec | TimerSpec)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One (state, event type) for people and pictures."""

    state: str
    event: str
    kind: str
    """transition, deferred, already, late or refused."""
    transitions: tuple[Transition, ...]
    policy: str
    """Late policy where kind is late."""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A workflow of one version, ready to fold. Made by `StateGraph.build`."""

    name: str
    version: int
    fingerprint: str
    """Hash of the canonical graph and of the code that it names."""
    context: type
    initial: str
    states: States
    table: Mapping[str, Mapping[str, Cell]]
    """state → event type → what it does. A type that is not there is refused or `late_rest`."""
    late_rest: Mapping[str, LatePolicy]
    """Final state → policy of every type that its row does not name."""
    finals: Mapping[str, FinalState]
    events: Mapping[str, Codec[Any]]
    commands: Mapping[type, CommandType]
    canonical: Canonical[Any]
    limits: Limits
    most_transitions: int
    """The limits once more, with a number that is never reached where there is no bound."""
    most_visits: int
    most_unchanged: int
    dedup_bytes: int
    statuses: Mapping[str, RunStatus]
    invariants: tuple[Invariant, ...]
    entries: tuple[Entry, ...]
    positions: Mapping[str, int]
    """state → its index in `states` and in an instance's `visits`."""
    fresh: Any
    """Context of an instance without an event: `context()`, or None."""
    copied: Callable[[Any], Any] | None
    """Makes the copy that a user's function sees, where the context holds lists or maps: they
    could be changed behind the fold's back, and a map would come back from a snapshot in another
    order. None: the context cannot change and is handed over itself."""
    by_name: Mapping[str, CommandType]
    """The commands by the name of their type."""
    answers: Mapping[str, tuple[str, ...]]
    """Name of a command's type, or of a child → the events that it declares as its answers."""
    undoing: frozenset[str]
    """States that undo what was done; likewise those after which nothing is undone."""
    pivots: frozenset[str]
    joins: Mapping[str, tuple[JoinSpec, ...]]
    """What each state joins."""
    timers: Mapping[str, tuple[TimerSpec, ...]]
    """What each state arms when it is entered."""
    children: Mapping[str, CommandType]
    """Workflow → how its instances are started; `by_name` has them as `child:<workflow>`."""
    simple: bool
    """True where nothing follows from a step by itself: no undoing, no join, no child."""
    titles: Mapping[str, str]
    """Rows of the table, in declared order, as people call them."""
    timed: bool
    """True where an instance may have a timer: of a state, or before another attempt."""
    context_upcasts: Upcasts
    """Older version → what lifts a context that comes over from it."""
    spec: Spec
    schedules: Mapping[str, Schedule] | None = None
    """What is declared now, by id; None for a workflow that is no calendar's. The fold never asks
    for it, and no fingerprint covers it: the owner writes down what it says."""

    def late(self, state: str, event: str) -> LatePolicy | None:
        """What a final state does with an event type; None for a state that goes on."""
        cell = self.table[state].get(event)
        return self.late_rest.get(state) if cell is None else cell.late

    def accepts(self, state: str) -> tuple[str, ...]:
        """Event types that do something in a state, deferring and already included.

        Raises:
            DefinitionError: There is no such state.
        """
        self._known(state)
        cells = self.table[state].items()
        return tuple(
            name for name, cell in cells if cell.late is None and not name.startswith(INNER)
        )

    def rows(self) -> tuple[TableRow, ...]:
        """The table state × event type, complete, in declared order.

        Reports and timers have a row where a state takes them.
        """
        return tuple(
            self._row(state, event)
            for state in self.states
            for event in self.titles
            if event in self.events or event in self.table[state]
        )

    def to_json(self) -> bytes:
        """The canonical JSON form: equal bytes for equal graphs, code apart."""
        return canonical_json(self.spec, self.commands.values())

    def _row(self, state: str, event: str) -> TableRow:
        cell = self.table[state].get(event)
        late = self.late(state, event)
        if late is not None:
            return TableRow(state, event, "late", (), str(late))
        if cell is None:
            return TableRow(state, event, "refused", (), "")
        kind = "deferred" if cell.deferred else "already" if cell.already else "transition"
        return TableRow(state, event, kind, cell.transitions, "")

    def _known(self, state: str) -> None:
        if state not in self.table:
            raise DefinitionError(
                Code.DEFINITION_INVALID,
                f"{self.name} version {self.version} has no state {state!r}.",
                f"Its states: {', '.join(self.states)}.",
                state=state,
            )

    def plain(self, context: Any) -> Any:
        """A context as plain data for people; None where no event has made one yet."""
        return None if context is None else self.canonical.to_value(context)

    def blank(self, event: EventRecord) -> Instance:
        """The record that an instance has before its first event; never stored as such."""
        at, more = event.log_time_ms, NOTHING_MORE
        if event.parent is not None:
            more = More(parent=event.parent, owed=(event.parent.key,))
        visits = () if self.limits.visits is None else (0,) * len(self.states)
        return Instance(
            event.tenant, event.instance, self.version, self.initial, self.fresh,
            0, 0, 0, at, at, at, "", "", -1, b"", visits, more,
        )  # fmt: skip


class Buildable(Protocol):
    """A `StateGraph`, seen from here."""

    def build(self) -> Definition:
        """Check and compile."""
        ...


class Workflow:
    """All versions of one workflow that a worker can fold.

    Args:
        name: Name of the workflow.
        versions: Definitions or graphs (which are built), each with another version.

    Attributes:
        schedules: What its newest version declares, by id; None where it has no schedules.
        tenant: Tenant of events that name none, empty if such events are refused.
        timed: True where a version has timers or retries.

    Raises:
        DefinitionError: A version stands twice, a name or default tenant differs, or there is
            no version.
    """

    __slots__ = ("name", "schedules", "tenant", "timed", "versions")

    def __init__(self, name: str, versions: Iterable[Definition | Buildable]) -> None:
        self.name = name
        found: dict[int, Definition] = {}
        for one in versions:
            definition = one if isinstance(one, Definition) else one.build()
            if definition.name != name:
                raise _misfit(name, f"got a definition of {definition.name!r}")
            if definition.version in found:
                raise _misfit(name, f"has version {definition.version} twice")
            found[definition.version] = definition
        if not found:
            raise _misfit(name, "has no definition")
        tenants = sorted({each.spec.tenant for each in found.values()})
        if len(tenants) > 1:
            raise _misfit(name, f"has versions with the default tenants {tenants}")
        self.tenant = tenants[0]
        self.timed = any(each.timed for each in found.values())
        self.versions: Mapping[int, Definition] = MappingProxyType(dict(sorted(found.items())))
        self.schedules = self.latest.schedules

    def version(self, number: int) -> Definition:
        """The definition of a version.

        Raises:
            FenceError: DEFINITION_MISSING: this worker lacks a version that is in use.
        """
        try:
            return self.versions[number]
        except KeyError:
            raise FenceError(
                Code.DEFINITION_MISSING,
                f"Version {number} of {self.name} is in use, this worker has"
                f" {', '.join(map(str, self.versions))}.",
                f"Start the worker with version {number} as well.",
                workflow=self.name,
                version=number,
            ) from None

    @property
    def latest(self) -> Definition:
        """The definition with the highest version."""
        return self.versions[max(self.versions)]


def _misfit(name: str, what: str) -> DefinitionError:
    return DefinitionError(
        Code.DEFINITION_INVALID,
        f"Workflow {name!r} {what}.",
        "Give each version of one workflow once.",
        workflow=name,
    )


def takes_step(function: Function) -> bool:
    """True when a user's function has a third positional parameter: the step."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds for one in signature(function).parameters.values()) > 2


def compiled(spec: Spec) -> Definition:
    """Compile a spec that `check` has passed."""
    codecs: dict[type, Codec[Any]] = {kind: _codec(spec, kind) for kind in spec.events()}
    states = spec.states()
    commands = _commands(spec)
    children = {one.workflow: _child(one) for one in spec.children}
    cancels = [_child(one, cancels=True) for one in spec.children]
    undoing = dict.fromkeys(spec.undoing, RunStatus.COMPENSATING)
    statuses = undoing | dict(spec.waits) | {final.state: final.status for final in spec.finals}
    return Definition(
        name=spec.name,
        version=spec.version,
        fingerprint=fingerprint_of(spec),
        context=spec.context,
        initial=spec.initial,
        states=states,
        table=MappingProxyType({one: _cells(spec, one) for one in states}),
        late_rest={final.state: final.late[ANY] for final in spec.finals if ANY in final.late},
        finals={final.state: final for final in spec.finals},
        events={codec.name: codec for codec in codecs.values()},
        commands=commands,
        by_name={one.name: one for one in (*commands.values(), *children.values(), *cancels)},
        answers=_answers(spec),
        undoing=frozenset(spec.undoing),
        pivots=frozenset(spec.pivots),
        joins=_by_state(spec.joins),
        timers=_by_state(spec.timers),
        children=children,
        simple=not (spec.undoing or spec.joins or spec.children),
        titles={name_of(kind): _title(kind) for kind in spec.kinds()},
        canonical=canonical_of(spec.context),
        limits=spec.limits,
        most_transitions=_most(spec.limits.transitions),
        most_visits=_most(spec.limits.visits),
        most_unchanged=_most(spec.limits.unchanged),
        dedup_bytes=spec.dedup * 24,
        statuses=statuses,
        invariants=tuple(spec.invariants),
        entries=tuple(spec.entries),
        positions={one: index for index, one in enumerate(states)},
        fresh=fresh_context(spec.context),
        copied=_copier(canonical_of(spec.context)),
        timed=bool(spec.timers) or any(one.retry or one.undo_retry for one in commands.values()),
        context_upcasts={one.sequence: one.lift for one in spec.context_upcasters},
        spec=spec,
    )


def _answers(spec: Spec) -> Mapping[str, tuple[str, ...]]:
    said = [(codec_of(one.type).name, one.answers) for one in spec.commands]
    said += [(command_name(one.workflow), one.answers) for one in spec.children]
    return {name: tuple(codec_of(kind).name for kind in kinds) for name, kinds in said if kinds}


def _by_state(specs: Iterable[Stated]) -> Mapping[str, tuple[Stated, ...]]:
    found: dict[str, list[Stated]] = {}
    for one in specs:
        found.setdefault(one.state, []).append(one)
    return {state: tuple(several) for state, several in found.items()}


def _codec(spec: Spec, kind: type) -> Codec[Any]:
    """The shared codec of an event type; one of this definition's own where it has upcasters."""
    upcasts = {one.sequence: one.lift for one in spec.upcasters if one.type is kind}
    return Codec(kind, upcasts) if upcasts else codec_of(kind)


def _copier(canonical: Canonical[Any]) -> Callable[[Any], Any] | None:
    if not _changeable(canonical.shape):
        return None

    def copied(context: Any) -> Any:
        if context is None:
            return None
        return canonical.from_value(unpack(pack(canonical.to_value(context))))

    return copied


def _changeable(shape: Shape) -> bool:
    """True when a value of the shape holds a list or a map."""
    match shape:
        case Items(item, cls):
            return cls is list or _changeable(item)
        case Choice(branches):
            return any(_changeable(one) for one in branches)
        case Record(fields=fields):
            return any(_changeable(one.shape) for one in fields)
    return isinstance(shape, Entries)


def _most(limit: int | None) -> int:
    return maxsize if limit is None else limit


def fresh_context(context: type) -> Any:
    """`context()`, or None where the class needs arguments."""
    try:
        return context()
    except (TypeError, ValueError):  # pydantic's ValidationError is a ValueError
        return None


def _title(kind: type) -> str:
    trigger = trigger_of(kind)
    return name_of(kind) if trigger is None else trigger.title


def _cells(spec: Spec, state: str) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    rules: dict[str, list[Rule]] = {}
    for rule in spec.rules:
        if rule.state == state:
            rules.setdefault(name_of(rule.event), []).append(rule)
    for name, several in rules.items():
        rows = (_transition(spec, rule, name, n) for n, rule in enumerate(several))
        cells[name] = Cell(transitions=tuple(rows))
    for where, kind in spec.deferred:
        if where == state:
            cells[name_of(kind)] = Cell(deferred=True)
    for where, kind in spec.already:
        if where == state:
            cells[name_of(kind)] = Cell(already=True)
    for final in spec.finals:
        if final.state == state:
            named = ((kind, late) for kind, late in final.late.items() if isinstance(kind, type))
            cells |= {name_of(kind): Cell(late=late) for kind, late in named}
    return MappingProxyType(cells)


def _transition(spec: Spec, rule: Rule, event: str, n: int) -> Transition:
    target = rule.state if rule.to is None else rule.to
    enters = rule.to is not None
    sends = sendings(spec, target) if enters else ()
    guard_steps = rule.guard is not None and takes_step(rule.guard)
    reducer_steps = rule.reducer is not None and takes_step(rule.reducer)
    arms = any(one.state == target for one in spec.timers)
    follows = bool(sends) and bool(spec.tracked() or spec.children)
    return Transition(
        id=f"{rule.state}/{event}/{n}",
        source=rule.state,
        event=event,
        target=target,
        enters=enters,
        guard=rule.guard,
        reducer=rule.reducer,
        guard_steps=guard_steps,
        reducer_steps=reducer_steps,
        sends=sends,
        invariants=tuple(
            one for one in spec.invariants if one.states is None or target in one.states
        ),
        needs_step=guard_steps or reducer_steps or any(one.takes_step for one in sends),
        tends=enters and (rule.renew or arms or follows),
        renews=rule.renew,
    )


def sendings(spec: Spec, state: str) -> tuple[Sending, ...]:
    """What entering a state sends, in declared order."""
    return tuple(
        Sending(entry.send, takes_step(entry.send))
        for entry in spec.entries
        if entry.state == state
    )


def _commands(spec: Spec) -> Mapping[type, CommandType]:
    declared = {one.type: one for one in spec.commands}
    undoing, targets = {*undoing_types(spec)}, targets_of(spec)
    tracked = spec.tracked() | undoing
    found: dict[type, CommandType] = {}
    for kind in command_types(spec):
        codec: Codec[Any] = codec_of(kind)
        said = declared.get(kind)
        action = said.action if said is not None and said.action is not None else short(codec.name)
        each = None if said is None else said.each
        retry = None if said is None else said.retry
        found[kind] = CommandType(
            codec.name, targets[kind], action, each, codec, codec.encode, kind in tracked, retry,
            None if said is None else said.compensate,
            undo_retry=(retry or PATIENT) if kind in undoing else None,
        )  # fmt: skip
    return found


def _child(spec: ChildSpec, *, cancels: bool = False) -> CommandType:
    """A child as a command type; or the undoing of one, which has no undoing itself."""
    codec: Codec[Any] = codec_of(spec.event)
    name = command_name(spec.workflow)
    return CommandType(
        f"{name}:cancel" if cancels else name, spec.workflow, spec.workflow, None, codec,
        codec.encode, tracked=True, compensate=None if cancels else spec.cancel, child=True,
    )  # fmt: skip


def short(name: str) -> str:
    """The last part of a dotted type name: the default name of its action."""
    return name.rpartition(".")[2]
