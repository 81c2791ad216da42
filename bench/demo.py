"""A running demo to measure on: `rackctl demo` with all of its processes, ended and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench.figure import BenchFailed

RACKCTL = Path(sys.executable).with_name("rackctl")
START_LIMIT_S = 90.0
END_LIMIT_S = 60.0
LOOK_S = 0.25
LAST_WORDS = 600
"""Characters of a failed demo's output that are told."""


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo's own process, and how many agents it has."""

    process: subprocess.Popen[str]
    agents: int

    def named(self, program: str) -> list[psutil.Process]:
        """Return the demo's processes that run this program, children of children too."""
        return [one for one in psutil.Process(self.process.pid).children(recursive=True) if runs(one, program)]


def runs(process: psutil.Process, program: str) -> bool:
    """Return whether a process runs a program of ours, started by its script or as a module."""
    module = program.replace("-", "_")
    try:
        words = process.cmdline()[:4]
    except psutil.Error:
        return False
    return any(Path(word).name == program or word == module or word.startswith(f"{module}.") for word in words)


@contextmanager
def running(seconds: int, agents: int = 9) -> Iterator[Demo]:
    """Start a demo and wait until all of its agents run; end it afterwards.

    Args:
        seconds: How long it would run by itself, start-up excluded.
        agents: How many agents it has by default.

    Raises:
        BenchFailed: It did not come up.
    """
    command = [str(RACKCTL), "demo", "--seconds", str(seconds), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        demo = Demo(process, agents)
        try:
            _wait_for_agents(demo)
            yield demo
        finally:
            process.terminate()
            try:
                process.communicate(timeout=END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for_agents(demo: Demo) -> None:
    until_s = time.monotonic() + START_LIMIT_S
    while len(demo.named("rackpower-agent")) < demo.agents:
        code = demo.process.poll()
        if code is not None:
            words = demo.process.stdout.read()[-LAST_WORDS:].strip() if demo.process.stdout is not None else ""
            raise BenchFailed(f"`rackctl demo` ended with exit code {code} before its agents ran: {words}")
        if time.monotonic() > until_s:
            count = len(demo.named("rackpower-agent"))
            raise BenchFailed(f"after {START_LIMIT_S:.0f} s only {count} of {demo.agents} agents run")
        time.sleep(LOOK_S)
