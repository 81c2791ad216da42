"""`decide` for 72 GPUs: a tick must never be late."""

from __future__ import annotations

from functools import partial

from bench.figure import Figure, durations_s, percentile
from bench.racks import moments

from rackpower_controller.core.decide import decide

TICKS = 300
BUDGET_MS = 5.0


def figures(yardstick_s: float) -> list[Figure]:
    """Time `decide` over a run in which limits fall and rise."""
    work = [partial(decide, one.state, one.plan, one.policy, one.now_s) for one in moments(TICKS)]
    taken_s = durations_s(work)
    return [
        Figure(
            f"decide, 72 GPUs, p{percent}",
            1e3 * percentile(taken_s, percent),
            "ms",
            BUDGET_MS if percent == 99 else None,
            percentile(taken_s, percent) / yardstick_s,
            "yardstick",
        )
        for percent in (50, 99)
    ]
