"""Measure what we promise and print it as one table; exits 1 when a budget is broken or a figure is missing.

make bench                    everything
make bench ARGS="decide plan" some of it
make bench ARGS=--json        for machines
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from bench import agent, decide, plan, status, waterfill
from bench.figure import Figure, yardstick_s

Bench = Callable[[float], list[Figure]]

BENCHES: dict[str, Bench] = {
    "decide": decide.figures,
    "plan": plan.figures,
    "waterfill": waterfill.figures,
    "agent": agent.figures,
    "status": status.figures,
}
HEADER = ("figure", "measured", "budget", "of budget", "ratio", "")


def main(arguments: Sequence[str] | None = None, benches: Mapping[str, Bench] = BENCHES) -> int:
    """Run the benches that were asked for; return the exit code.

    Args:
        arguments: The command line, without the program.
        benches: What there is, by name.
    """
    parser = argparse.ArgumentParser(prog="bench.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(benches)}; all without")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in benches]
    if unknown:
        parser.error(f"no bench is called {', '.join(unknown)}; there are {', '.join(benches)}")
    stick_s = yardstick_s()
    figures = [Figure("yardstick: a fixed piece of plain Python", 1e3 * stick_s, "ms")]
    failures: dict[str, str] = {}
    for name in asked.names or benches:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        try:
            figures += benches[name](stick_s)
        except Exception as error:  # noqa: BLE001 - one broken bench never silences another
            failures[name] = f"{type(error).__name__}: {error}"
    if asked.json:
        print(json.dumps({"figures": [asdict(figure) for figure in figures], "failures": failures}))
    else:
        print(table(figures, failures))
    return 1 if failures or any(figure.broken for figure in figures) else 0


def table(figures: Sequence[Figure], failures: dict[str, str]) -> str:
    """Return figures and failures as aligned text."""
    rows = [HEADER, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths[:-1]))
    lines += [f"NOT MEASURED  {name}: {words}" for name, words in failures.items()]
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, str, str, str, str, str]:
    budget, share = "", ""
    if figure.budget is not None:
        budget, share = f"{figure.budget:g} {figure.unit}", f"{figure.value / figure.budget:.0%}"
    ratio = f"{figure.times:.2f} × {figure.than}" if figure.times is not None else ""
    verdict = "BROKEN" if figure.broken else ""
    return (figure.name, f"{figure.value:.3g} {figure.unit}", budget, share, ratio, verdict)


if __name__ == "__main__":
    sys.exit(main())
