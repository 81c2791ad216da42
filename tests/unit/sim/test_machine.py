"""A whole simulated rack: its sums, its power cycles, its servers; the same seed twice is the same twice."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rackpower_sim.machine import Machine, arrival_speed, arrivals
from rackpower_sim.node_layout import HistoryEntry, LimitCode
from rackpower_sim.physics_facts import SETTLE_MAX_S, STEP_S, TRACKING_LIMIT
from rackpower_sim.scenario import Scenario
from rackpower_sim.traces import Trace, load_trace
from support.sim_racks import saturated, small_rack, write_trace


def run(machine: Machine, seconds: float) -> list[tuple[HistoryEntry, ...]]:
    """Make steps; return each one's entries."""
    return [machine.step() for _ in range(round(seconds / STEP_S))]


def test_the_same_scenario_runs_the_same() -> None:
    """Every watt and token; another seed does not."""
    first, again = (run(Machine(small_rack(3, 2)), 5) for _ in range(2))
    assert first == again
    assert first != run(Machine(small_rack(3, 2, seed=2)), 5)


def test_a_node_draws_its_gpus_and_overhead_through_its_supplies() -> None:
    """Power = loss × (Σ GPUs + overhead); the overhead is 95 to 99 % of the most, and moves."""
    scenario = small_rack(2, 3)
    machine = Machine(scenario)
    machine.extra_overhead_w[1] = 250
    overheads_w = []
    for _ in range(1200):
        entries = machine.step()
        states = machine.node_states(0.0)
        gpus = machine.gpu_states([0] * 6, [0] * 6)
        for index, (state, entry, spec) in enumerate(zip(states, entries, scenario.nodes, strict=True)):
            draw_w = sum(gpu.draw_w for gpu in gpus[3 * index : 3 * index + 3])
            assert state.gpu_draw_w == entry.gpu_draw_w == pytest.approx(draw_w)
            assert state.power_w == entry.power_w == pytest.approx(spec.loss * (draw_w + state.overhead_w))
            assert entry.caps_w == sum(gpu.enforced_w for gpu in gpus[3 * index : 3 * index + 3])
        overheads_w.append([state.overhead_w for state in states])
    first, second = zip(*overheads_w, strict=True)
    assert 950 <= min(first) < max(first) <= 990
    assert 1200 <= min(second) < max(second) <= 1240


def test_a_power_cycle_is_dark_then_at_default_caps() -> None:
    """No draw while it lasts, a new boot after it, and the default cap: the hazard that boot caps are for."""
    scenario = small_rack(2, 2)
    machine = Machine(scenario)
    for gpu in range(4):
        machine.bank.request_cap(gpu, 400)
    run(machine, 6)
    tokens = machine.replicas.generated[0].copy()
    machine.reboot(0, down_s=2.0)
    for entries in run(machine, 1.9):
        assert (entries[0].gpu_draw_w, entries[0].power_w) == (0.0, 0.0)
        assert entries[1].power_w > 0
    assert machine.is_dark(0)
    assert machine.replicas.generated[0, :2].tolist() == tokens[:2].tolist()
    assert machine.node_states(0.0)[0].powered == 0
    run(machine, 0.3)
    assert not machine.is_dark(0)
    assert machine.boots == [2, 1]
    default_w = scenario.truth(scenario.nodes[0].gpu_classes[0]).default_cap_w
    assert machine.bank.enforced_w[0].tolist() == [default_w, default_w, 400, 400]
    assert (machine.replicas.generated[0, :2] > tokens[:2]).all()


def test_servers_wait_for_their_boot_cap() -> None:
    """After the start and after each boot they idle until they are let; requests wait and none is lost."""
    machine = Machine(small_rack(2, 2, wait_for_boot_cap=True))
    assert run(machine, 2)[-1][0].generated_tokens == 0
    machine.start_servers(0)
    entries = run(machine, 2)[-1]
    assert entries[0].generated_tokens > 0
    assert entries[1].generated_tokens == 0
    machine.start_servers(1)
    machine.reboot(0, down_s=0.0)
    before = machine.replicas.generated[0].copy()
    run(machine, 2)
    after = machine.replicas.generated[0]
    assert (after[:2] == before[:2]).all()
    assert (after[2:] > before[2:]).all()
    machine.reboot(1, down_s=1.0)
    machine.start_servers(1)  # too early: it is dark
    at_reboot = machine.replicas.generated[0, 2:].copy()
    run(machine, 1.5)
    assert (machine.replicas.generated[0, 2:] == at_reboot).all()


@pytest.mark.parametrize(("wait_s", "above"), [(0.0, True), (0.5, True), (SETTLE_MAX_S + STEP_S, False)])
def test_work_that_starts_before_a_boot_cap_has_settled_draws_above_it(wait_s: float, *, above: bool) -> None:
    """A cap read back is not yet at work: who lets work start at once is above it for seconds, who waits never is."""
    machine = Machine(saturated(small_rack(1, 4, wait_for_boot_cap=True)))
    machine.reboot(0, down_s=1.0)
    run(machine, 2)
    for gpu in machine.gpus_of(0):
        machine.bank.request_cap(gpu, 200)
    run(machine, wait_s)
    machine.start_servers(0)
    reserve_w = 4 * 200 * (1 + TRACKING_LIMIT)
    draws_w = [entries[0].gpu_draw_w for entries in run(machine, 10)]
    assert (max(draws_w) > 1.5 * reserve_w) is above
    assert above or max(draws_w) <= reserve_w
    assert max(draws_w[-100:]) <= reserve_w


def test_what_limits_a_gpu_is_told() -> None:
    """Idle without work, power under a cap below its natural draw, nothing above it."""
    idle = Machine(small_rack(1, 1, wait_for_boot_cap=True))
    run(idle, 1)
    assert idle.gpu_states([0], [0])[0].limit == LimitCode.IDLE
    busy = Machine(small_rack(1, 2))
    busy.bank.request_cap(0, 300)
    run(busy, 6)
    states = busy.gpu_states([0, 0], [0, 0])
    assert [state.limit for state in states] == [LimitCode.POWER, LimitCode.NONE]
    assert states[0].natural_w > states[0].draw_w


@pytest.mark.parametrize("with_trace", [False, True], ids=["generator", "trace"])
def test_the_offered_load_is_what_the_scenario_says(tmp_path: Path, *, with_trace: bool) -> None:
    """1.25 times what the rack serves uncapped, after a burst of three seconds' worth."""
    scenario: Scenario = small_rack(3, 2)
    trace: Trace | None = load_trace(write_trace(tmp_path / "trace.csv")) if with_trace else None
    wanted = scenario.load.offered * scenario.uncapped_tokens_per_s()
    if trace is not None:
        assert arrival_speed(scenario, trace) * trace.output_tokens_per_s == pytest.approx(wanted)
    taken = list(itertools.islice(arrivals(scenario, trace), 20_000))
    burst = sum(request.output_tokens for request in taken if request.arrival_s <= 0)
    assert burst == pytest.approx(3.0 * scenario.uncapped_tokens_per_s(), rel=0.2)
    later = sum(request.output_tokens for request in taken) - burst
    assert later / taken[-1].arrival_s == pytest.approx(wanted, rel=0.05)
