"""`Driver`: a workflow in memory, for tests. Events in, steps out, time in the test's hand.

Law of this module: it folds with the product's own `fold` and keeps a log as Kafka would, so
that what holds here holds there; it has no clock, no thread and no server. What it finds wrong
about refold itself it raises as an AssertionError.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, Self

import msgspec

from refold.processors import history
from refold.processors.definition import Buildable, Definition, Workflow
from refold.processors.effects import Publish, Send, Step
from refold.processors.engine_events import (
    REDRIVE,
    TERMINATE,
    Failed,
    Redrive,
    Rung,
    Succeeded,
    Terminate,
    Unknown,
)
from refold.processors.fold import fold, needed, obey
from refold.processors.instance import Instance, Timer
from refold.processors.instance_codec import decode, encode, partition_hash, state_hash
from refold.processors.purity import guard
from refold.processors.status import RunStatus, run_status
from refold.schemas.codec import Codec, codec_of
from refold.schemas.envelope import (
    Answer,
    EventRecord,
    Outcome,
    Parent,
    body_digest,
    derived_id,
    event_identity,
)
from refold.schemas.errors import Code, UsageError
from refold.schemas.registry import Registry, known_of
from refold.schemas.verdicts import DECIDED, Decision, Verdict
from refold.testing.scheduling import announced, rung

Folded = Workflow | Definition | Buildable | Sequence[Definition | Buildable]
"""What a driver folds: a workflow, one graph or definition, or a list of versions."""
Key = tuple[str, str]
"""(tenant, instance id)."""

START_MS = 1_700_000_000_000
"""Log time of a driver's first event: 2023-11-14T22:13:20Z."""
FINAL_FIRST = frozenset(set(Verdict) - {Verdict.DEFERRED, Verdict.PARKED})


class Entry(msgspec.Struct, frozen=True):
    """One record of the driver's log and what was decided about it."""

    event: EventRecord
    active: int
    step: Step


