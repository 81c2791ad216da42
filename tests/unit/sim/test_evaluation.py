"""The replay in virtual time is the machine: same physics, same queues, same tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackpower_sim.evaluation import replay, uniform_caps_w
from rackpower_sim.machine import Machine
from rackpower_sim.physics import Ints
from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.scenario import Scenario
from rackpower_sim.traces import Trace, load_trace
from support.sim_racks import saturated, small_rack, write_trace


def stepped(
    scenario: Scenario, trace: Trace | None, caps_w: Ints, begin_s: float, end_s: float, serve_s: float = 0.0
) -> float:
    """Return the tokens of a machine, stepped as the process steps it; its servers start at `serve_s`."""
    machine = Machine(scenario, trace)
    for gpu, cap_w in enumerate(caps_w.tolist()):
        machine.bank.request_cap(gpu, cap_w)
    tokens = 0.0
    for step in range(round(end_s / STEP_S)):
        if step == round(serve_s / STEP_S):
            for node in range(len(scenario.nodes)):
                machine.start_servers(node)
        if step == round(begin_s / STEP_S):
            tokens = float(machine.replicas.generated.sum())
        machine.step()
    return float(machine.replicas.generated.sum()) - tokens


@pytest.mark.parametrize("gpus_per_replica", [1, 2])
@pytest.mark.parametrize("offered", [0.4, 1.25])
@pytest.mark.parametrize("with_trace", [False, True], ids=["generator", "trace"])
def test_a_replay_is_the_machine(tmp_path: Path, offered: float, gpus_per_replica: int, *, with_trace: bool) -> None:
    """Under load and below it, single GPUs and pairs: the same caps give the same tokens."""
    scenario = small_rack(4, 2, gpus_per_replica, offered)
    trace = load_trace(write_trace(tmp_path / "trace.csv")) if with_trace else None
    caps_w = uniform_caps_w(scenario, [300, 460, 700])
    tokens = replay(scenario, trace, caps_w, 6.0, 20.0)
    for lane in range(3):
        assert tokens[lane] == pytest.approx(stepped(scenario, trace, caps_w[lane], 6.0, 20.0), rel=1e-9)


def test_a_late_start_makes_no_difference_while_the_load_queues() -> None:
    """The demo's servers start seconds later than the replay's; after the start-up the rates are the same."""
    scenario = saturated(small_rack(4, 2))
    caps_w = uniform_caps_w(scenario, [460])
    waiting = replace(scenario, load=replace(scenario.load, wait_for_boot_cap=True))
    late = stepped(waiting, None, caps_w[0], 14.0, 30.0, serve_s=9.0)
    assert replay(scenario, None, caps_w, 14.0, 30.0)[0] == pytest.approx(late, rel=1e-3)


def test_lanes_do_not_know_of_each_other() -> None:
    """A cap gives the same alone and among others."""
    scenario = small_rack(3, 2)
    caps_w = uniform_caps_w(scenario, range(250, 700, 50))
    together = replay(scenario, None, caps_w, 5.0, 12.0)
    assert together[3] == replay(scenario, None, caps_w[3:4], 5.0, 12.0)[0]
    assert together == replay(scenario, None, caps_w, 5.0, 12.0)
    assert together != replay(replace(scenario, seed=2), None, caps_w, 5.0, 12.0)


def test_saturated_tokens_do_not_depend_on_the_requests(tmp_path: Path) -> None:
    """A busy replica serves at its curve's rate, whatever is asked: then caps alone decide, as the docs say."""
    scenario = saturated(small_rack(2, 2))
    trace = load_trace(write_trace(tmp_path / "trace.csv"))
    caps_w = uniform_caps_w(scenario, [460])
    made_up, traced = (replay(scenario, load, caps_w, 6.0, 12.0)[0] for load in (None, trace))
    assert made_up == pytest.approx(traced, rel=1e-9)


def test_every_gpu_keeps_to_its_bounds() -> None:
    """One cap for all is clamped by each class."""
    scenario = small_rack(4, 1)
    truths = scenario.gpu_truths()
    caps_w = uniform_caps_w(scenario, [10, 410, 5000])
    assert caps_w[0].tolist() == [truth.min_cap_w for truth in truths]
    assert caps_w[1].tolist() == [410, 410, 410, 410]
    assert caps_w[2].tolist() == [truth.max_cap_w for truth in truths]


@pytest.mark.parametrize(
    ("caps_w", "begin_s", "end_s", "what"),
    [
        (np.full((1, 3), 300), 0.0, 1.0, "for 4 GPUs"),
        (np.full(4, 300), 0.0, 1.0, "for 4 GPUs"),
        (np.full((1, 4), 300), 1.0, 1.0, "nothing lies between"),
        (np.full((1, 4), 300), -1.0, 1.0, "nothing lies between"),
    ],
)
def test_a_replay_of_nothing_is_refused(caps_w: Ints, begin_s: float, end_s: float, what: str) -> None:
    """Caps of another rack, or a window without time."""
    with pytest.raises(ValueError, match=what):
        replay(small_rack(2, 2), None, caps_w, begin_s, end_s)
