"""What every planner must do, over the product's and its double without a solver."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rackpower_controller.core.check import violations
from rackpower_controller.core.planning import Planner, PlanRequest
from rackpower_controller.planner.lp import LpPlanner
from rackpower_controller.planner.objective import gained_tokens_per_s
from support.plans import WaterfillPlanner, domain, gpu, mixed_rack, node, question

DEADLINES_S = [0.0, 1e-4, 0.5]


@pytest.fixture(params=[LpPlanner, WaterfillPlanner])
def planner(request: pytest.FixtureRequest) -> Planner:
    """Give a planner of each kind."""
    make: Callable[[], Planner] = request.param
    return make()


def _racks() -> list[PlanRequest]:
    feeds = [domain("A", 700), domain("B", 500)]
    hosts = [node("n1", (0, 0.5), (1, 0.5), loss=1.06), node("n2", (0, 0.3), (1, 0.7), fixed_w=50)]
    return [
        mixed_rack(),
        mixed_rack(nodes=2, share=0.2),
        question(feeds, hosts, [gpu("a", 0), gpu("b", 0), gpu("c", 1), gpu("d", 1, pieces=[])]),
        question([domain("rack", 150)], [node("n")], [gpu("a"), gpu("b")]),
        question([domain("rack", 150)], [node("n")], []),
        question([], [], []),
    ]


@pytest.mark.parametrize("rack", range(6))
@pytest.mark.parametrize("deadline_s", DEADLINES_S)
def test_every_gpu_gets_a_cap_and_every_ceiling_holds(planner: Planner, rack: int, deadline_s: float) -> None:
    """Hard requests, empty ones and no time at all still have a sound answer."""
    request = _racks()[rack]
    plan = planner.plan(request, deadline_s)
    assert tuple(plan.targets_w) == plan.membership == request.membership
    assert violations(request, tuple(plan.targets_w.values())) == []


@pytest.mark.parametrize("rack", range(6))
def test_a_plan_names_what_it_was_made_for(planner: Planner, rack: int) -> None:
    """Revision and ceilings are the request's, the objective is that of the caps, the source is told."""
    request = _racks()[rack]
    plan = planner.plan(request, 0.5)
    assert (plan.revision, plan.ceilings_w) == (request.revision, request.ceilings_w)
    assert plan.source in {"lp", "waterfill"}
    assert plan.objective == gained_tokens_per_s(request, tuple(plan.targets_w.values()))


def test_the_same_question_has_the_same_answer(planner: Planner) -> None:
    """Whatever was asked between."""
    first = [planner.plan(rack, 0.5) for rack in _racks()]
    second = [planner.plan(rack, 0.5) for rack in reversed(_racks())][::-1]
    assert [dict(plan.targets_w) for plan in first] == [dict(plan.targets_w) for plan in second]
    assert [plan.objective for plan in first] == [plan.objective for plan in second]


def test_alike_gpus_get_equal_caps(planner: Planner) -> None:
    """GPUs of one node that differ in nothing stand a watt apart at most."""
    request = mixed_rack()
    plan = planner.plan(request, 0.5)
    for number in range(len(request.nodes)):
        caps_w = [plan.targets_w[one.gpu] for one in request.gpus if one.node == number]
        assert max(caps_w) - min(caps_w) <= 1
