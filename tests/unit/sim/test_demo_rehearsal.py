"""The demo's claim without its processes: the plan for curves that are off still beats the best single cap.

The plan is made from what the policy tells, the tokens come from hardware whose curves differ, over several seeds.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from rackpower_common.model.identity import DomainName, GpuId, NodeName, Revision
from rackpower_common.model.policy import Objective, Policy
from rackpower_common.policy.curves import CurveShape, shapes_for, with_curves
from rackpower_controller.core.curves import segments
from rackpower_controller.core.planning import PlanDomain, PlanGpu, PlanNode, PlanRequest
from rackpower_controller.core.waterfill import waterfill
from rackpower_ctl.demo.hardware import scenario_of
from rackpower_ctl.demo.measuring import domain_loads_w
from rackpower_ctl.demo.rack_policy import loaded, policy_text
from rackpower_ctl.demo.uniform import fitting_caps_w
from rackpower_sim.evaluation import replay, uniform_caps_w
from rackpower_sim.machine import Machine
from rackpower_sim.physics import Ints
from rackpower_sim.scenario import Scenario
from rackpower_sim.traces import load_trace
from support.sim_racks import write_trace

SEEDS = range(1, 9)
BEGIN_S, END_S = 6.0, 10.0
MARGIN = 1.03
"""Of the best single cap's tokens; 1.05 was the least of 30 seeds with the classes' own curves, 1.09 with measured."""

# Shapes of published power-cap sweeps of other boards, two of them vLLM on a 600 W board at 32 requests in flight.
SHAPES = (
    CurveShape("sweep", "dense27b-32", 7, 452.5, 1.216, 1.445, 0.0202, 0.0405),
    CurveShape("sweep", "dense27b-1", 7, 493.8, 2.603, 3.21, 0.0001, 0.0003),
    CurveShape("sweep", "moe80b-32", 7, 619.0, 2.531, 3.993, 0.0034, 0.0073),
    CurveShape("sweep", "moe80b-1", 7, 546.8, 5.822, 5.225, 0.0021, 0.0037),
)


def planned_w(policy: Policy, scenario: Scenario) -> Ints:
    """Return the water-fill's caps for the curves that the policy tells."""
    place = {domain.name: number for number, domain in enumerate(scenario.domains)}
    domains = [
        PlanDomain(
            DomainName(domain.name),
            -1 if domain.parent is None else place[domain.parent],
            domain.ceiling_w,
            domain.overhead_w,
            domain.loss,
        )
        for domain in scenario.domains
    ]
    nodes = [
        PlanNode(
            NodeName(node.name),
            tuple((place[feed.domain], feed.share) for feed in node.feeds),
            node.overhead_w,
            node.loss,
            node.limit_w,
        )
        for node in scenario.nodes
    ]
    told = {str(known.name): known for known in policy.classes}
    gpus: list[PlanGpu] = []
    for number, node in enumerate(scenario.nodes):
        for name in node.gpu_classes:
            lo_w, hi_w = told[name].min_cap_w, told[name].max_cap_w
            pieces = segments(told[name].curve, lo_w, hi_w, 1.0)
            gpus.append(PlanGpu(GpuId(f"GPU-{len(gpus):05}"), number, lo_w, hi_w, pieces, number))
    request = PlanRequest(Revision("r1"), Objective.TOKENS, tuple(domains), tuple(nodes), tuple(gpus))
    return np.array(waterfill(request), dtype=np.int64)


@pytest.mark.parametrize("measured", [False, True], ids=["generator", "trace and measured curves"])
def test_the_plan_beats_the_best_single_cap(tmp_path: Path, *, measured: bool) -> None:
    """At every seed by the margin, though each class's curve is off by some percent."""
    trace = load_trace(write_trace(tmp_path / "trace.csv")) if measured else None
    policy = loaded("policy.yaml", policy_text(9, 8).encode()).policy
    shapes = SHAPES if measured else ()
    told = with_curves(policy, shapes_for(policy.classes, shapes))
    for seed in SEEDS:
        scenario = scenario_of(policy, seed, shapes)
        limits_w = {domain.name: domain.limit_w for domain in scenario.domains}
        uniform_w = uniform_caps_w(scenario, fitting_caps_w(scenario, limits_w))
        lanes_w = np.vstack([uniform_w, planned_w(told, scenario)])
        *uniform, plan = replay(scenario, trace, lanes_w, BEGIN_S, END_S)
        assert plan > MARGIN * max(uniform), f"seed {seed}"


def test_the_planned_caps_hold_every_limit_on_the_hardware() -> None:
    """True draws with tracking errors, overheads and losses stay below every limit at every step under load."""
    policy = loaded("policy.yaml", policy_text(9, 8).encode()).policy
    scenario = scenario_of(policy, seed=3)
    machine = Machine(scenario)
    for gpu, cap_w in enumerate(planned_w(policy, scenario).tolist()):
        machine.bank.request_cap(gpu, cap_w)
    for node in range(len(scenario.nodes)):
        machine.start_servers(node)
    names = [node.name for node in scenario.nodes]
    peaks_w = dict.fromkeys((domain.name for domain in scenario.domains), 0.0)
    for step in itertools.count():
        powers_w = {name: entry.power_w for name, entry in zip(names, machine.step(), strict=True)}
        if step < 100:
            continue  # 5 s: the caps come down from the defaults
        for name, load_w in domain_loads_w(scenario, powers_w).items():
            peaks_w[name] = max(peaks_w[name], load_w)
        if step == 600:
            break
    assert (machine._load > 0).all()
    for domain in scenario.domains:
        assert peaks_w[domain.name] <= domain.limit_w, domain.name
    assert peaks_w["rack-1"] > 0.9 * scenario.domains[0].limit_w
