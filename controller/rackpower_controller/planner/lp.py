"""The product's planner: the solver's optimum where it counts, the water-fill's answer otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from rackpower_common.model.policy import Objective
from rackpower_controller.core.planning import Plan, PlanRequest
from rackpower_controller.core.waterfill import Pool
from rackpower_controller.planner.accept import refusal
from rackpower_controller.planner.flow import FlowSolver, Solver, SolverAnswer
from rackpower_controller.planner.objective import gained_tokens_per_s

EQUALLY_GOOD = 1e-6
"""Answers within this share of each other are equally good: then the even one is taken."""


class LpPlanner:
    """Plans by OR-Tools' linear solver, kept warm, with the water-fill beside it.

    Both are asked. Where they are equally good, as on every tree that nests, the water-fill's caps are the plan: among
    the best answers they are the one that treats equal nodes equally. Where feeds cross and the solver found more, its
    watts are rounded down and the water-fill hands out the rest.

    Args:
        clock: Seconds, for the deadline and for `Plan.solve_s`.
        solver: Finds the optimum.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, solver: Solver | None = None) -> None:
        self._clock = clock
        self._solver = solver if solver is not None else FlowSolver(clock)

    def plan(self, request: PlanRequest, deadline_s: float) -> Plan:
        """See `core.planning.Planner`."""
        started_s = self._clock()
        pool = Pool.of(request)
        nothing_w = np.zeros_like(pool.width_w)
        caps_w = pool.caps_w(pool.fill(nothing_w, pool.width_w))
        objective = gained_tokens_per_s(request, caps_w)
        answer = self._ask(request, pool, started_s + deadline_s - self._clock())
        solved_w: tuple[int, ...] = ()
        if len(answer.above_w) == len(pool.groups):
            rounded_w = pool.fill(nothing_w, pool.below(answer.above_w))
            solved_w = pool.caps_w(pool.fill(rounded_w, pool.width_w))
        refused = refusal(request, answer, solved_w)
        if not refused:
            solved_objective = gained_tokens_per_s(request, solved_w)
            if solved_objective > objective * (1.0 + EQUALLY_GOOD):
                caps_w, objective = solved_w, solved_objective
        return Plan(
            revision=request.revision,
            membership=request.membership,
            ceilings_w=request.ceilings_w,
            targets_w=dict(zip(request.membership, caps_w, strict=True)),
            source="waterfill" if refused else "lp",
            objective=objective,
            solve_s=self._clock() - started_s,
            note="; ".join(filter(None, [refused, _other_objective(request)])),
        )

    def _ask(self, request: PlanRequest, pool: Pool, deadline_s: float) -> SolverAnswer:
        fits = [not over for over in pool.tree.over(pool.minima_w[:, None])[:, 0]]
        try:
            return self._solver.solve(request, pool.groups, fits, deadline_s)
        except Exception as error:  # noqa: BLE001 - whatever the solver does, there is an answer
            words = f"the solver failed: {type(error).__name__}: {error}"
            return SolverAnswer((), proven=False, solved=False, unique=False, words=words)


def _other_objective(request: PlanRequest) -> str:
    if request.objective is Objective.TOKENS:
        return ""
    return f"planned for tokens: {request.objective.value} is not planned for yet"
