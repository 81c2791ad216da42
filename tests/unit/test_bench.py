"""The bench's table and its exit code, in a process of its own as `make bench` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROBE = """
import sys
from bench.figure import BenchFailed, Figure
from bench.run import main

def gone(yardstick_s):
    raise BenchFailed("the demo did not start")

def measured(yardstick_s):
    return [Figure("fine", 1.0, "ms", 2.0, 0.5, "yardstick"), Figure("slow", VALUE, "ms", 2.0)]

sys.exit(main(sys.argv[1:], {"gone": gone, "measured": measured}))
"""


def bench(*arguments: str, value: str = "1.5") -> subprocess.CompletedProcess[str]:
    """Run the bench over two probes, one of which fails."""
    command = [sys.executable, "-c", PROBE.replace("VALUE", value), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_within_budget_is_exit_code_0() -> None:
    """Every figure is a row with its budget, its share and its ratio."""
    done = bench("measured")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0][:3] == ["figure", "measured", "budget"]
    assert ["fine", "1", "ms", "2", "ms", "50%", "0.50", "×", "yardstick"] in rows
    assert ["slow", "1.5", "ms", "2", "ms", "75%"] in rows


def test_a_broken_budget_is_named_and_is_exit_code_1() -> None:
    """A figure above its budget cannot be overlooked, by eye or by a script."""
    done = bench("measured", value="2.5")
    assert done.returncode == 1
    assert ["slow", "2.5", "ms", "2", "ms", "125%", "BROKEN"] in [line.split() for line in done.stdout.splitlines()]


def test_no_number_is_no_pass() -> None:
    """NaN keeps no budget."""
    assert bench("measured", value='float("nan")').returncode == 1


def test_a_bench_that_fails_is_told_and_silences_no_other() -> None:
    """The others are measured all the same, and the exit code is 1."""
    done = bench()
    assert done.returncode == 1
    assert "NOT MEASURED  gone: BenchFailed: the demo did not start" in done.stdout
    assert "fine" in done.stdout


def test_json_has_the_same_figures_and_failures() -> None:
    """For machines."""
    told = json.loads(bench("--json").stdout)
    assert [figure["name"] for figure in told["figures"][1:]] == ["fine", "slow"]
    assert told["failures"] == {"gone": "BenchFailed: the demo did not start"}


def test_an_unknown_name_is_a_usage_error_that_lists_the_names() -> None:
    """Exit code 2, before anything is measured."""
    done = bench("nosuch")
    assert done.returncode == 2
    assert "no bench is called nosuch; there are gone, measured" in done.stderr
