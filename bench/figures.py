"""The figures: what each one is, what it must be, and what was found.

Law of this module: data and arithmetic only.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        name: How it is called in results and on the command line.
        title: How it is called in the table.
        unit: `ratio`, `ms`, `s`, `%`, `bytes` or `steps/s`.
        must: Bound that a release keeps; None: shown for comparison only.
        aim: What is wanted; None likewise.
        higher: Whether more is better.
    """

    name: str
    title: str
    unit: str
    must: float | None = None
    aim: float | None = None
    higher: bool = True

    def judge(self, value: float) -> str:
        """`aim`, `must`, `missed`, or empty where nothing is asked."""
        for word, bound in (("aim", self.aim), ("must", self.must)):
            if bound is not None and (value >= bound if self.higher else value <= bound):
                return word
        return "" if self.must is None else "missed"


FIGURES: Final = (
    Figure("w1_plain", "W1 / plain bare loop", "ratio", 0.65, 0.90),
    Figure("w1_tricks", "W1 / bare loop with every trick", "ratio", 0.40, 0.60),
    Figure("w1_rows", "W1 with rows and event-log index / plain bare loop", "ratio", 0.35, 0.55),
    Figure("rebuild", "rebuild from offset 0 / plain bare replay loop", "ratio", 0.60, 0.90),
    Figure("latency_p50", "event sent → command seen, p50 at 100/s", "ms", 15, 8, higher=False),
    Figure("latency_p99", "event sent → command seen, p99 at 100/s", "ms", 60, 25, higher=False),
    Figure(
        "takeover_tail",
        "SIGKILL, no snapshot since half of the events: first new command after detection",
        *("s", 4.0, 1.5),
        higher=False,
    ),
    Figure(
        "takeover_default",
        "SIGKILL, default snapshot cadence: first new command after detection",
        *("s", 2.0, 0.8),
        higher=False,
    ),
    Figure(
        "timers_p99",
        "100,000 timers armed, 1,000 a second due: due → command seen, p99",
        *("ms", 250, 100),
        higher=False,
    ),
    Figure(
        "timers_rest",
        "processor time of a worker with 100,000 timers armed and none due, of a core",
        *("%", 2, 0.5),
        higher=False,
    ),
    Figure(
        "w2_rate",
        "W2: ten steps an instance through the ledger, 1,000 in flight",
        *("steps/s", 3000, 6000),
    ),
    Figure(
        "w2_limit", "W2, 32 in flight / bare loop of three scripts, no ledger", "ratio", 0.4, 0.7
    ),
    Figure("w2_dbos", "W2, 32 in flight / the same job in DBOS, one process", "ratio", 3, 6),
    Figure("w2_dbos_two", "W2, 32 in flight / the same job in DBOS, two processes", "ratio", 3, 6),
    Figure("w2_p50", "W2, one in flight: a step, p50", "ms", 15, 8, higher=False),
    Figure("ledger", "ledger / the same SQL through psycopg alone", "ratio", 0.6, 0.8),
    Figure(
        "unknown",
        "unknown outcomes: other side answers again, could show it → the last one settled",
        *("s", 5, 1),
        higher=False,
    ),
    Figure(
        "fanout_p99",
        "fork into 200 branches through the ledger, 2 a second: event sent → joined, p99",
        *("ms", 1000, 300),
        higher=False,
    ),
    Figure("snapshots", "throughput lost to snapshots", "%", 10, 5, higher=False),
    Figure("memory", "memory of a live instance above its context", "bytes", 1536, 819, False),
    Figure("w1_dataclass", "W1 with frozen dataclasses / plain bare loop", "ratio"),
    Figure("w1_pydantic", "W1 with pydantic models / plain bare loop", "ratio"),
    Figure("plain_latency_p50", "the plain bare loop itself, p50 at 100/s", "ms", higher=False),
    Figure("plain_latency_p99", "the plain bare loop itself, p99 at 100/s", "ms", higher=False),
    Figure("timers_p50", "the same, p50", "ms", higher=False),
    Figure("timers_empty", "the same worker with nothing armed", "%", higher=False),
    Figure("w2_dbos_two", "W2, 32 in flight / the same job in DBOS, two processes", "ratio"),
    Figure("w2_p99", "W2, one in flight: a step, p99", "ms", higher=False),
    Figure("w2_plain_p50", "its bare loop, one in flight: a step, p50", "ms", higher=False),
    Figure("fanout_p50", "fork into 200 branches and join, p50", "ms", higher=False),
    Figure("unknown_p50", "unknown outcomes: half of them settled", "s", higher=False),
    Figure("tricks_plain", "bare loop with every trick / plain bare loop", "ratio"),
    Figure(
        "raised_plain",
        "plain bare loop with raised collector thresholds / plain bare loop",
        "ratio",
    ),
    Figure("neighbour_plain", "the neighbours' bare loop / plain bare loop", "ratio"),
)
BY_NAME: Final = {figure.name: figure for figure in FIGURES}


@dataclass(frozen=True, slots=True)
class Found:
    """The samples of one figure, in the order in which they were taken."""

    figure: Figure
    samples: Sequence[float]
    faults: Sequence[str] = ()
    """What was wrong with a run; a ratio whose run was wrong is zero."""

    def as_json(self) -> dict[str, Any]:
        """The figure as it stands in a results file."""
        shown = {
            "min": min(self.samples),
            "median": median(self.samples),
            "max": max(self.samples),
        }
        return {
            **asdict(self.figure),
            **{name: round(value, 4) for name, value in shown.items()},
            "samples": [round(value, 4) for value in self.samples],
            "judgement": "missed" if self.faults else self.figure.judge(shown["median"]),
            "faults": list(self.faults),
        }
