"""The demo's stricter judge: the caps that the hardware enforces, summed up the tree, whatever is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rackpower_ctl.demo.limits import Limits
from rackpower_ctl.demo.measuring import Meter
from rackpower_sim.machine import Machine
from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.rack import Rack
from rackpower_sim.scenario import DomainSpec, Scenario
from support.sim_racks import small_rack

FITS_W = 1.1 * (500 + 2 * (1000 + 2 * 300) / 0.94)
"""Both nodes with both GPUs at 300 W, by hand."""


@pytest.fixture
def scenario() -> Scenario:
    """Return two nodes of two GPUs that fit their rack's limit less headroom at 300 W, by less than one watt."""
    rack = DomainSpec("rack-1", None, "rack", int(FITS_W) + 101, 100, overhead_w=500, loss=1.1)
    return replace(small_rack(2, 2), domains=(rack,))


@pytest.fixture
def rack(scenario: Scenario, tmp_path: Path) -> Iterator[Rack]:
    """Return the hardware, not yet stepped."""
    rack = Rack(Machine(scenario), tmp_path, 1000.0)
    yield rack
    rack.close()


def test_caps_are_held_against_limit_less_headroom(scenario: Scenario, rack: Rack, tmp_path: Path) -> None:
    """At 300 W each all is well; one watt more on one GPU for one step is counted, though no draw shows it."""
    limits = Limits({"rack-1": scenario.domains[0].limit_w})
    with Meter(scenario, tmp_path, limits) as meter:
        rack.advance(3)
        meter.read()
        assert (meter.account.peak_caps_w, meter.account.over_caps_s) == (0.0, 0.0)  # default caps, before the window
        for file in meter._files:
            for gpu in (0, 1):
                file.request_cap(gpu, 300)
        rack.advance(1)
        meter.read()
        meter.begin()
        rack.advance(10)
        meter.read()
        assert meter.account.over_caps_s == 0.0
        assert meter.account.peak_caps_w == pytest.approx(FITS_W)
        meter._files[1].request_cap(1, 301)
        rack.advance(1)
        meter._files[1].request_cap(1, 300)
        rack.advance(10)
        account = meter.read()
    assert account.over_caps_s == pytest.approx(STEP_S)
    assert account.peak_caps_w == pytest.approx(FITS_W + 1.1 / 0.94)


def test_a_nodes_own_limit_counts(scenario: Scenario, tmp_path: Path) -> None:
    """A node with its caps above its limit is over, however empty the rack is."""
    nodes = (scenario.nodes[0], replace(scenario.nodes[1], limit_w=2000))
    limited = replace(small_rack(2, 2), nodes=nodes)
    rack = Rack(Machine(limited), tmp_path, 1000.0)
    with Meter(limited, tmp_path, Limits({"rack-1": 100_000})) as meter:
        meter.begin()
        rack.advance(4)
        assert meter.read().over_caps_s == pytest.approx(4 * STEP_S)
    rack.close()
