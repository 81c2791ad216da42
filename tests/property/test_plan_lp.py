"""The planner over random trees: as good as the water-fill, sound, and the same bytes whatever was asked before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpower_controller.core.check import violations
from rackpower_controller.core.groups import alike_groups
from rackpower_controller.core.planning import Plan, PlanRequest, Segment
from rackpower_controller.core.waterfill import Pool, waterfill
from rackpower_controller.planner.flow import FlowSolver
from rackpower_controller.planner.lp import LpPlanner
from rackpower_controller.planner.objective import gained_tokens_per_s
from support.plans import questions

NESTED = questions()
LOSSY = questions(lossless=False)
CROSSING = questions(nested=False, lossless=False)
ANY = NESTED | LOSSY | CROSSING


def _bytes(plan: Plan) -> bytes:
    """Return all of a plan but the time it took."""
    return json.dumps([dict(plan.targets_w), plan.source, plan.objective, plan.note]).encode()


def _solved_tokens_per_s(request: PlanRequest) -> float:
    """Return what the solver's own optimum is worth, before any rounding of ours."""
    pool = Pool.of(request)
    return gained_tokens_per_s(request, pool.caps_w(pool.below(_ask(FlowSolver(lambda: 0.0), request))))


def _ask(solver: FlowSolver, request: PlanRequest) -> tuple[int, ...]:
    pool = Pool.of(request)
    fits = [not over for over in pool.tree.over(pool.minima_w[:, None])[:, 0]]
    answer = solver.solve(request, alike_groups(request), fits, 500.0)
    assert answer.proven
    assert answer.solved
    return answer.above_w


@given(NESTED)
def test_on_nested_limits_solver_and_waterfill_agree(request: PlanRequest) -> None:
    """Two ways to one optimum: each is the other's oracle."""
    filled = gained_tokens_per_s(request, waterfill(request))
    assert _solved_tokens_per_s(request) == pytest.approx(filled, rel=2e-6, abs=1e-9)


@given(ANY)
def test_a_plan_keeps_every_limit_and_is_no_worse_than_the_waterfill(request: PlanRequest) -> None:
    """Whatever crosses or is lost on the way."""
    plan = LpPlanner(clock=lambda: 0.0).plan(request, 500.0)
    caps_w = tuple(plan.targets_w.values())
    assert plan.source == "lp"
    assert violations(request, caps_w) == []
    filled = gained_tokens_per_s(request, waterfill(request))
    assert plan.objective >= filled * (1.0 - 1e-9)


@given(ANY)
def test_alike_gpus_stand_a_watt_apart_at_most(request: PlanRequest) -> None:
    """The solver sees a group as one, and what it leaves over is handed out evenly."""
    plan = LpPlanner(clock=lambda: 0.0).plan(request, 500.0)
    seen: dict[int, list[int]] = {}
    for one in request.gpus:
        seen.setdefault(one.alike, []).append(plan.targets_w[one.gpu])
    assert all(max(caps_w) - min(caps_w) <= 1 for caps_w in seen.values())


@st.composite
def histories(draw: st.DrawFn) -> list[PlanRequest]:
    """Draw requests of one structure with other limits, minima and slopes, so that a kept program stays warm."""
    first = draw(CROSSING)
    return [first, *(_other(draw, first) for _ in range(draw(st.integers(1, 6)))), first]


def _other(draw: st.DrawFn, first: PlanRequest) -> PlanRequest:
    scale, bend = draw(st.sampled_from([0.3, 0.8, 1.0, 1.3, 3.0])), draw(st.sampled_from([0.5, 1.0, 1.5]))
    ceilings_w = [int(one.ceiling_w * scale) + draw(st.integers(0, 40)) for one in first.domains]
    return replace(
        first,
        domains=tuple(
            replace(one, ceiling_w=ceiling_w) for one, ceiling_w in zip(first.domains, ceilings_w, strict=True)
        ),
        gpus=tuple(replace(one, segments=_bent(one.segments, bend)) for one in first.gpus),
    )


def _bent(chain: tuple[Segment, ...], bend: float) -> tuple[Segment, ...]:
    """Return segments of which the first is worth more than the others, which all change by one factor."""
    return tuple(
        replace(piece, slope=piece.slope * (bend + (1.0 if place == 0 else 0.0))) for place, piece in enumerate(chain)
    )


@given(histories())
def test_the_same_request_has_the_same_bytes_whatever_was_asked_before(asked: list[PlanRequest]) -> None:
    """A planner kept warm through other requests answers like one that was never asked anything."""
    warm = LpPlanner(clock=lambda: 0.0)
    for request in asked:
        cold = LpPlanner(clock=lambda: 0.0)
        assert _bytes(warm.plan(request, 500.0)) == _bytes(cold.plan(request, 500.0))


@given(histories())
def test_the_solver_alone_has_the_same_answer_whatever_was_asked_before(asked: list[PlanRequest]) -> None:
    """The same without the water-fill, which would hide a difference wherever it is as good."""
    warm = FlowSolver(lambda: 0.0)
    for request in asked:
        assert _ask(warm, request) == _ask(FlowSolver(lambda: 0.0), request)
    assert warm.warm_solves == len(asked) - 1
