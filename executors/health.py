"""What an executor process says about itself, for probes, metrics and people.

Law of this module: reads counters that others keep, asks nobody, and shows no payload. What holds
calls back is shown with its reason; a scanner that stands still is an alarm.
"""

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from refold.executors.answers import Answers
from refold.executors.circuit import State
from refold.executors.dispatch import Dispatch
from refold.executors.intake import Intake
from refold.executors.lanes import Gate, Lanes
from refold.executors.model import Standing
from refold.executors.recorder import Recorder
from refold.executors.scanner import Scanner

SCANNER_S: Final = 30.0
"""A scanner that has not ended a scan for so long is an alarm."""
OLD_S: Final = 10.0
"""An intake that has not turned for so long is not ready."""
DEAD_S: Final = 120.0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One executor process, as of now."""

    worker: str
    target: str
    joined: bool
    """True once the group has answered."""
    stopping: bool
    turned_s: float
    """Seconds since the intake last turned."""
    scanned_s: float
    """Seconds since a scan last ended well."""
    loop_s: float = 0.0
    """Seconds since the event loop last turned: more than a moment is a handler that blocks it."""
    calls: int
    """Handlers that run."""
    hanging: Mapping[str, int] = {}
    """Action → handlers that go on long after their time is over, and keep their slots."""
    waiting: int
    """Rows that this process planned and that have not begun."""
    unrecorded: int
    """Ends of calls that the ledger has not taken yet."""
    unpublished: int
    """Results that wait for Kafka's acknowledgement."""
    standing: Standing
    """Rows of the whole target, as of the last scan."""
    gates: tuple[Gate, ...]
    """Who is down, and where we are not let in."""
    unhandled: Mapping[str, int]
    """Commands that nobody here handles, by type."""
    planned: int
    rejected: int
    """Records that were no commands."""
    clashes: int
    """Keys that came again with another request."""
    contradictions: int
    """Ends that came too late, or against what stands."""
    lost: Mapping[str, int]
    """Partition → commands that the log had lost before they were planned."""
    run_out: int
    """Leases that were found run out."""
    polled: int
    """Questions about what the other side had accepted."""
    ends: Mapping[str, int]
    """Ends of calls that were recorded, as `<action>/<status>`."""
    away: Mapping[str, str]
    """What stands still → code of the server that it waits for."""

    def troubles(self, _now_s: float) -> list[str]:
        """Why this process is not ready, a sentence each; empty when it is."""
        found = self.age(0.0, OLD_S)
        if self.scanned_s > SCANNER_S:
            found.append(f"nothing was scanned for {self.scanned_s:.0f} s")
        found += [f"{n} handlers of {name} do not end" for name, n in self.hanging.items()]
        if not self.joined:
            found.append("it is not in the group: Kafka is away, or has not answered yet")
        if self.stopping:
            found.append("it is stopping")
        found += [f"{what} wait: {code}" for what, code in self.away.items() if code]
        found += [f"{each.kind} {each.name} is {each.state}: {each.reason}" for each in self.gates]
        return found

    def age(self, _now_s: float, most_s: float = DEAD_S) -> list[str]:
        """Reasons if the intake or the event loop has not turned for too long."""
        found = []
        if self.turned_s > most_s:
            found.append(f"the intake has not turned for {self.turned_s:.0f} s")
        if self.loop_s > most_s:
            found.append(f"a handler blocks the event loop, for {self.loop_s:.0f} s")
        return found


