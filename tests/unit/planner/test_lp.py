"""The planner around its solver: what it does with good answers, bad ones and none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rackpower_common.model.policy import Objective
from rackpower_controller.core.check import violations
from rackpower_controller.core.groups import Group, alike_groups
from rackpower_controller.core.planning import Plan, PlanRequest
from rackpower_controller.core.waterfill import waterfill
from rackpower_controller.planner.flow import FlowSolver, SolverAnswer
from rackpower_controller.planner.lp import LpPlanner
from rackpower_controller.planner.objective import gained_tokens_per_s
from support.plans import domain, gpu, mixed_rack, node, question


class Ticking:
    """A clock that moves a second each time somebody looks."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        self.now_s += 1.0
        return self.now_s


class ToldSolver:
    """A solver that says what it was told to say, or fails with it, and remembers what it was asked."""

    def __init__(self, says: SolverAnswer | Exception) -> None:
        self.says = says
        self.deadlines_s: list[float] = []

    def solve(
        self, request: PlanRequest, groups: Sequence[Group], fits: Sequence[bool], deadline_s: float
    ) -> SolverAnswer:
        """See `flow.Solver`."""
        self.deadlines_s.append(deadline_s)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def crossing() -> PlanRequest:
    """Return a rack on which greed loses: a counts on both feeds, and is worth more than b with a flat watt of c."""
    domains = [domain("A", 200), domain("B", 200)]
    nodes = [node("both", (0, 1.0), (1, 1.0)), node("left", (0, 1.0)), node("right", (1, 1.0))]
    gpus = [
        gpu("a", 0, 0, [(100, 3.0)]),
        gpu("b", 1, 0, [(200, 2.0)]),
        gpu("c", 2, 0, [(40, 2.0), (160, 0.1)]),
    ]
    return question(domains, nodes, gpus)


def caps_w(plan: Plan) -> tuple[int, ...]:
    """Return a plan's caps in its order."""
    return tuple(plan.targets_w[one] for one in plan.membership)


def told(says: SolverAnswer | Exception, request: PlanRequest) -> Plan:
    """Plan with a solver that says this."""
    return LpPlanner(solver=ToldSolver(says)).plan(request, 0.5)


def test_a_plan_carries_what_it_was_made_for() -> None:
    """Revision, GPUs and limits are the request's; objective and source are told."""
    request = mixed_rack()
    plan = LpPlanner().plan(request, 0.5)
    assert (plan.revision, plan.membership, plan.ceilings_w) == ("r1", request.membership, request.ceilings_w)
    assert (plan.source, plan.note) == ("lp", "")
    assert plan.objective > 0.0
    assert violations(request, caps_w(plan)) == []


def test_on_a_tree_that_nests_equal_nodes_are_treated_equally() -> None:
    """Among the best answers the plan is the even one, not a corner of the solver's."""
    nodes = [node("n1"), node("n2"), node("n3")]
    gpus = [gpu(name, on) for on, name in enumerate("abc")]
    plan = LpPlanner().plan(question([domain("rack", 450)], nodes, gpus), 0.5)
    assert plan.source == "lp"
    assert caps_w(plan) == (150, 150, 150)


def test_where_feeds_cross_the_solver_finds_more_than_greed() -> None:
    """The plan is worth more than the water-fill's, and keeps every ceiling."""
    request = crossing()
    plan = LpPlanner().plan(request, 0.5)
    assert plan.source == "lp"
    assert caps_w(plan) == (100, 100, 100)
    assert plan.objective == pytest.approx(586.0)
    assert gained_tokens_per_s(request, waterfill(request)) == pytest.approx(496.0)


def test_the_solvers_watts_are_rounded_down_and_what_is_left_is_handed_out() -> None:
    """With losses a corner is no whole number: the plan still leaves no watt that fits."""
    request = replace(mixed_rack(), domains=tuple(replace(one, loss=1.017) for one in mixed_rack().domains))
    plan = LpPlanner().plan(request, 0.5)
    caps = caps_w(plan)
    for place, one in enumerate(request.gpus):
        if caps[place] < one.lo_w + sum(piece.width_w for piece in one.segments):
            assert violations(request, (*caps[:place], caps[place] + 1, *caps[place + 1 :]))


