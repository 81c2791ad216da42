"""The demo's rack: a policy that may be used at every size, hardware near it, and the best single cap."""

from __future__ import annotations

import pytest

from rackpower_common.policy import Severity, judge
from rackpower_ctl.demo.hardware import OFF_SHARE, scenario_of
from rackpower_ctl.demo.measuring import Window
from rackpower_ctl.demo.rack_policy import BUDGET_SHARE, loaded, policy_text
from rackpower_ctl.demo.uniform import best_uniform, fitting_caps_w, replay
from rackpower_ctl.errors import UsageError
from rackpower_sim.classes import CLASSES
from rackpower_sim.scenario import Scenario


def rack(nodes: int = 9, gpus: int = 8, seed: int = 1) -> Scenario:
    """Return the hardware of a demo."""
    return scenario_of(loaded("policy.yaml", policy_text(nodes, gpus).encode()).policy, seed)


def limits(scenario: Scenario) -> dict[str, int]:
    """Return a scenario's own limits."""
    return {domain.name: domain.limit_w for domain in scenario.domains}


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (2, 3), (9, 8), (64, 64)])
def test_the_policy_may_be_used_at_every_size(nodes: int, gpus: int) -> None:
    """Its wishes fit its limits, so that the controller takes it."""
    policy = loaded("policy.yaml", policy_text(nodes, gpus).encode())
    assert [problem for problem in judge(policy, None) if problem.severity is Severity.ERROR] == []


def test_the_budget_is_about_seven_tenths_of_nameplate() -> None:
    """And a quarter less still lets every GPU run at its minimum."""
    text = policy_text(9, 8)
    policy = loaded("policy.yaml", text.encode())
    limit_w = policy.policy.domains[0].limit_w
    lower = loaded("policy.yaml", text.replace(f"limit: {limit_w} W", f"limit: {limit_w * 3 // 4} W").encode())
    assert 0.68 <= BUDGET_SHARE <= 0.75
    assert judge(lower, None) == ()


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 8), (65, 8), (1, 0), (1, 65)])
def test_sizes_that_cannot_be_simulated_are_refused(nodes: int, gpus: int) -> None:
    """The sentence says what can."""
    with pytest.raises(UsageError, match="from 1 to 64"):
        policy_text(nodes, gpus)


def test_the_truth_is_near_what_the_controller_reads_and_not_the_same() -> None:
    """Curves differ by a few percent, the same for the same seed; bounds are the policy's."""
    truths = {truth.name: truth for truth in rack(seed=5).classes}
    assert set(truths) == set(CLASSES)
    for name, truth in truths.items():
        told = CLASSES[name]
        assert (truth.min_cap_w, truth.max_cap_w) == (told.min_cap_w, told.max_cap_w)
        for field, share in OFF_SHARE.items():
            off = getattr(truth, field) / getattr(told, field) - 1
            assert 0 < abs(off) <= 2 * share + 1e-9
    assert rack(seed=5).classes == rack(seed=5).classes != rack(seed=6).classes


def test_only_caps_that_fit_are_tried() -> None:
    """The highest one leaves less than one step of room under some ceiling."""
    scenario = rack()
    caps_w = fitting_caps_w(scenario, limits(scenario))
    assert all(cap_w % 10 == 0 for cap_w in caps_w)
    assert caps_w == list(range(caps_w[0], caps_w[-1] + 10, 10))
    assert 500 < caps_w[-1] < 800
    lower = fitting_caps_w(scenario, {name: limit_w * 9 // 10 for name, limit_w in limits(scenario).items()})
    assert lower[-1] < caps_w[-1]


def test_a_higher_single_cap_serves_more_under_load() -> None:
    """The load queues, so tokens follow the caps; the best one is the highest that fits."""
    scenario = rack(3, 2)
    caps_w = fitting_caps_w(scenario, limits(scenario))
    tokens = replay(scenario, None, [caps_w[0], caps_w[-1]], 5.0, 10.0)
    best = best_uniform(scenario, None, limits(scenario), Window(5.0, 10.0, 0.0, 0.0))
    assert 0 < tokens[0] < tokens[1]
    assert best is not None
    assert best.tokens_per_s == pytest.approx(tokens[1] / 5.0, rel=0.02)


def test_nothing_to_compare_with_is_none() -> None:
    """An empty window, or no cap that fits."""
    scenario = rack(1, 1)
    assert best_uniform(scenario, None, limits(scenario), Window(5.0, 5.0, 0.0, 0.0)) is None
    assert best_uniform(scenario, None, dict.fromkeys(limits(scenario), 1), Window(0.0, 5.0, 0.0, 0.0)) is None