class Health:
    """Puts the status together; from any thread.

    Args:
        worker: Name of this process.
        target: Whose commands.
        intake: Counts what comes in.
        recorder: What ended.
        answers: What goes out.
        scanner: What is not known.
        dispatch: What is in flight.
        lanes: What is held back.
    """

    def __init__(
        self,
        worker: str,
        target: str,
        intake: Intake,
        recorder: Recorder,
        answers: Answers,
        scanner: Scanner,
        dispatch: Dispatch,
        lanes: Lanes,
    ) -> None:
        self._worker = worker
        self._target = target
        self._intake = intake
        self._recorder = recorder
        self._answers = answers
        self._scanner = scanner
        self._dispatch = dispatch
        self._lanes = lanes
        self.stopping = False

    @property
    def status(self) -> Status:
        """As of now."""
        intake, scanner, now_s = self._intake, self._scanner, monotonic()
        return Status(
            worker=self._worker,
            target=self._target,
            joined=intake.joined,
            stopping=self.stopping,
            turned_s=now_s - intake.at_s,
            scanned_s=now_s - scanner.scanned_s,
            loop_s=now_s - self._dispatch.swept_s,
            calls=self._dispatch.in_flight,
            hanging=self._dispatch.hanging(),
            waiting=intake.waiting,
            unrecorded=self._recorder.backlog,
            unpublished=self._answers.outstanding,
            standing=scanner.standing,
            gates=tuple(self._lanes.gates),
            unhandled=dict(intake.unhandled),
            planned=intake.planned,
            rejected=intake.rejected,
            clashes=intake.clashes,
            contradictions=self._recorder.contradictions,
            lost={str(each): count for each, count in intake.lost.items()},
            run_out=scanner.run_out,
            polled=scanner.poller.asked,
            ends=dict(self._recorder.ends),
            away={
                "commands": intake.away,
                "ends of calls": self._recorder.away,
                "results": self._answers.away,
            },
        )


class StatusCollector(Collector):
    """The status as metrics; names are in docs/metrics.md."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Everything, as of now."""
        return described(self._health.status)


def described(status: Status) -> Iterator[Metric]:
    """A status as metrics."""
    standing = status.standing
    for name, text, value in (
        ("joined", "1 once the group has answered.", status.joined),
        ("calls", "Handlers that run in this process.", status.calls),
        ("waiting", "Rows planned here that have not begun.", status.waiting),
        ("unrecorded", "Ends of calls that the ledger has not taken.", status.unrecorded),
        ("unpublished", "Results that Kafka has not taken.", status.unpublished),
        ("planned", "Rows of the target that wait to begin.", standing.planned),
        ("in_flight", "Rows of the target that are in flight.", standing.in_flight),
        ("unknown", "Rows of the target of unknown outcome.", standing.unknown),
        ("stuck", "Of these, how many wait for a person.", standing.stuck),
        ("oldest_planned_seconds", "Age of the oldest planned row.", standing.oldest_planned_s),
        ("oldest_unknown_seconds", "Age of the oldest unknown.", standing.oldest_unknown_s),
        ("scanner_age_seconds", "Since a scan last ended well.", status.scanned_s),
        ("intake_age_seconds", "Since the intake last turned.", status.turned_s),
        (
            "loop_age_seconds",
            "Since the event loop last turned: a handler blocks it.",
            status.loop_s,
        ),
        (
            "hanging",
            "Handlers that go on long after their time is over.",
            sum(status.hanging.values()),
        ),
    ):
        yield GaugeMetricFamily(f"refold_executor_{name}", text, value=float(value))
    for name, text, count in (
        ("commands", "Commands that were planned.", status.planned),
        ("rejected", "Records that were no commands.", status.rejected),
        ("clashes", "Keys that came again with another request.", status.clashes),
        ("contradictions", "Ends against what stands.", status.contradictions),
        ("run_out", "Leases that were found run out.", status.run_out),
        ("polled", "Questions about what was accepted.", status.polled),
    ):
        yield CounterMetricFamily(f"refold_executor_{name}", text, value=count)
    yield from _labelled(status)


def _labelled(status: Status) -> Iterator[Metric]:
    ends = CounterMetricFamily(
        "refold_executor_ends", "Ends of calls that were recorded.", labels=("action", "status")
    )
    for name, count in status.ends.items():
        ends.add_metric(name.rpartition("/")[::2], count)
    yield ends
    yield _gauge("unhandled", "Commands that nobody here handles.", "action",
                 status.unhandled.items())  # fmt: skip
    yield _gauge("lost", "Commands that the log lost unplanned.", "partition",
                 status.lost.items())  # fmt: skip
    circuits = GaugeMetricFamily(
        "refold_executor_circuit",
        "1 where calls are held back; 0.5 while one call tries.",
        labels=("kind", "name"),
    )
    for gate in status.gates:
        value = 1.0 if gate.state is State.OPEN else 0.5
        circuits.add_metric([gate.kind, gate.name], value)
    yield circuits
    away = ((what, bool(code)) for what, code in status.away.items())
    yield _gauge("away", "1 while a server is waited for.", "what", away)


def _gauge(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"refold_executor_{name}", text, labels=(label,))
    for each, value in values:
        family.add_metric([each], float(value))
    return family
