"""`StateGraph`: how an author writes a workflow. It reads like the picture that it draws.

Law of this module: it only collects what is said (a `Spec`); `build` has it checked and
compiled. Nothing here runs a user's function.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, overload

from refold.processors.check import check
from refold.processors.check_kinds import check_kinds
from refold.processors.definition import Definition, compiled
from refold.processors.engine_events import Rung
from refold.processors.info import StepInfo
from refold.processors.spec import (
    ALL,
    ChildSpec,
    CommandSpec,
    Entry,
    Everything,
    FinalState,
    Function,
    Invariant,
    JoinSpec,
    Late,
    LatePolicies,
    Limits,
    Reopen,
    Retry,
    Rule,
    Spec,
    TimerSpec,
    UndoSpec,
    Upcaster,
)
from refold.processors.spelling import spelled_out
from refold.processors.status import RunStatus
from refold.processors.triggers import (
    ANY,
    UNDONE_TRIGGER,
    Duration,
    Joined,
    joined,
    lasting,
    missed,
    reopened,
    rung,
)
from refold.schemas.evolve import Upcast
from refold.schemas.limits import DEDUP_ENTRIES

__all__ = [
    "ALL",
    "ANY",
    "Late",
    "Limits",
    "Retry",
    "RunStatus",
    "StateGraph",
    "StepInfo",
    "Transitions",
]

C = TypeVar("C")
E = TypeVar("E")


class Transitions(Generic[C, E]):
    """What `StateGraph.on` answers: call it with a reducer, or leave the context as it is."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    @overload
    def __call__(self, reducer: Callable[[C, E], C]) -> Callable[[C, E], C]: ...
    @overload
    def __call__(self, reducer: Callable[[C, E, StepInfo], C]) -> Callable[[C, E, StepInfo], C]: ...
    def __call__(self, reducer: Function) -> Function:
        """Give the transitions their reducer: (context, event[, step]) → context."""
        for rule in self._rules:
            rule.reducer = reducer
        return reducer


