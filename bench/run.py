"""The benchmark: `python -m bench.run [--session NAME] [--quick] [--only PART …] [--rounds N]`.

Two sessions, one after the other unless one is named. `spine`: w1, snapshots, styles, limits,
neighbour (ratios of interleaved runs), rebuild, latency, takeover, memory. `actions`: w2 (beside
its bare loop and DBOS), ledger, unknown, timers, fanout.
Results go to bench/results/figures.json and actions.json, with a table beside each; those of a
quick or partial session to bench/results/tmp/. A session takes at most 25 minutes, quick about 3:
a part that would begin later is left out and named.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench import (
    chains,
    fanout,
    latency,
    ledger,
    machine,
    memory,
    product,
    report,
    takeover,
    timers,
    unknown,
    w2_runs,
)
from bench.figures import BY_NAME, Found
from bench.runs import LOGS, RUN_TIMEOUT_S, Bench, Run, clear_logs
from bench.servers import servers

PARTS = (
    "w1",
    "snapshots",
    "rebuild",
    "styles",
    "limits",
    "neighbour",
    "takeover",
    "latency",
    "memory",
    "w2",
    "ledger",
    "unknown",
    "timers",
    "fanout",
)
"""In the order in which they run: those behind neighbour write other events in place of W1's."""
ACTIONS = PARTS[PARTS.index("w2") :]
SESSIONS = {"spine": PARTS[: PARTS.index("w2")], "actions": ACTIONS}
TARGETS = {"spine": report.LATEST, "actions": report.LATEST.with_name("actions.json")}
IN_PAIRS = 32
"""Instances of W2 in flight where it is compared."""
IN_FLIGHT = 1000
AWAY_S = 10.0
"""For so long the other side answers nothing."""
CONTEXT = ("styles", "limits", "neighbour")
CONTEXT_ROUNDS = 3
"""Ratios of which nothing is asked: fewer rounds do."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a session does."""

    instances: int
    rounds: int
    repeats: int
    """Repeats of latency and takeover."""
    latency_events: int
    live: int
    minutes: float
    due_s: int
    """For so long timers come due."""
    rest_s: float
    """For so long a worker rests."""
    counted_s: float
    """For so long the steps of a run of W2 count."""
    actions: int
    """Of one run of the ledger."""
    unknown: int
    """Outcomes that nobody knows."""
    forks: int


FULL = Size(150_000, 5, 3, 2000, 100_000, 22, 20, 15.0, 8.0, 40_000, 500, 120)
QUICK = Size(25_000, 1, 1, 500, 20_000, 3, 5, 4.0, 4.0, 10_000, 200, 20)


