"""Renders a results file as a Markdown table: `python -m bench.report [FILE]`.

Law of this module: it computes nothing; what it shows stands in the file.
"""

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
LATEST = RESULTS / "figures.json"
WORDS = {"aim": "aim reached", "must": "must kept", "missed": "**missed**", "": "–"}


def render(results: dict[str, Any]) -> str:
    """The page of one session."""
    lines = [
        "# Figures",
        "",
        f"Made {results['made']} on {_machine(results['machine'])}.",
        f"W1 has {results['events']:,} events here; broker and PostgreSQL run on the same cores.",
        "Ratios are of adjacent runs, `a / b` is the rate of a over that of b; a run whose keys,"
        " values or states are wrong counts as zero.",
    ]
    if results["quick"]:
        lines += ["", "**A quick run: small, few repeats; it shows that things work, no more.**"]
    lines += [
        "",
        "| figure | unit | must | aim | min | median | max | n | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_line(figure) for figure in results["figures"]),
    ]
    wrong = [
        f"- {each['name']}: {fault}" for each in results["figures"] for fault in each["faults"]
    ]
    if wrong:
        lines += ["", "What went wrong:", "", *wrong]
    lines += ["", "Rates of the sides, for orientation (they move with the machine):", ""]
    lines += [
        "| side | events or steps/s, median | CPU µs each, median | runs |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {side['side']} | {side['rate']:,.0f} | {side['cpu_us']:.1f} | {side['runs']} |"
        for side in results["sides"]
    ]
    return "\n".join(lines) + "\n"


def _line(figure: dict[str, Any]) -> str:
    sign = "≥" if figure["higher"] else "≤"
    bounds = (_bound(sign, figure["must"]), _bound(sign, figure["aim"]))
    values = (_number(figure[name]) for name in ("min", "median", "max"))
    cells = (figure["title"], figure["unit"], *bounds, *values, str(len(figure["samples"])))
    return f"| {' | '.join(cells)} | {WORDS[figure['judgement']]} |"


def _bound(sign: str, value: float | None) -> str:
    return "–" if value is None else f"{sign} {value:g}"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"


def _machine(machine: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items())


def main() -> None:
    """Renders the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=LATEST)
    print(render(json.loads(parser.parse_args().file.read_text())), end="")


if __name__ == "__main__":
    main()
