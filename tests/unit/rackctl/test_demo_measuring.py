"""The demo's meter: sums up the power tree, step by step, from the hardware's own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rackpower_ctl.demo.hardware import scenario_of
from rackpower_ctl.demo.limits import Limits
from rackpower_ctl.demo.measuring import Meter, domain_loads_w
from rackpower_ctl.demo.rack_policy import loaded, policy_text
from rackpower_sim.node_layout import HistoryEntry, NodeState
from rackpower_sim.rack import static_nodes
from rackpower_sim.scenario import DomainSpec, FeedSpec, Scenario
from rackpower_sim.shared_state import NodeWriter, node_path

LIMIT_W = 5000


@pytest.fixture
def scenario() -> Scenario:
    """Return a rack of two nodes with one GPU each under one limit, without overhead or loss of its own."""
    made = scenario_of(loaded("policy.yaml", policy_text(2, 1).encode()).policy, seed=1)
    rack = DomainSpec("rack-1", None, "rack", LIMIT_W, 100)
    return replace(
        made, domains=(rack,), nodes=tuple(replace(node, feeds=(FeedSpec("rack-1"),)) for node in made.nodes)
    )


class Hardware:
    """Writes the nodes' files as the simulator does."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._writers = [NodeWriter.create(node_path(folder, node.name), node) for node in static_nodes(scenario)]
        self.step = 0

    def advance(self, node: int, powers_w: list[float], first: int) -> None:
        """Let one node make steps with these draws, 100 tokens a step."""
        last = first + len(powers_w) - 1
        history = [
            HistoryEntry(step, 1000.0 + step * 0.05, power_w, power_w, 500, step * 100.0)
            for step, power_w in enumerate(powers_w, start=first)
        ]
        self._writers[node].publish(NodeState(last, 1000.0 + last * 0.05, 1, 1, 0.0, 0.0, 0.0), (), (), history)


def test_peaks_and_time_over_budget_are_counted_step_by_step(scenario: Scenario, tmp_path: Path) -> None:
    """A single step of 50 ms over the limit is seen, in whichever read it comes."""
    hardware = Hardware(scenario, tmp_path)
    with Meter(scenario, tmp_path, Limits({"rack-1": LIMIT_W})) as meter:
        account = meter.read()
        for first, powers_w in ((1, [2000.0, 2400.0]), (3, [2600.0, 2000.0])):
            for node in (0, 1):
                hardware.advance(node, powers_w, first)
            account = meter.read()
    assert (account.steps, account.missed_steps) == (4, 0)
    assert account.peak_w == 5200.0
    assert account.over_budget_s == pytest.approx(0.05)
    assert (account.worst_domain, account.worst_over_w) == ("rack-1", 200.0)
    assert account.energy_j == pytest.approx(2 * (2000 + 2400 + 2600 + 2000) * 0.05)


def test_nodes_are_summed_at_the_same_step(scenario: Scenario, tmp_path: Path) -> None:
    """A node that was read a step earlier waits for the others: peaks of different moments are never added."""
    hardware = Hardware(scenario, tmp_path)
    with Meter(scenario, tmp_path, Limits({"rack-1": LIMIT_W})) as meter:
        hardware.advance(0, [4000.0, 100.0], 1)
        hardware.advance(1, [100.0], 1)
        assert meter.read().steps == 1
        hardware.advance(1, [4000.0], 2)
        account = meter.read()
    assert (account.steps, account.peak_w, account.over_budget_s) == (2, 4100.0, 0.0)


def test_steps_that_were_not_seen_are_told(scenario: Scenario, tmp_path: Path) -> None:
    """A gap is no proof of anything, so it is counted."""
    hardware = Hardware(scenario, tmp_path)
    with Meter(scenario, tmp_path, Limits({"rack-1": LIMIT_W})) as meter:
        for node in (0, 1):
            hardware.advance(node, [1.0] * 600, 1)
        account = meter.read()
    assert (account.steps, account.missed_steps) == (600, 600 - 512)


def test_the_window_leaves_the_start_out(scenario: Scenario, tmp_path: Path) -> None:
    """Tokens and joules count from `begin` on."""
    hardware = Hardware(scenario, tmp_path)
    with Meter(scenario, tmp_path, Limits({"rack-1": LIMIT_W})) as meter:
        window = meter.window()
        assert window is None
        for first in (1, 21):
            for node in (0, 1):
                hardware.advance(node, [1000.0] * 20, first)
            meter.read()
            window = meter.window()
            meter.begin()
    assert window is not None
    assert window.length_s == pytest.approx(1.0)
    assert window.tokens_per_s == pytest.approx(2 * 2000.0)
    assert window.tokens_per_j == pytest.approx(4000 / 2000)


def test_loads_climb_the_tree_with_losses_shares_and_overheads(scenario: Scenario) -> None:
    """Load = loss × (Σ children × share + overhead), by hand."""
    tree = replace(
        scenario,
        domains=(
            DomainSpec("row", None, "row", 9000, 0, overhead_w=100, loss=1.1),
            DomainSpec("a", "row", "rack", 9000, 0, overhead_w=50),
            DomainSpec("b", None, "feed", 9000, 0, loss=2.0),
        ),
        nodes=(
            replace(scenario.nodes[0], feeds=(FeedSpec("a", 0.5), FeedSpec("b", 0.5))),
            replace(scenario.nodes[1], feeds=(FeedSpec("a"),)),
        ),
    )
    loads_w = domain_loads_w(tree, {"gpu-01": 1000.0, "gpu-02": 600.0})
    assert loads_w == pytest.approx({"a": 1150.0, "row": 1.1 * 1250.0, "b": 1000.0})
