"""What a rack would have served at caps that stay put: the same hardware, requests and seed, in virtual time.

Caps are tried side by side, one lane each, under the same physics and queues that the process steps in real time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rackpower_sim.machine import arrivals
from rackpower_sim.physics import GpuBank, Ints
from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.scenario import Scenario
from rackpower_sim.traces import Trace
from rackpower_sim.workloads import ReplicaBank


def uniform_caps_w(scenario: Scenario, caps_w: Sequence[int]) -> Ints:
    """Return the caps in force where all GPUs are asked for one cap: each keeps to its own bounds.

    Args:
        scenario: The rack.
        caps_w: Whole watts, one cap a lane.

    Returns:
        Whole watts, shape `(lanes, gpus)`.
    """
    truths = scenario.gpu_truths()
    least_w = np.array([truth.min_cap_w for truth in truths], dtype=np.int64)
    most_w = np.array([truth.max_cap_w for truth in truths], dtype=np.int64)
    return np.clip(np.array(caps_w, dtype=np.int64)[:, None], least_w, most_w)


def replay(scenario: Scenario, trace: Trace | None, caps_w: Ints, begin_s: float, end_s: float) -> tuple[float, ...]:
    """Return the tokens that the rack generates between two moments, in each lane.

    Args:
        scenario: The hardware, with its load and seed; every server runs from the start.
        trace: The load's trace, already read, if it has one.
        caps_w: Whole watts, shape `(lanes, gpus)`; written at the start, before the first step.
        begin_s: Where counting begins, in seconds from the start; the start-up lies before it.
        end_s: Where it ends.

    Raises:
        ValueError: The caps are not for this rack, or the end does not lie after the beginning.
    """
    truths = scenario.gpu_truths()
    if caps_w.ndim != 2 or caps_w.shape[1] != len(truths):
        raise ValueError(f"caps of shape {caps_w.shape} for {len(truths)} GPUs")
    first, last = round(begin_s / STEP_S), round(end_s / STEP_S)
    if not 0 <= first < last:
        raise ValueError(f"nothing lies between {begin_s:g} s and {end_s:g} s")
    lanes = caps_w.shape[0]
    bank = GpuBank(truths, scenario.seed, lanes, sensors=False)
    groups = [gpus for _, gpus in scenario.replicas()]
    servers = ReplicaBank(groups, bank.gpus, arrivals(scenario, trace), lanes, records=False)
    for gpu in range(bank.gpus):
        bank.request_cap(gpu, caps_w[:, gpu])
    before = np.zeros(lanes)
    for step in range(last):
        if step == first:
            before = servers.generated.sum(axis=1)
        servers.admit(bank.time_s + STEP_S)
        bank.end_step(servers.serve(bank.begin_step(), STEP_S))
    return tuple((servers.generated.sum(axis=1) - before).tolist())
