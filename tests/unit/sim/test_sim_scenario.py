"""Simulated racks as text: the same value comes back, and what cannot be is refused in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackpower_sim.rack import static_nodes
from rackpower_sim.scenario import MAX_GPUS, LoadSpec, Scenario, ScenarioError, load_scenario
from support.sim_racks import small_rack

Content = dict[str, Any]


def test_a_scenario_travels_as_json(tmp_path: Path) -> None:
    """Nothing is lost on the way, assumptions included."""
    scenario = replace(small_rack(4, 2), load=LoadSpec(1.1, 2.0, "trace.csv", wait_for_boot_cap=True))
    path = tmp_path / "scenario.json"
    path.write_text(scenario.to_json(), encoding="utf-8")
    assert load_scenario(path) == scenario


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda content: content.pop("nodes"), "not a simulated rack: 'nodes'"),
        (lambda content: content.update(nodes=[]), "names of their own"),
        (lambda content: content.update(nodes=["node-1"]), "not a simulated rack"),
        (lambda content: content["nodes"].append(content["nodes"][0]), "names of their own"),
        (lambda content: content["nodes"][0].update(colour="red"), "not a simulated rack"),
        (lambda content: content["nodes"][0].update(overhead_w="much"), "not a simulated rack"),
        (lambda content: content["nodes"][0].update(overhead_w=-1), "node-1 has a count, loss or overhead"),
        (lambda content: content["nodes"][0].update(loss=0.9), "node-1 has a count, loss or overhead"),
        (lambda content: content["nodes"][0].update(gpus_per_replica=0), "node-1 has a count, loss or overhead"),
        (lambda content: content["nodes"][0]["gpus"][0].update(gpu_class="z1"), "`z1` is not in the scenario"),
        (lambda content: content["nodes"][0]["gpus"][0].update(count=MAX_GPUS), "can be simulated"),
        (lambda content: content["nodes"][0]["feeds"][0].update(domain="moon"), "hangs on `moon`"),
        (lambda content: content["domains"][0].update(parent="rack-1"), "stands before its parent"),
        (lambda content: content.update(seed="one"), "not a simulated rack"),
        (lambda content: content["load"].update(offered=[]), "not a simulated rack"),
        (lambda content: content["load"].update(offered=0), "offered"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: Callable[[Content], object], what: str) -> None:
    """One sentence that names the file and what is wrong."""
    content: Content = json.loads(small_rack().to_json())
    change(content)
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert caught.value.message.startswith(f"{path}: ") or "is not in the scenario" in caught.value.message
    assert what in caught.value.message


@pytest.mark.parametrize("content", [b"", b"[]", b"nodes: 1", b"\xff", b"null"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    """Not JSON, not an object, not text."""
    path = tmp_path / "scenario.json"
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match=str(path)):
        load_scenario(path)
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "none.json")


def test_gpus_keep_their_names_over_restarts() -> None:
    """The same scenario gives the same UUIDs, another seed others; no two are the same."""
    names = [gpu.uuid for node in static_nodes(small_rack(4, 8)) for gpu in node.gpus]
    assert names == [gpu.uuid for node in static_nodes(small_rack(4, 8)) for gpu in node.gpus]
    assert len(set(names)) == 32
    assert not set(names) & {gpu.uuid for node in static_nodes(small_rack(4, 8, seed=2)) for gpu in node.gpus}


def test_replicas_stay_within_their_node() -> None:
    """Three GPUs in replicas of two: two and one; indices run over the rack there, over the node in its file."""
    scenario: Scenario = small_rack(2, 3, gpus_per_replica=2)
    assert [gpus for _, gpus in scenario.replicas()] == [(0, 1), (2,), (3, 4), (5,)]
    assert [replica.gpus for node in static_nodes(scenario) for replica in node.replicas] == [(0, 1), (2,)] * 2
