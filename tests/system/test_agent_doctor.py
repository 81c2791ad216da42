"""`rackpower-agent doctor` as a process: on simulated GPUs, on none, on one that hangs, beside a running agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rackpower_common.roles import Role
from rackpower_sim.node_layout import SampleMode, WriteMode
from support.agent_process import GPUS, Controller, Hardware, agent, hardware, run_agent
from support.edge import edge
from support.pki import authority

pytestmark = pytest.mark.anyio


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Hardware]:
    """A simulated node."""
    with hardware(tmp_path) as one:
        yield one


def doctor(settings: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and JSON."""
    run = run_agent(settings, "doctor", "--json", *flags)
    assert "Traceback" not in run.stderr
    return run.returncode, json.loads(run.stdout)


def codes(answer: dict[str, Any], level: str, *areas: str) -> list[str]:
    """Return the codes of the findings of a level in some areas; units and clock are this machine's, not the node's."""
    return [one["code"] for one in answer["findings"] if one["level"] == level and one["area"] in areas]


OURS = ("devices", "gpu", "settings", "controller")


async def test_a_node_whose_controller_answers_has_no_trouble_of_its_own(node: Hardware) -> None:
    """GPU by GPU with range and cap in force; the controller is asked and not told that we are there."""
    async with edge() as edges:
        code, answer = await asyncio.to_thread(doctor, node.settings(controllers=[edges.agents]))
        assert edges.inbox.drain() == []
    assert codes(answer, "problem", *OURS) == []
    assert codes(answer, "fine", *OURS) == ["fine"] * GPUS + ["reachable"]
    assert [gpu["enforced_cap_watts"] for gpu in answer["gpus"]] == [node.default_w] * GPUS
    assert answer["manageable"] is (code == 0)


def test_a_controller_that_does_not_answer_is_a_problem(node: Hardware) -> None:
    """Exit code 1, with the address."""
    code, answer = doctor(node.settings())
    assert (code, answer["manageable"]) == (1, False)
    assert codes(answer, "problem", *OURS) == ["unreachable"]


def test_no_gpu_at_all_is_a_problem_in_words(node: Hardware) -> None:
    """On a machine without GPUs or drivers it says so and what to do."""
    missing = str(node.folder / "rack" / "gpu-99.node")
    run = run_agent(node.settings(devices={"sim": {"path": missing}}), "doctor")
    assert run.returncode == 1
    assert "no GPU can be seen" in run.stdout
    assert "→ install the vendor's driver" in run.stdout
    assert "Traceback" not in run.stdout + run.stderr


def test_a_gpu_that_hangs_is_named_and_the_others_are_examined(node: Hardware) -> None:
    """The doctor ends by itself; a GPU that does not answer gets no write either."""
    node.node.fail_samples(0, SampleMode.HANG)
    _, answer = doctor(node.settings(), "--write-test")
    assert [gpu["hung"] for gpu in answer["gpus"]] == [True] + [False] * (GPUS - 1)
    assert codes(answer, "problem", "gpu") == ["hung"]
    assert codes(answer, "fine", "gpu") == ["fine"] * (GPUS - 1) + ["write_works"] * (GPUS - 1)


def test_the_write_test_puts_every_cap_back(node: Hardware) -> None:
    """And says that writes work."""
    _, answer = doctor(node.settings(), "--write-test")
    assert codes(answer, "fine", "gpu") == ["fine"] * GPUS + ["write_works"] * GPUS
    assert node.caps_w == [node.default_w] * GPUS


def test_a_write_without_permission_is_a_problem(node: Hardware) -> None:
    """Seen by the write test only; the cap is as it was."""
    node.node.fail_writes(0, WriteMode.NO_PERMISSION)
    _, answer = doctor(node.settings(), "--write-test")
    assert codes(answer, "problem", "gpu") == ["write_failed"]
    assert node.caps_w == [node.default_w] * GPUS


async def test_beside_a_running_agent_it_looks_and_writes_nothing(node: Hardware) -> None:
    """Two hands on one cap would prove nothing: the write test is refused, naming the agent's process."""
    async with edge() as edges:
        controller = Controller(edges)
        settings = node.settings(controllers=[edges.agents])
        with agent(settings) as running:
            await controller.grant(await controller.welcome(), 500, 1)
            _, answer = await asyncio.to_thread(doctor, settings, "--write-test")
            (refused,) = (one for one in answer["findings"] if one["code"] == "agent_runs")
            assert f"process {running.process.pid}" in refused["words"]
            assert node.caps_w == [500] * GPUS
            assert running.process.poll() is None


async def test_a_controller_of_another_authority_is_told_from_one_that_is_away(node: Hardware, tmp_path: Path) -> None:
    """What helps is another thing: certificates on both sides, not the firewall."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    server = authority(tmp_path / "theirs").issue("controller", "127.0.0.1", role=Role.SERVER)
    mine = authority(tmp_path / "ours").issue("gpu-01", role=Role.AGENT)
    tls = {"ca": str(mine.ca), "cert": str(mine.cert), "key": str(mine.key)}
    async with edge(tls=server) as edges:
        _, answer = await asyncio.to_thread(doctor, node.settings(controllers=[edges.agents], tls=tls))
    assert codes(answer, "problem", *OURS) == ["tls_refused"]


def test_certificates_that_cannot_be_used_are_a_problem(node: Hardware, tmp_path: Path) -> None:
    """With the file and the reason."""
    pki = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    _, answer = doctor(node.settings(tls=pki))
    (problem,) = (one for one in answer["findings"] if one["code"] == "tls")
    assert "cannot read" in problem["words"]


def test_settings_without_controllers_can_be_examined(node: Hardware) -> None:
    """The node is looked at before anything is set up; what is missing is a finding, not a refusal."""
    code, answer = doctor(node.settings(controllers=None))
    assert code == 1
    assert codes(answer, "problem", *OURS) == ["no_controllers"]