class Session:
    """One session: what it found so far."""

    def __init__(self, bench: Bench, size: Size) -> None:
        self.bench = bench
        self.size = size
        self.found: list[Found] = []
        self.runs: list[Run] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Shows progress, with the minutes since the start."""
        print(f"[{(time.monotonic() - self._began) / 60:5.1f} min] {text}", flush=True)

    def late(self) -> bool:
        """Whether the time for beginning another part is over."""
        return time.monotonic() - self._began > self.size.minutes * 60

    def chain(self, name: str) -> None:
        """Measures the ratios of one chain."""
        rounds = min(self.size.rounds, CONTEXT_ROUNDS) if name in CONTEXT else self.size.rounds
        found, runs = chains.measure(self.bench, name, rounds, self.say)
        self.found += found
        self.runs += runs
        for each in found:
            self._show(each)

    def rebuild(self) -> None:
        """Folds W1's log anew, after a worker has folded it once, beside the bare replay loop."""
        samples, faults = [], []
        with product.fresh(self.bench.servers, "w1") as deployment:
            with deployment.worker(LOGS / "rebuild-first", {"rows": "false"}) as worker:
                fault = worker.until_folded(self.bench.events, RUN_TIMEOUT_S)
                fault = fault or worker.stop().fault
            for number in range(0 if fault else self.size.rounds):
                under = self.bench.replay_limit()
                over = self.bench.replay_product(deployment)
                self.runs += [under, over]
                shown = f"{over.rate:,.0f} of {under.rate:,.0f} events/s  {over.fault}"
                self.say(f"rebuild {number + 1}/{self.size.rounds}  {shown}")
                samples.append(over.rate / under.rate if under.rate else 0.0)
                faults += [run.fault for run in (under, over) if run.fault]
        self._add("rebuild", samples or [0.0], [fault] if fault else faults)

    def latency(self) -> None:
        """Measures the product's latency and, beside it, that of the plain bare loop."""
        measures: dict[str, Callable[..., latency.Latency]] = {
            "latency": latency.of_product,
            "plain_latency": latency.of_plain_loop,
        }
        samples: dict[str, list[latency.Latency]] = {name: [] for name in measures}
        for number in range(self.size.repeats):
            for name, measure in measures.items():
                one = measure(self.bench.servers, self.size.latency_events, LOGS)
                samples[name].append(one)
                self.say(f"{name} {number + 1}/{self.size.repeats}  {one}")
        for name, taken in samples.items():
            faults = [one.fault for one in taken if one.fault]
            self._add(f"{name}_p50", [one.p50_ms for one in taken], faults)
            self._add(f"{name}_p99", [one.p99_ms for one in taken], faults)

    def takeover(self) -> None:
        """Kills owners of many live instances."""
        for name, victim in (("tail", takeover.NO_SNAPSHOTS), ("default", {})):
            taken = []
            for number in range(self.size.repeats):
                one = takeover.measure(self.bench.servers, self.size.live, victim, LOGS)
                taken.append(one)
                self.say(f"takeover {name} {number + 1}/{self.size.repeats}  {one}")
            faults = [one.fault for one in taken if one.fault]
            self._add(f"takeover_{name}", [one.first_s for one in taken], faults)

    def memory(self) -> None:
        """Weighs live instances."""
        one = memory.measure(self.bench.servers, self.size.live, LOGS)
        self.say(f"memory  {one}")
        self._add("memory", [one.above_bytes], [one.fault] if one.fault else [])

    def w2(self) -> None:
        """Steps a second in flight by the thousand; ratios at 32; how long one step takes."""
        count = self.size.counted_s
        rates = []
        for number in range(self.size.repeats):
            load = w2_runs.Load(IN_FLIGHT, count)
            rates.append(self._w2("product", load, f"{number + 1}/{self.size.repeats}"))
        self._add("w2_rate", [one.rate for one in rates], _faults(rates))
        self._w2_pairs(w2_runs.Load(IN_PAIRS, count))
        alone = w2_runs.Load(1, count, watch=True)
        steps: dict[str, list[w2_runs.Steps]] = {"product": [], "limit": []}
        for number in range(self.size.repeats):
            for side, taken in steps.items():
                taken.append(self._w2(side, alone, f"{number + 1}/{self.size.repeats}"))
        self._add("w2_p50", [one.p50_ms for one in steps["product"]], _faults(steps["product"]))
        self._add("w2_p99", [one.p99_ms for one in steps["product"]], _faults(steps["product"]))
        self._add("w2_plain_p50", [one.p50_ms for one in steps["limit"]], _faults(steps["limit"]))

    def _w2_pairs(self, load: w2_runs.Load) -> None:
        """The product between its bare loop and DBOS, every second round backwards."""
        order = ("limit", "product", "dbos", "dbos_two")
        ratios: dict[str, list[float]] = {side: [] for side in order if side != "product"}
        faults: list[str] = []
        for number in range(self.size.rounds):
            sides = order if number % 2 == 0 else order[::-1]
            shown = f"{number + 1}/{self.size.rounds}"
            taken = {side: self._w2(side, load, shown) for side in sides}
            faults += _faults(taken.values())
            for side, values in ratios.items():
                values.append(taken["product"].rate / (taken[side].rate or float("inf")))
        for side, values in ratios.items():
            self._add(f"w2_{side}", values, faults)

    def _w2(self, side: str, load: w2_runs.Load, shown: str) -> w2_runs.Steps:
        one = w2_runs.SIDES[side](self.bench.servers, load)
        cpu_us = sum(one.cpu_us.values())
        name = f"W2 {side}, {load.in_flight:,} in flight"
        self.runs.append(Run(name, one.rate, load.seconds, cpu_us, one.fault, dict(one.cpu_us)))
        self.say(f"{name} {shown}  {one}")
        return one

    def ledger(self) -> None:
        """Puts the ledger beside the SQL that it was seen to execute."""
        rounds = []
        for number in range(self.size.rounds):
            one = ledger.measure(
                self.bench.servers, self.size.actions, LOGS, product_first=number % 2 == 0
            )
            rounds.append(one)
            self.say(f"ledger {number + 1}/{self.size.rounds}  {one}")
        ratios = [one.product / (one.limit or float("inf")) for one in rounds]
        self._add("ledger", ratios, [one.fault for one in rounds if one.fault])

    def unknown(self) -> None:
        """Loses answers, and lets the other side answer again."""
        taken = []
        for number in range(self.size.repeats):
            one = unknown.measure(self.bench.servers, self.size.unknown, AWAY_S, LOGS)
            taken.append(one)
            self.say(f"unknown {number + 1}/{self.size.repeats}  {one}")
        faults = [one.fault for one in taken if one.fault]
        self._add("unknown", [one.last_s for one in taken], faults)
        self._add("unknown_p50", [one.p50_s for one in taken], faults)

    def timers(self) -> None:
        """Arms many timers, rests, and lets a thousand a second come due."""
        size = self.size
        taken = []
        for number in range(size.repeats):
            one = timers.measure(self.bench.servers, size.live, size.due_s, size.rest_s, LOGS)
            taken.append(one)
            self.say(f"timers {number + 1}/{size.repeats}  {one}")
        faults = [one.fault for one in taken if one.fault]
        self._add("timers_p99", [one.p99_ms for one in taken], faults)
        self._add("timers_p50", [one.p50_ms for one in taken], faults)
        self._add("timers_rest", [one.rest_percent for one in taken], faults)
        self._add("timers_empty", [one.empty_percent for one in taken], faults)

    def fanout(self) -> None:
        """Forks into many branches and joins them."""
        taken = []
        for number in range(self.size.repeats):
            one = fanout.measure(self.bench.servers, self.size.forks, LOGS)
            taken.append(one)
            self.say(f"fanout {number + 1}/{self.size.repeats}  {one}")
        faults = [one.fault for one in taken if one.fault]
        self._add("fanout_p99", [one.p99_ms for one in taken], faults)
        self._add("fanout_p50", [one.p50_ms for one in taken], faults)

    def _add(self, name: str, samples: Sequence[float], faults: Sequence[str]) -> None:
        self.found.append(Found(BY_NAME[name], samples, faults))
        self._show(self.found[-1])

    def _show(self, found: Found) -> None:
        line = found.as_json()
        self.say(
            f"  {line['title']}: min {line['min']:.2f}  median {line['median']:.2f}"
            f"  max {line['max']:.2f} {line['unit']}  {line['judgement']}"
        )

    def results(self, quick: bool) -> dict[str, Any]:
        """What the results file holds."""
        return {
            "made": datetime.now(UTC).isoformat(timespec="minutes"),
            "quick": quick,
            "events": self.bench.events,
            "machine": {**machine.describe(), **self.bench.servers.versions()},
            "figures": [each.as_json() for each in self.found],
            "sides": _sides(self.runs),
            "runs": [run.as_json() for run in self.runs],
        }


