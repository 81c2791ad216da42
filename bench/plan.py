"""The plan for 72 GPUs: the solver warm and cold, and beside the water-fill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.figure import BenchFailed, Figure, durations_s, percentile
from bench.racks import moments

from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.core.waterfill import waterfill
from rackpower_controller.planner.lp import LpPlanner

TICKS = 200
BUDGET_MS = 20.0
DEADLINE_S = 0.5


def figures(yardstick_s: float) -> list[Figure]:
    """Time the planner over the questions of a run in which limits fall and rise."""
    questions = [one.question for one in moments(TICKS)]
    sources = {LpPlanner().plan(question, DEADLINE_S).source for question in questions}
    if sources != {"lp"}:
        raise BenchFailed("the solver did not answer in time: what was measured is the water-fill")
    warm_planner = LpPlanner()
    taken_s = {
        "warm": durations_s([partial(warm_planner.plan, question, DEADLINE_S) for question in questions]),
        "cold": durations_s([_cold(question) for question in questions]),
        "water-fill": durations_s([partial(waterfill, question) for question in questions]),
    }
    rows = []
    for kind in ("warm", "cold"):
        p50_s, p99_s = (percentile(taken_s[kind], percent) for percent in (50, 99))
        filled_s = percentile(taken_s["water-fill"], 50)
        rows.append(Figure(f"plan, 72 GPUs, {kind}, p50", 1e3 * p50_s, "ms", None, p50_s / filled_s, "water-fill"))
        rows.append(
            Figure(f"plan, 72 GPUs, {kind}, p99", 1e3 * p99_s, "ms", BUDGET_MS, p99_s / yardstick_s, "yardstick")
        )
    return rows


def _cold(question: PlanRequest) -> Callable[[], object]:
    return lambda: LpPlanner().plan(question, DEADLINE_S)
