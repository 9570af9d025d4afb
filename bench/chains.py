"""Interleaved runs: each chain is a row of sides whose neighbours are divided by each other.

Law of this module: both runs of a ratio are adjacent in time, since a shared machine moves by a
factor of two within the hour and only the ratio of adjacent runs holds. Every second round runs
the chain backwards, so that a drift within a round does not favour a side.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from bench.figures import BY_NAME, Found
from bench.runs import Bench, Run

NO_SNAPSHOTS: Final = {"takeover_budget_s": "3600", "snapshot_max_age_s": "3600"}


class Ratio(NamedTuple):
    """A figure that is one side over another."""

    figure: str
    over: str
    under: str


class Chain(NamedTuple):
    """Sides in the order in which they run, and the ratios between neighbours."""

    sides: Sequence[str]
    ratios: Sequence[Ratio]


SIDES: Final[dict[str, Callable[[Bench], Run]]] = {
    "plain": lambda bench: bench.limit("plain"),
    "tricks": lambda bench: bench.limit("tricks"),
    "raised": lambda bench: bench.limit("plain", "--raised"),
    "neighbour": lambda bench: bench.limit("neighbour"),
    "replay": lambda bench: bench.replay_limit(),
    "product": lambda bench: bench.product(rows="false"),
    "rows": lambda bench: bench.product(rows="true"),
    "unsaved": lambda bench: bench.product(rows="false", **NO_SNAPSHOTS),
    "dataclass": lambda bench: bench.product("w1_dataclass", rows="false"),
    "pydantic": lambda bench: bench.product("w1_pydantic", rows="false"),
}
LIMITS: Final = frozenset({"plain", "raised", "tricks", "neighbour", "replay"})
"""Sides whose result must be right, or the benchmark itself is broken."""

CHAINS: Final[dict[str, Chain]] = {
    "limits": Chain(
        ("tricks", "plain", "raised"),
        (Ratio("tricks_plain", "tricks", "plain"), Ratio("raised_plain", "raised", "plain")),
    ),
    "neighbour": Chain(
        ("replay", "neighbour", "plain"), (Ratio("neighbour_plain", "neighbour", "plain"),)
    ),
    "w1": Chain(
        ("tricks", "product", "plain", "rows"),
        (
            Ratio("w1_plain", "product", "plain"),
            Ratio("w1_tricks", "product", "tricks"),
            Ratio("w1_rows", "rows", "plain"),
        ),
    ),
    "styles": Chain(
        ("dataclass", "plain", "pydantic"),
        (
            Ratio("w1_dataclass", "dataclass", "plain"),
            Ratio("w1_pydantic", "pydantic", "plain"),
        ),
    ),
    "snapshots": Chain(("product", "unsaved"), (Ratio("snapshots", "product", "unsaved"),)),
}

Say = Callable[[str], None]


def measure(bench: Bench, name: str, rounds: int, say: Say) -> tuple[list[Found], list[Run]]:
    """Runs a chain so many times; returns its figures and all runs.

    Raises:
        RuntimeError: A bare loop gave a wrong result: nothing can be divided by it.
    """
    chain = CHAINS[name]
    runs: list[Run] = []
    samples: dict[str, list[float]] = defaultdict(list)
    faults: dict[str, list[str]] = defaultdict(list)
    for number in range(rounds):
        order = chain.sides if number % 2 == 0 else chain.sides[::-1]
        by_side: dict[str, Run] = {}
        for side in order:
            by_side[side] = run = replace(SIDES[side](bench), side=side)
            runs.append(run)
            say(f"{name} {number + 1}/{rounds}  {side:<10} {_shown(run)}")
            if run.fault and side in LIMITS:
                raise RuntimeError(f"the bare loop {side} is wrong: {run.fault}")
        for ratio in chain.ratios:
            over, under = by_side[ratio.over], by_side[ratio.under]
            value = over.rate / under.rate if under.rate else 0.0
            samples[ratio.figure].append((1 - value) * 100 if name == "snapshots" else value)
            faults[ratio.figure].extend(run.fault for run in (over, under) if run.fault)
    found = [
        Found(BY_NAME[ratio.figure], samples[ratio.figure], faults[ratio.figure])
        for ratio in chain.ratios
    ]
    return found, runs


def _shown(run: Run) -> str:
    if run.fault:
        return f"WRONG: {run.fault}"
    return f"{run.rate:>9,.0f} events/s  {run.cpu_us:5.1f} µs CPU/event"
