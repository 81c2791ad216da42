"""The demo as a user runs it: what it reports, and that nothing is left however it ends."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.demo_process import END_S, GPUS, NODES, demo, processes_of
from support.waiting import wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a new folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="rp-") as name:
        yield Path(name) / "demo"


def test_a_demo_holds_its_budget_runs_every_gpu_and_leaves_no_process(folder: Path) -> None:
    """One JSON object last: nothing over budget, all GPUs at work where nameplate allows fewer, a better rate."""
    with demo(folder, "--seconds", "6") as running:
        report = json.loads(running.finished())
        assert running.process.returncode == 0, "".join(running.said)
    assert report["over_budget_seconds"] == 0
    assert report["gpus_running"] == NODES * GPUS > report["gpus_at_nameplate"]
    assert 0 < report["peak_power_watts"] <= report["budget_watts"]
    assert report["tokens_per_second"] >= report["best_uniform_cap_tokens_per_second"] > 0
    assert report["ticks"] >= 6
    assert report["decide_ms_p99"] > 0
    assert report["plan_ms_p99"] > 0
    assert processes_of(folder) == {}


def test_ctrl_c_ends_everything_and_still_reports(folder: Path) -> None:
    """SIGINT is an orderly end: what was measured so far is told, and no process stays."""
    with demo(folder) as running:
        running.started()
        assert json.loads(running.end(signal.SIGINT))["over_budget_seconds"] == 0
        assert running.process.returncode == 0
    assert processes_of(folder) == {}


def test_an_end_before_the_start_is_told(folder: Path) -> None:
    """SIGTERM while things come up: one sentence, exit code 1, no process stays."""
    with demo(folder) as running:
        running.wait_said("the hardware runs")
        assert running.end(signal.SIGTERM) == ""
        assert running.process.returncode == 1
    assert running.said[-1] == "rackctl: the demo was ended before it had measured anything\n"
    assert processes_of(folder) == {}


def test_a_killed_demo_takes_everything_with_it(folder: Path) -> None:
    """A kill -9 of the demo: hardware, controller, store and agents end within seconds."""
    with demo(folder) as running:
        running.started()
        assert len(processes_of(folder)) >= NODES + 3  # hardware, controller, store
        running.process.kill()
        running.process.wait(END_S)
    wait_until(lambda: not processes_of(folder), within_s=END_S, what="the end of everything")


def test_an_agent_that_dies_ends_the_demo_with_its_last_words(folder: Path) -> None:
    """The demo does not go on with a part of the rack, and says which one is gone."""
    with demo(folder) as running:
        running.started()
        (pid,) = (pid for pid, words in processes_of(folder).items() if "agents/gpu-02.yaml" in words)
        os.kill(pid, signal.SIGKILL)
        assert running.finished() == ""
        assert running.process.returncode == 1
    assert "rackctl: agent-gpu-02 has ended with exit code -9; its log ends:\n" in running.said
    assert processes_of(folder) == {}