class StateGraph(Generic[C]):
    """A workflow: states, transitions, reducers, commands on entry, final states.

    Args:
        name: Name of the workflow and of its topics (`[A-Za-z0-9_-]+`, at most 64 bytes).
        version: 1 or more. A change of what the fold does is a new version (P14).
        context: Class of the frozen context: msgspec struct, dataclass or pydantic model.
        initial: State of an instance that has no event yet. The first reducer gets the context
            that `context()` makes, or None where the class needs arguments.
        dedup: Event identities that an instance remembers, 24 bytes each.
        tenant: Tenant of events that name none; empty: such an event is refused (P29). The same
            in every version of a workflow.
        limits: Bounds per instance.
    """

    def __init__(
        self,
        name: str,
        *,
        version: int,
        context: type[C],
        initial: str,
        dedup: int = DEDUP_ENTRIES,
        tenant: str = "",
        limits: Limits | None = None,
    ) -> None:
        self.spec = Spec(name, version, context, initial, dedup, tenant, limits or Limits())
        self._built: Definition | None = None

    @overload
    def on(
        self,
        state: str | Sequence[str],
        event: type[E],
        *,
        to: str | None = None,
        guard: Callable[[C, E], bool] | None = None,
        renew: bool = False,
    ) -> Transitions[C, E]: ...
    @overload
    def on(
        self,
        state: str | Sequence[str],
        event: type[E],
        *,
        to: str | None = None,
        guard: Callable[[C, E, StepInfo], bool],
        renew: bool = False,
    ) -> Transitions[C, E]: ...
    def on(
        self,
        state: str | Sequence[str],
        event: type[E],
        *,
        to: str | None = None,
        guard: Function | None = None,
        renew: bool = False,
    ) -> Transitions[C, E]:
        """Declare transitions. Use as a decorator of the reducer, or alone: context unchanged.

        Args:
            state: State or states that it leaves.
            event: Event type that causes it.
            to: State that is entered; its own state's name enters it again and sends its
                commands afresh. None: stays, without entering.
            guard: Pure condition; those of one pair are tried in order, one without a guard last.
            renew: True ends this run and goes on as new in `to`, with the context that the reducer
                gives: limits count from here, and what was done stays done. Open actions, the
                memory of events and the parent are carried over.
        """
        rules = [Rule(one, event, to, guard, renew=renew) for one in _several(state)]
        self._open().rules.extend(rules)
        return Transitions(rules)

    @overload
    def enter(self, state: str | Sequence[str], send: Callable[[C, Any], object]) -> None: ...
    @overload
    def enter(
        self, state: str | Sequence[str], send: Callable[[C, Any, StepInfo], object]
    ) -> None: ...
    def enter(self, state: str | Sequence[str], send: Function) -> None:
        """Declare what a state sends when it is entered.

        Args:
            state: State or states.
            send: Pure function (context, event[, step]) → a command, a list or tuple of
                commands, or None. Its context is the new one.
        """
        self._open().entries.extend(Entry(one, send) for one in _several(state))

    def command(
        self,
        command: type,
        *,
        target: str | None = None,
        action: str | None = None,
        each: str | None = None,
        answers: Sequence[type] = (),
        retry: Retry | None = None,
        compensate: Callable[[C, Any], object] | None = None,
    ) -> None:
        """Declare a command type: where it goes, how its keys call it, what becomes of its action.

        With answers, a retry or an undoing, or where a transition names `failed`, `unknown` or
        `succeeded` of it, the instance holds its action open until an executor answers.

        Args:
            command: The type.
            target: Topic `<ns>.<target>.commands`; by default the workflow's name, and for what
                undoes another that one's.
            action: Name in the idempotency key; the type's name by default.
            each: Field (str or int) that tells apart several commands of this type from one
                step, such as the item's number. Part of the key: never an index.
            answers: Events that its executor answers with; each state that sends it takes them.
            retry: When it is tried again; left out: a failed attempt is the last one, and what
                undoes another is tried for three days (`refold.processors.spec.PATIENT`).
            compensate: Pure function (context, command) → the command that undoes it, asked for by
                a state of `undo`. It goes to the same target.
        """
        spec = self._open()
        declared = CommandSpec(command, target, action, each, _many(answers), retry, compensate)
        spec.commands.append(declared)

    def after(
        self,
        state: str | Sequence[str],
        duration: Duration,
        *,
        to: str | None = None,
        name: str | None = None,
        guard: Callable[[C, Any], bool] | None = None,
    ) -> Transitions[C, Rung]:
        """Declare what happens when a state has stood for some time. Use as `on`.

        The timer is armed when the state is entered and dies when it is left; it counts from the
        fold time of the event that entered it.

        Args:
            state: State or states.
            duration: How long, or a pure function of the context that says how long or until when.
            to: As for `on`; None: the reducer alone, once.
            name: Of the timer, one each in a state; the duration by default (`24h`).
            guard: As for `on`; when none holds, the timer is gone without effect.
        """
        called = name or (lasting(duration) if isinstance(duration, timedelta) else "deadline")
        spec = self._open()
        spec.timers.extend(TimerSpec(one, called, duration) for one in _several(state))
        rules = [Rule(one, rung(str(called)), to, guard) for one in _several(state)]
        spec.rules.extend(rules)
        return Transitions(rules)

    def child(
        self,
        workflow: str,
        event: type,
        *,
        answers: Sequence[type] = (),
        cancel: Callable[[C, Any], object] | None = None,
    ) -> None:
        """Declare a workflow whose instances work for those of this one.

        A `send` starts one by returning `start(workflow, instance, event)`. It is an open action
        until it ends, and answers once: `succeeded(workflow)` and `failed(workflow)` name the
        ends of those that have no event of their own for it.

        Args:
            workflow: Its name; its event topic is in the same cluster and namespace.
            event: Type of the event that starts an instance.
            answers: Events that its final states answer with.
            cancel: Pure function (context, event that started it) → event that asks it to undo
                what it did: sent by a state of `undo`, by a join that cancels the rest, and when
                this instance ends before it. None: it goes its own way.
        """
        self._open().children.append(ChildSpec(workflow, event, _many(answers), cancel))

    def join(
        self,
        state: str | Sequence[str],
        command: type | str,
        *,
        to: str,
        need: int | Everything = ALL,
        otherwise: str | None = None,
        cancel_rest: bool = False,
    ) -> Transitions[C, Joined]:
        """Declare where the branches that a state begins come together. Use as `on`.

        Each command of the type that entering the state sends is a branch; its answer ends it, and
        each counts once. The reducer gets (context, joined) with the counts. The branches belong
        to this entry of the state: entering it again begins, and waits for, others.

        Args:
            state: State or states that send the commands.
            command: Their type, or the name of a child workflow.
            to: State that is entered when enough branches were done, once.
            need: How many: `ALL`, or a number; 1 is the first one.
            otherwise: State that is entered when so many have failed that `need` cannot be
                reached; None parks the instance. `on(state, missed(command), …)` says the same
                with a reducer.
            cancel_rest: True asks for the undoing of branches that are still open when one of the
                two is entered; the command needs `compensate`.
        """
        spec = self._open()
        states = _several(state)
        spec.joins.extend(JoinSpec(one, command, need, cancel_rest) for one in states)
        rules = [Rule(one, joined(command), to) for one in states]
        spec.rules.extend(rules)
        if otherwise is not None:
            spec.rules.extend(Rule(one, missed(command), otherwise) for one in states)
        return Transitions(rules)

    def undo(
        self,
        state: str,
        *,
        to: str,
        when: type | Sequence[type] = (),
        during: str | Sequence[str] | None = None,
    ) -> None:
        """Declare a state that undoes everything done so far and then goes on.

        One after the other, the last one first, each after the confirmed end of the one before;
        actions without `compensate` have nothing to undo. One that cannot be undone parks.

        Args:
            state: The state that undoes.
            to: State that is entered when nothing is left to undo.
            when: What leads to it: events, `failed(ANY)`, `failed(Charge)`. An answer leads there
                from the states that ask for it. What `on`, `defer` or `already` says of the same
                event in a state stands.
            during: From which states; None: those that send what can be undone, up to the pivot.
        """
        spec = self._open()
        whens = _many(when)
        states = None if during is None else _several(during)
        spec.undos.append(UndoSpec(state, whens, states))
        spec.rules.append(Rule(state, UNDONE_TRIGGER, to))

    def pivot(self, state: str | Sequence[str]) -> None:
        """Declare states from which on there is only forward: what was done before stays done."""
        self._open().pivots.extend(_several(state))

    def defer(self, state: str | Sequence[str], *events: type) -> None:
        """In this state keep these events, and try them again after the next transition."""
        self._open().deferred.extend((one, event) for one in _several(state) for event in events)

    def already(self, state: str | Sequence[str], *events: type) -> None:
        """In this state these events are facts that are known: no effect, success for senders."""
        self._open().already.extend((one, event) for one in _several(state) for event in events)

    def final(
        self,
        state: str,
        *,
        late: LatePolicies,
        status: RunStatus = RunStatus.COMPLETED,
        answer: Callable[[C], object] | None = None,
    ) -> None:
        """Declare a final state.

        Args:
            state: The state. It has no transitions.
            late: Policy for every event type that may come after the end; `ANY` for the rest.
            status: What the end means: completed, failed, compensated or continued.
            answer: Pure function of the context → event that tells the workflow for which this
                one was started; None: the engine's own. Completed answers as succeeded, any
                other end as failed.
        """
        spec = self._open()
        known = dict(late) if isinstance(late, Mapping) else late  # if not, `check` tells
        spec.finals.append(FinalState(state, known, status, answer))
        for kind, policy in known.items() if isinstance(known, dict) else ():
            if isinstance(policy, Reopen) and isinstance(kind, type):
                goes_on = (policy.state, policy.when, policy.reducer)
                spec.rules.append(Rule(state, reopened(kind), *goes_on))

    def waits(self, state: str | Sequence[str], status: RunStatus) -> None:
        """Declare what a state waits for: what `run_status` shows while it stands."""
        self._open().waits.extend((one, status) for one in _several(state))

    def invariant(
        self,
        name: str,
        holds: Callable[[str, C], bool],
        states: str | Sequence[str] | None = None,
    ) -> None:
        """Declare a pure predicate on (state, context); a step that breaks it parks.

        Args:
            name: What it says, for the person who reads the reason.
            holds: True when it holds.
            states: Where it is checked; everywhere by default.
        """
        where = None if states is None else _several(states)
        self._open().invariants.append(Invariant(name, holds, where))

    def upcast(self, event: type, *, sequence: int) -> Callable[[Upcast], Upcast]:
        """Declare how events of an older schema are read. Use as a decorator.

        The function gets the old fields as plain data (records as dicts, enums as texts) and
        gives all new ones, straight to the newest shape, as plain data or as objects. It is pure
        and a part of the fold: changing it is a new version. What Avro's rules of resolution can
        read needs none.

        Args:
            event: Event type of this graph.
            sequence: Number of the old schema on the schema topic: 1 for the type's first one.
        """

        def register(lift: Upcast) -> Upcast:
            self._open().upcasters.append(Upcaster(event, sequence, lift))
            return lift

        return register

    def upcast_context(self, *, from_version: int) -> Callable[[Upcast], Upcast]:
        """Declare how an instance's context comes over from an older version. Use as a decorator.

        Asked when a redrive takes an instance to this version (P14); the function gets the old
        context's fields as plain values. Without one the old fields must load as they are.

        Args:
            from_version: The version that the instance is on.
        """

        def register(lift: Upcast) -> Upcast:
            spec = self._open()
            spec.context_upcasters.append(Upcaster(spec.context, from_version, lift))
            return lift

        return register

    def build(self) -> Definition:
        """Check everything and compile it, once; later calls give the same definition.

        Raises:
            DefinitionError: Something does not hold; it names the state and the cure.
        """
        if self._built is None:
            check_kinds(self.spec)
            spec = spelled_out(self.spec)
            check(spec)
            self._built = compiled(spec)
        return self._built

    def _open(self) -> Spec:
        """The spec, as long as nothing was built from it."""
        self._built = None
        return self.spec


def _several(state: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(state, str) or not isinstance(state, Iterable):
        return (state,)  # what is no text is told by `check`, with the place where it stands
    return tuple(state)


def _many(kinds: Any) -> tuple[Any, ...]:
    """Several, or the only one; what is none is told by `check`."""
    single = isinstance(kinds, str | type) or not isinstance(kinds, Iterable)
    return (kinds,) if single else tuple(kinds)
