"""`rackctl status` as a shell sees it: start, connect, ask, print."""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial

import psutil
from bench.demo import RACKCTL, Demo, running
from bench.figure import BenchFailed, Figure, durations_s, percentile

WARM_UP_S = 8.0
REPEATS = 7
TIMEOUT_S = 20.0
BUDGET_S = 0.5
ANSWERED = (0, 1)
"""Exit codes of an answer: 1 says that the rack needs attention, which is an answer all the same."""


def figures(yardstick_s: float) -> list[Figure]:
    """Ask a running demo for its status several times, and the shell for its own start."""
    with running(seconds=120) as demo:
        time.sleep(WARM_UP_S)
        environment = os.environ | {"RACKCTL_CONTROLLER": f"unix:{_operator_socket(demo)}"}
        taken_s = percentile(durations_s([partial(_ask, environment)] * REPEATS), 50)
        help_s = percentile(durations_s([partial(_call, ["--help"], environment)] * REPEATS), 50)
    row = Figure("rackctl status, 72 GPUs, p50", taken_s, "s", BUDGET_S, taken_s / yardstick_s, "yardstick")
    return [row, Figure("rackctl --help, p50", help_s, "s", None, taken_s / help_s, "in status")]


def _ask(environment: dict[str, str]) -> None:
    done = _call(["status"], environment)
    if done.returncode not in ANSWERED:
        raise BenchFailed(f"`rackctl status` ended with exit code {done.returncode}: {done.stderr.strip()}")


def _call(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(RACKCTL), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def _operator_socket(demo: Demo) -> str:
    """Return the path of the unix socket on which the demo's controller answers operators."""
    for controller in demo.named("rackpower-controller"):
        try:
            paths = [str(one.laddr) for one in controller.net_connections(kind="unix")]
        except psutil.Error as error:
            raise BenchFailed(f"the demo's controller cannot be looked at: {error}") from error
        found = sorted(path for path in paths if "operator" in os.path.basename(path))  # noqa: PTH119 - no file is meant
        if found:
            return found[0]
    raise BenchFailed("the demo's controller listens on no unix socket for operators")