def _faults(runs: Iterable[w2_runs.Steps]) -> list[str]:
    return [one.fault for one in runs if one.fault]


def _sides(runs: Sequence[Run]) -> list[dict[str, Any]]:
    names = dict.fromkeys(run.side for run in runs)
    groups = {name: [run for run in runs if run.side == name] for name in names}
    return [
        {
            "side": name,
            "rate": median(run.rate for run in group),
            "cpu_us": median(run.cpu_us for run in group),
            "runs": len(group),
        }
        for name, group in groups.items()
    ]


def measure(size: Size, parts: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Runs the parts, within the session's time."""
    with servers() as found:
        session = Session(Bench(found, size.instances), size)
        session.say(f"servers: {found.source}; load {machine.load()}")
        if set(parts) & {*chains.CHAINS, "rebuild"}:
            session.say(f"wrote the events in {session.bench.prepare():.1f} s")
            session.say(f"warmed up: {session.bench.limit('plain').rate:,.0f} events/s")
        for part in sorted(parts, key=PARTS.index):
            if session.late():
                session.say(f"no time left for: {part}")
            elif part in chains.CHAINS:
                session.chain(part)
            else:
                getattr(session, part)()
        return session.results(quick)


def main() -> None:
    """Measures as the command line says, writes the results and shows the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small and short")
    parser.add_argument("--session", choices=SESSIONS, help="one alone; both by default")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help="these parts")
    parser.add_argument("--rounds", type=int, help="repeats of each chain")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = Size(**{**_fields(size), "rounds": options.rounds, "repeats": options.rounds})
    clear_logs()
    missed: list[str] = []
    for name in [options.session] if options.session else SESSIONS:
        parts = [part for part in SESSIONS[name] if not options.only or part in options.only]
        if not parts:
            continue
        results = measure(size, parts, quick=options.quick)
        whole = not options.quick and not options.only
        target = TARGETS[name] if whole else LOGS / TARGETS[name].name
        write(results, target)
        print(f"\n{report.render(results)}\nwritten: {target}")
        missed += [each["name"] for each in results["figures"] if each["judgement"] == "missed"]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


def write(results: dict[str, Any], target: Path) -> None:
    """Writes the results and their table side by side."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    target.with_suffix(".md").write_text(report.render(results))


def _fields(size: Size) -> dict[str, Any]:
    return {name: getattr(size, name) for name in Size.__slots__}


if __name__ == "__main__":
    main()