class Driver:
    """Fold events of a workflow in memory.

    Args:
        workflow: A workflow, one graph or definition, or a list or tuple of its versions.
        active: Version that new instances begin with; the highest by default.
        tenant: Tenant of events that name none; that of the schedules, where it folds schedules.
        source: Source of events that name none.
        guarded: Watch every call that a fold makes, and raise DefinitionError IMPURE_REDUCER for
            one to a clock, a random source, the environment or the like. Slows a fold down
            several times.
    """

    def __init__(
        self,
        workflow: Folded,
        *,
        active: int | None = None,
        tenant: str = "test",
        source: str = "/test",
        guarded: bool = False,
    ) -> None:
        self.workflow = _workflow(workflow)
        self.active = self.workflow.latest.version if active is None else active
        if self.workflow.schedules is not None:
            tenant = self.workflow.tenant
        self.tenant, self.source, self.guarded = tenant, source, guarded
        self.now_ms = START_MS
        """Log time of the next event; a test sets it as it likes, backwards too."""
        self.log: list[Entry] = []
        self.instances: dict[Key, Instance] = {}
        self.sent: list[Send] = []
        """Every command so far, in order."""
        self.published: list[tuple[str, Publish]] = []
        """Every event for another workflow so far, with the tenant, in order."""
        self.announced = False
        """Whether the schedules of the workflow were announced."""
        self._whose: dict[str, Key] = {}
        self.received: dict[int, int] = {}
        """How far `exchanging` has carried here what other drivers published."""

    # events in

    def send(self, instance: str, fact: object, **given: Any) -> Step:
        """Fold one event of the user's; `given` as for `record`."""
        return self.fold(self.record(instance, fact, **given))

    def record(
        self,
        instance: str,
        fact: object,
        *,
        id: str | None = None,
        source: str | None = None,
        tenant: str | None = None,
        time: str | None = None,
        expected_state: str | None = None,
        expected_version: int | None = None,
        answer: Answer | None = None,
        parent: Parent | None = None,
    ) -> EventRecord:
        """An event as the next record of the log, not yet folded.

        Args:
            instance: Instance id.
            fact: An event of the user's, or encoded bytes with their type: (type, bytes).
            id: Event id; `e<offset>` by default. Give one to repeat it.
            source: Event source; the driver's by default.
            tenant: The driver's by default.
            time: `ce_time` as sent.
            expected_state: State that the sender expects.
            expected_version: Version that the sender expects.
            answer: The action that it answers.
            parent: The action of another workflow that it starts or undoes.
        """
        kind, value = _encoded(fact)
        offset = self.log[-1].event.offset + 1 if self.log else 0
        source = self.source if source is None else source
        name = f"e{offset}" if id is None else id
        return EventRecord(
            self.tenant if tenant is None else tenant,
            instance,
            source,
            name,
            kind,
            value,
            offset,
            self.now_ms,
            event_identity(source, name),
            body_digest(kind, value),
            time,
            expected_state,
            expected_version,
            answer=answer,
            parent=parent,
        )

    # what executors do

    def command(self, send: Send) -> Any:
        """A command that was sent, decoded."""
        for definition in self.workflow.versions.values():
            if send.type in definition.by_name:
                return definition.by_name[send.type].codec.decode(send.value)
        raise UsageError(Code.NOT_FOUND, f"no version sends commands of type {send.type}.")

    def whose(self, key: str) -> Key:
        """Tenant and instance of the action with an idempotency key."""
        return self._whose[key]

    def done(self, command: Send, fact: object = None) -> Step:
        """An executor's word that an action was done.

        Args:
            command: As it stands in `sent`.
            fact: The event that says so; left out: the engine's own.
        """
        return self._answer(command, Outcome.SUCCEEDED, Succeeded("done") if fact is None else fact)

    def declined(self, command: Send, fact: object) -> Step:
        """The other side refused: the action failed, and the user's event says how."""
        return self._answer(command, Outcome.FAILED, fact)

    def failed(
        self, command: Send, code: str = "BUSY", *, retry: bool = True, retry_after_ms: int = 0
    ) -> Step:
        """An attempt that certainly did nothing.

        Args:
            command: As it stands in `sent`.
            code: Class of the failure.
            retry: False: no other attempt can cure it.
            retry_after_ms: What the other side asks for.
        """
        report = Failed(code, "the other side says so", retry, retry_after_ms)
        return self._answer(command, Outcome.FAILED, report)

    def unknown(self, command: Send) -> Step:
        """Nobody knows what became of an attempt."""
        return self._answer(command, Outcome.UNKNOWN, Unknown("no answer came"))

    def _answer(self, command: Send, outcome: Outcome, fact: object) -> Step:
        parts = () if outcome is Outcome.SUCCEEDED else (str(command.attempt),)
        tenant, instance = self._whose[command.key]
        return self.send(
            instance,
            fact,
            id=derived_id("result", command.key, outcome, *parts),
            source=f"/refold/executor/{command.target}",
            tenant=tenant,
            answer=Answer(command.key, command.attempt, outcome),
        )

    # time

    def pass_time(self, duration: timedelta) -> list[Step]:
        """Let time pass, and let every timer ring when it is due, in the order of their times.

        Schedules are announced first, where they were not.
        """
        if self.workflow.schedules and not self.announced:
            self.announce()
        until_ms, steps = self.now_ms + duration // timedelta(milliseconds=1), list[Step]()
        while (due := self._next_due(until_ms)) is not None:
            key, timer = due
            self.now_ms = max(self.now_ms, timer.due_ms)
            steps.append(self.ring(key[1], timer, tenant=key[0]))
        self.now_ms = max(self.now_ms, until_ms)
        return steps

    def ring(self, instance: str, timer: Timer, *, tenant: str | None = None) -> Step:
        """A timer's event, as its partition's owner writes it; whether it is due is not asked."""
        tenant = self.tenant if tenant is None else tenant
        record = self.instances.get((tenant, instance))
        name, source, fact = rung(self.workflow, tenant, instance, record, timer, self.now_ms)
        given = timer.id if isinstance(fact, Rung) else None
        return self.send(name, fact, id=given, source=source, tenant=tenant)

    def announce(self) -> list[Step]:
        """The schedules as declared: what the owner of a partition writes when it takes it."""
        self.announced = True
        return [
            self.send(instance, fact, source=source)
            for instance, source, fact in announced(self.workflow, self.now_ms)
        ]

    def _next_due(self, until_ms: int) -> tuple[Key, Timer] | None:
        found = [
            (timer.due_ms, key, timer)
            for key, record in self.instances.items()
            if record.more.parked is None
            for timer in record.more.timers
            if timer.due_ms <= until_ms
        ]
        return min(found, key=lambda one: one[:2])[1:] if found else None

    def fold(self, event: EventRecord, decision: Decision | None = None) -> Step:
        """Fold one record of the log; a decision about it is obeyed."""
        with guard(f"the fold of {event.type}") if self.guarded else nullcontext():
            step = self._decided(event, decision)
        if step.instance is not None:
            self.instances[(event.tenant, event.instance)] = step.instance
        self.log.append(Entry(event, self.active, step))
        key = (event.tenant, event.instance)
        for one in step.effects:
            if isinstance(one, Send):
                self.sent.append(one)
                self._whose[one.key] = key
            else:
                self.published.append((event.tenant, one))
        self.now_ms += 1
        return step

    def _decided(self, event: EventRecord, decision: Decision | None) -> Step:
        key = (event.tenant, event.instance)
        before = self.instances.get(key)
        if decision is not None:
            return obey(self.workflow, self.active, before, event, decision)
        wanted = set(needed(before, event))
        kept = [entry.event for entry in self.log] if wanted else []
        released = {one.offset: one for one in kept if one.offset in wanted}
        return fold(self.workflow, self.active, before, event, released)

    def redrive(
        self,
        instance: str,
        *,
        version: int = 0,
        offsets: Sequence[int] = (),
        who: str = "test",
        why: str = "test",
        tenant: str | None = None,
    ) -> Step:
        """Release a parked instance's queue, on another version if one is named."""
        order = Redrive(tuple(offsets), version, who, why)
        return self._order(instance, REDRIVE, order, who, tenant)

    def terminate(
        self, instance: str, reason: str = "test", *, who: str = "test", tenant: str | None = None
    ) -> Step:
        """End an instance, whatever its state."""
        return self._order(instance, TERMINATE, Terminate(reason, who), who, tenant)

    def _order(
        self, instance: str, codec: Codec[Any], order: object, who: str, tenant: str | None
    ) -> Step:
        fact = (codec.name, codec.encode(order))
        return self.send(instance, fact, source=f"/refold/operator/{who}", tenant=tenant)

    def learn(self, *written: type) -> None:
        """Know older schemas too, as if they stood on the schema topic in this order.

        Args:
            written: Classes that events and commands were once written with; the first of a type
                has sequence 1. The workflow's own types need not be named.
        """
        registry = Registry()
        for kind in written:
            text = codec_of(kind).text
            number = len(registry.of_type(codec_of(kind).name)) + 1
            registry.add(known_of(text, self.workflow.name, number))
        for definition in self.workflow.versions.values():
            commands = (one.codec for one in definition.commands.values())
            for codec in (*definition.events.values(), *commands):
                registry.teach(codec)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.now_ms += milliseconds

    # what became of them

    def instance(self, instance: str, tenant: str | None = None) -> Instance:
        """The record of an instance; KeyError when there is none."""
        return self.instances[(self.tenant if tenant is None else tenant, instance)]

    def state(self, instance: str, tenant: str | None = None) -> str:
        """State of an instance."""
        return self.instance(instance, tenant).state

    def status(self, instance: str, tenant: str | None = None) -> RunStatus:
        """Run status of an instance."""
        record = self.instance(instance, tenant)
        return run_status(self.workflow.version(record.definition), record)

    def verdicts(self) -> list[Verdict]:
        """The first verdict of every record, in order."""
        return [entry.step.verdict for entry in self.log]

    def keys(self) -> list[str]:
        """Idempotency keys of every command so far, in order."""
        return [send.key for send in self.sent]

    def snapshots(self) -> dict[Key, bytes]:
        """Canonical bytes of every instance."""
        return {
            key: encode(record, self.workflow.version(record.definition))
            for key, record in self.instances.items()
        }

    def hash(self) -> bytes:
        """Hash of all instances, as `refold verify` compares them."""
        return partition_hash((key, state_hash(data)) for key, data in self.snapshots().items())

    def check_counts(self) -> None:
        """O3: each record has one first verdict; deferred and parked ones are open or resolved.

        Raises:
            AssertionError: A record vanished, or was resolved twice.
        """
        open_, resolved = set[int](), set[int]()
        for entry in self.log:
            if entry.step.verdict not in FINAL_FIRST:
                open_.add(entry.event.offset)
            for one in entry.step.resolutions:
                assert one.offset in open_, f"offset {one.offset} is resolved, but was not open"
                open_.remove(one.offset)
                resolved.add(one.offset)
        held = [offset for record in self.instances.values() for offset in _waiting(record)]
        assert sorted(held) == sorted(open_), f"waiting {sorted(held)}, open {sorted(open_)}"

    # crashes and replays

    def kill_and_recover(self) -> None:
        """Lose the process: what is left is what a snapshot and its reload give.

        Raises:
            AssertionError: A reloaded record is not the one that was saved.
        """
        for key, data in self.snapshots().items():
            record = self.instances[key]
            again = decode(data, self.workflow.version(record.definition))
            assert again == record, f"{key} came back as {again}, it was {record}"
            self.instances[key] = again

    def replay(self, workflow: Folded | None = None) -> "Driver":
        """Fold the log from its beginning in a fresh driver, obeying recorded decisions (P13).

        Args:
            workflow: Other code to replay with; this driver's by default.
        """
        fresh = Driver(
            self.workflow if workflow is None else workflow, active=self.active,
            tenant=self.tenant, source=self.source, guarded=self.guarded,
        )  # fmt: skip
        for entry in self.log:
            fresh.active = entry.active
            fresh.fold(entry.event, _decision(entry))
        return fresh

    def check_replay(self) -> None:
        """O2 and O5: a replay from the beginning gives the same states, commands and verdicts.

        Raises:
            AssertionError: It does not; the first record that differs is named.
        """
        fresh = self.replay()
        for was, now in zip(self.log, fresh.log, strict=True):
            assert was.step == now.step, f"offset {was.event.offset}: {was.step} != {now.step}"
        assert self.hash() == fresh.hash()

    # histories

    def history(self, instance: str | None = None, tenant: str | None = None) -> list[str]:
        """The log as JSON lines, or one instance's part of it."""
        tenant = self.tenant if tenant is None else tenant
        return list(
            history.written(
                history.line_of(entry.event, entry.active, _decision(entry))
                for entry in self.log
                if instance is None
                or (entry.event.tenant, entry.event.instance) == (tenant, instance)
            )
        )

    @classmethod
    def from_history(
        cls, workflow: Folded, lines: Iterable[str], *, active: int | None = None
    ) -> Self:
        """Fold a history that was exported, as it was decided, or as a new version would.

        Args:
            workflow: The workflow, with every version that the history used.
            lines: JSON lines: an open file, or a list.
            active: Version that every instance begins with in place of the recorded one. All is
                then decided afresh: what the history says of parked or refused records is not
                obeyed, and only versions from this one on are needed.

        Raises:
            UsageError: A line cannot be read.
            FenceError: DEFINITION_MISSING, a version that the history used is not given.
        """
        driver = cls(workflow, active=active)
        for line in history.read(lines):
            if active is not None:
                driver.fold(line.record())
                continue
            driver.active = line.active or driver.active
            driver.fold(line.record(), line.decision)
        return driver


def _workflow(given: Folded) -> Workflow:
    if isinstance(given, Workflow):
        return given
    several = given if isinstance(given, Sequence) else [given]
    versions = [each if isinstance(each, Definition) else each.build() for each in several]
    if not versions:
        raise UsageError(
            Code.DEFINITION_NOT_FOUND,
            "A driver was given no version of a workflow.",
            "Give it a graph, or a list of graphs.",
        )
    return Workflow(versions[0].name, versions)


def _encoded(fact: object) -> tuple[str, bytes]:
    if isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[1], bytes):
        return str(fact[0]), fact[1]
    codec: Codec[Any] = codec_of(type(fact))
    return codec.name, codec.encode(fact)


def _decision(entry: Entry) -> Decision | None:
    step = entry.step
    if step.verdict not in DECIDED or step.reason is None:
        return None
    return Decision(entry.event.offset, step.verdict, step.reason)


def _waiting(record: Instance) -> list[int]:
    parked = record.more.parked
    queued = [] if parked is None else list(parked.queue)
    return [kept.offset for kept in record.more.deferred] + queued
