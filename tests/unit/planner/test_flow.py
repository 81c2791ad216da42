"""The solver behind the planner: canonical where answers tie, honest where there is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from rackpower_controller.core.groups import alike_groups
from rackpower_controller.core.planning import PlanRequest
from rackpower_controller.planner.flow import FlowSolver, SolverAnswer
from support.plans import domain, gpu, mixed_rack, node, question

ALL_FIT = [True] * 2000


def ask(solver: FlowSolver, request: PlanRequest, deadline_s: float = 500.0) -> SolverAnswer:
    """Ask about a request whose minima fit."""
    fits = ALL_FIT[: len(request.nodes) + len(request.domains)]
    return solver.solve(request, alike_groups(request), fits, deadline_s)


def fresh() -> FlowSolver:
    """Return a solver that was never asked."""
    return FlowSolver(lambda: 0.0)


def one_limit() -> PlanRequest:
    """Return equal nodes below one limit: every share between them is as good as another."""
    rack = mixed_rack(loss=1.0)
    roomy = tuple(replace(one, ceiling_w=10**6, loss=1.0) if one.parent >= 0 else one for one in rack.domains)
    return replace(rack, domains=roomy)


def feed_pair() -> PlanRequest:
    """Return equal nodes with half of each on two feeds."""
    rack = mixed_rack(loss=1.05)
    half_w = rack.domains[0].ceiling_w // 2
    feeds = (domain("A", half_w, fixed_w=100), domain("B", half_w + 100, fixed_w=100))
    return replace(rack, domains=feeds, nodes=tuple(replace(one, feeds=((0, 0.5), (1, 0.5))) for one in rack.nodes))


@pytest.mark.parametrize("make", [mixed_rack, one_limit, feed_pair])
def test_where_answers_tie_a_warm_solver_gives_the_same_one_as_a_cold_one(make: Callable[[], PlanRequest]) -> None:
    """Equal nodes make many best answers; which one is given must not depend on what was asked before."""
    base = make()
    rng, warm = random.Random(3), fresh()
    for _ in range(60):
        ceilings_w = [int(one.ceiling_w * rng.uniform(0.8, 1.1)) for one in base.domains]
        domains = tuple(replace(one, ceiling_w=watts) for one, watts in zip(base.domains, ceilings_w, strict=True))
        request = replace(base, domains=domains)
        assert ask(warm, request) == ask(fresh(), request)
    assert warm.warm_solves == 59
    assert warm.cold_solves < 40


def test_the_answer_is_watts_above_the_minima_for_each_group() -> None:
    """Whole watts, at the limit."""
    request = question([domain("rack", 350)], [node("n")], [gpu("a", alike=1), gpu("b", alike=1)])
    assert ask(fresh(), request) == SolverAnswer((150,), proven=True, solved=True, unique=True)


def test_fractions_are_rounded_down() -> None:
    """100 W behind a loss of 1.5 are 66.7 W of caps."""
    request = question([domain("rack", 250)], [node("n", loss=1.5)], [gpu("a")])
    assert ask(fresh(), request).above_w == (66,)


def test_a_program_in_which_nothing_fits_has_no_answer_and_says_so() -> None:
    """Minima that were called fitting and do not fit."""
    answer = ask(fresh(), question([domain("rack", 50)], [node("n")], [gpu("a")]))
    assert not answer.proven
    assert answer.words == "the solver says that nothing fits"


def test_after_a_failure_the_next_request_is_answered() -> None:
    """A program that failed is not kept."""
    solver = fresh()
    ask(solver, question([domain("rack", 50)], [node("n")], [gpu("a")]))
    assert ask(solver, question([domain("rack", 150)], [node("n")], [gpu("a")])).above_w == (50,)
    assert (solver.warm_solves, solver.cold_solves) == (0, 2)


def test_without_time_there_is_no_answer() -> None:
    """A deadline in the past."""
    answer = ask(fresh(), mixed_rack(), deadline_s=-1.0)
    assert not answer.proven
    assert answer.words == "no time was left for the solver"


def test_a_solver_that_is_late_has_no_answer_and_says_so() -> None:
    """A rack far too large for a millisecond: whatever the solver found by then does not count."""
    answer = ask(fresh(), mixed_rack(nodes=1000), deadline_s=0.001)
    assert not answer.proven
    assert answer.words.startswith("the solver says that it")
    assert answer.words.endswith("ran out of time")
