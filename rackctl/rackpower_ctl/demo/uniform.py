"""What the best single cap for all GPUs would have given: the same arrivals and seed, replayed in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rackpower_ctl.demo.measuring import Window, domain_loads_w
from rackpower_sim import evaluation
from rackpower_sim.scenario import NodeSpec, Scenario
from rackpower_sim.traces import Trace

CAP_STEP_W: Final = 10
MAX_REPLAY_S: Final = 600.0
"""Of a longer run only so much is replayed: rates under load no longer change."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """One cap for all, and the tokens per second that it gave."""

    cap_w: int
    tokens_per_s: float


def clamped_w(scenario: Scenario, node: NodeSpec, cap_w: int) -> list[int]:
    """Return the caps of a node's GPUs where all are asked for `cap_w`; each GPU keeps to its own bounds."""
    truths = [scenario.truth(name) for name in node.gpu_classes]
    return [min(max(cap_w, truth.min_cap_w), truth.max_cap_w) for truth in truths]


def fitting_caps_w(scenario: Scenario, limits_w: Mapping[str, int]) -> list[int]:
    """Return every whole-10 W cap that fits limit − headroom of every domain, and every node's limit."""
    truths = scenario.gpu_truths()
    lowest = min(truth.min_cap_w for truth in truths) // CAP_STEP_W * CAP_STEP_W
    highest = max(truth.max_cap_w for truth in truths)
    caps_w = range(max(lowest, CAP_STEP_W), highest + CAP_STEP_W, CAP_STEP_W)
    return [cap_w for cap_w in caps_w if _fits(scenario, limits_w, cap_w)]


def best_uniform(
    scenario: Scenario, trace: Trace | None, limits_w: Mapping[str, int], window: Window
) -> Uniform | None:
    """Return the best single cap over a window; None when none fits or the window is empty.

    Args:
        scenario: The hardware, with its load and seed.
        trace: The load's trace, already read.
        limits_w: What must hold, watts by domain.
        window: When the demo was measured, in seconds from the hardware's start.
    """
    caps_w = fitting_caps_w(scenario, limits_w)
    end_s = min(window.end_s, window.begin_s + MAX_REPLAY_S)
    if not caps_w or end_s <= window.begin_s:
        return None
    tokens = replay(scenario, trace, caps_w, window.begin_s, end_s)
    rates = [one / (end_s - window.begin_s) for one in tokens]
    best = int(np.argmax(rates))
    return Uniform(caps_w[best], rates[best])


def replay(scenario: Scenario, trace: Trace | None, caps_w: list[int], begin_s: float, end_s: float) -> list[float]:
    """Return the tokens that the rack generates between two moments at each cap, all caps side by side."""
    return list(evaluation.replay(scenario, trace, evaluation.uniform_caps_w(scenario, caps_w), begin_s, end_s))


def _fits(scenario: Scenario, limits_w: Mapping[str, int], cap_w: int) -> bool:
    powers_w = {
        node.name: node.loss * (node.overhead_w + sum(clamped_w(scenario, node, cap_w))) for node in scenario.nodes
    }
    loads_w = domain_loads_w(scenario, powers_w)
    domains = all(loads_w[d.name] <= limits_w.get(d.name, d.limit_w) - d.headroom_w for d in scenario.domains)
    nodes = all(node.limit_w is None or powers_w[node.name] <= node.limit_w for node in scenario.nodes)
    return domains and nodes