def test_minima_that_do_not_fit_are_no_failure() -> None:
    """Below such a domain all stand at their minimum, the solver plans the others."""
    domains = [domain("rack", 900), domain("low", 150, 0), domain("fine", 900, 0)]
    nodes = [node("a", (1, 1.0)), node("b", (2, 1.0))]
    plan = LpPlanner().plan(question(domains, nodes, [gpu("a1", 0), gpu("a2", 0), gpu("b", 1)]), 0.5)
    assert plan.source == "lp"
    assert caps_w(plan) == (100, 100, 300)


def test_a_rack_without_gpus_has_an_empty_plan() -> None:
    """Before anybody reported there is nothing to plan and nothing to fail."""
    plan = LpPlanner().plan(question([domain("rack", 100)], [node("n")], []), 0.5)
    assert (plan.targets_w, plan.objective, plan.source) == ({}, 0.0, "lp")


def test_without_time_the_waterfill_answers() -> None:
    """A deadline that has passed asks no solver for figures."""
    request = mixed_rack()
    plan = LpPlanner().plan(request, 0.0)
    assert (plan.source, plan.note) == ("waterfill", "no time was left for the solver")
    assert caps_w(plan) == waterfill(request)


@pytest.mark.parametrize(
    ("says", "note"),
    [
        (
            SolverAnswer((), proven=False, solved=False, unique=False, words="the solver says that it ran out of time"),
            "the solver says that it ran out of time",
        ),
        (
            SolverAnswer((), proven=True, solved=False, unique=False, words="the solver's figures are no numbers"),
            "the solver's figures are no numbers",
        ),
        (
            SolverAnswer((1, 2), proven=True, solved=True, unique=True),
            "the solver's answer fails our check: 0 caps for 72 GPUs",
        ),
        (RuntimeError("out of memory"), "the solver failed: RuntimeError: out of memory"),
    ],
)
def test_a_solver_that_fails_is_answered_for_by_the_waterfill(says: SolverAnswer | Exception, note: str) -> None:
    """Whatever the solver does there is a plan, and its note says why it is the water-fill's."""
    request = mixed_rack()
    plan = told(says, request)
    assert (plan.source, plan.note) == ("waterfill", note)
    assert caps_w(plan) == waterfill(request)


@pytest.mark.parametrize("watts", [10**9, -(10**9)])
def test_a_solver_that_lies_breaks_no_limit(watts: int) -> None:
    """Figures beyond the limits are cut to what fits, figures below nothing count as nothing."""
    request = mixed_rack()
    says = SolverAnswer((watts,) * len(alike_groups(request)), proven=True, solved=True, unique=True)
    plan = told(says, request)
    assert violations(request, caps_w(plan)) == []
    assert caps_w(plan) == waterfill(request)


def test_the_solver_gets_what_is_left_of_the_deadline() -> None:
    """The water-fill's own time counts too, and the whole is told as `solve_s`."""
    solver = ToldSolver(SolverAnswer((), proven=False, solved=False, unique=False))
    plan = LpPlanner(clock=Ticking(), solver=solver).plan(mixed_rack(), 5.0)
    assert solver.deadlines_s == [4.0]
    assert plan.solve_s == 2.0


def test_another_objective_is_planned_for_tokens_and_says_so() -> None:
    """A policy cannot ask for it yet; a request that does is not silently misread."""
    plan = LpPlanner().plan(replace(mixed_rack(), objective=Objective.GPUS), 0.5)
    assert plan.note == "planned for tokens: gpus is not planned for yet"


def test_the_program_is_kept_between_requests_of_one_structure() -> None:
    """Other limits and slopes re-solve it, another tree or another group makes a new one."""
    solver = FlowSolver(Ticking())
    planner = LpPlanner(clock=lambda: 0.0, solver=solver)
    request = mixed_rack()
    planner.plan(request, 500.0)
    planner.plan(mixed_rack(share=0.5, loss=1.05), 500.0)
    assert solver.warm_solves == 1
    planner.plan(replace(request, gpus=request.gpus[8:]), 500.0)
    assert solver.warm_solves == 1
