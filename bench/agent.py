"""An agent's memory and share of a core, at a report a second and ten samples a second of eight GPUs."""

from __future__ import annotations

import time

import psutil
from bench.demo import running
from bench.figure import BenchFailed, Figure

WARM_UP_S = 15.0
"""Python starts, TLS shakes hands, the first grants come: none of it is the steady state."""

WINDOW_S = 20.0
BUDGET_MB = 70.0
BUDGET_CORE_PERCENT = 1.5


def figures(_yardstick_s: float) -> list[Figure]:
    """Watch a demo's agents for a while."""
    with running(seconds=int(WARM_UP_S + WINDOW_S) + 60) as demo:
        time.sleep(WARM_UP_S)
        agents = demo.named("rackpower-agent")
        before_s = [_busy_s(agent) for agent in agents]
        started_s = time.monotonic()
        time.sleep(WINDOW_S)
        passed_s = time.monotonic() - started_s
        try:
            shares = [
                100.0 * (_busy_s(agent) - busy_s) / passed_s for agent, busy_s in zip(agents, before_s, strict=True)
            ]
            memory_mb = [agent.memory_info().rss / 1e6 for agent in agents]
        except psutil.NoSuchProcess as error:
            raise BenchFailed(f"an agent (pid {error.pid}) ended while it was watched") from error
    if not agents:
        raise BenchFailed("the demo's agents were gone when they were to be watched")
    mean = sum(shares) / len(shares)
    return [
        Figure("agent, resident memory, largest of 9", max(memory_mb), "MB", BUDGET_MB),
        Figure("agent, share of a core, mean of 9", mean, "%", BUDGET_CORE_PERCENT, max(shares) / mean, "largest/mean"),
    ]


def _busy_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
