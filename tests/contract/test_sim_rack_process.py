"""The simulated hardware as a process: it keeps time, ends as it should, and refuses in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rackpower_sim.physics_facts import STEP_S
from rackpower_sim.scenario import Scenario
from rackpower_sim.shared_state import NodeFile, boot_clock_s, node_path
from support.sim_racks import small_rack
from support.waiting import wait_until

WITHIN_S = 20.0


def command(folder: Path, *more: str) -> list[str]:
    """Return the command line for the scenario in a folder."""
    scenario = str(folder / "scenario.json")
    return [sys.executable, "-m", "rackpower_sim.rack", "--scenario", scenario, "--folder", str(folder / "rack"), *more]


def written(folder: Path, scenario: Scenario) -> None:
    """Write a scenario."""
    (folder / "scenario.json").write_text(scenario.to_json(), encoding="utf-8")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a process that simulates nine nodes of eight GPUs."""
    written(tmp_path, small_rack(9, 8))
    process = subprocess.Popen(command(tmp_path), stderr=subprocess.PIPE, text=True)
    try:
        wait_until((tmp_path / "rack" / "node-9.node").exists, within_s=WITHIN_S, what="the nodes' files")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_keeps_time_and_costs_little(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    """20 steps a second for 72 GPUs in at most 15 % of a core; files go on while nobody looks."""
    file = NodeFile.open(node_path(tmp_path / "rack", "node-1"))
    watched = psutil.Process(process.pid)
    wait_until(lambda: file.node().step > 5, within_s=WITHIN_S, what="the first steps")
    first, begin_s = file.node(), sum(watched.cpu_times()[:2])
    wait_until(lambda: file.node().step >= first.step + 80, within_s=WITHIN_S, what="four seconds")
    last, end_s = file.node(), sum(watched.cpu_times()[:2])
    assert last.time_s - first.time_s == pytest.approx((last.step - first.step) * STEP_S)
    assert abs(boot_clock_s() - last.time_s) < 3.0
    assert (end_s - begin_s) / (last.time_s - first.time_s) < 0.15
    file.close()


def test_it_ends_at_sigterm_and_leaves_its_files(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    """Exit code 0; what was in force stays readable."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=WITHIN_S) == 0
    file = NodeFile.open(node_path(tmp_path / "rack", "node-1"))
    assert file.gpu(0).enforced_w == file.static.gpus[0].default_cap_w
    file.close()


def test_a_second_one_in_the_same_folder_is_refused(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    """Two would be two truths; the first goes on."""
    second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert second.returncode == 2
    assert "another simulated rack runs here" in second.stderr
    assert process.poll() is None


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """A kill -9 of who started it leaves no hardware behind."""
    written(tmp_path, small_rack())
    child = command(tmp_path, "--follow-parent")
    script = f"import subprocess, time\nprint(subprocess.Popen({child!r}).pid, flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until((tmp_path / "rack" / "node-2.node").exists, within_s=WITHIN_S, what="the nodes' files")
        hardware = psutil.Process(pid)
        parent.kill()
    try:
        hardware.wait(timeout=WITHIN_S)
    except psutil.TimeoutExpired:
        os.kill(pid, signal.SIGKILL)
        raise


@pytest.mark.parametrize(
    ("scenario", "trace", "what"),
    [
        (None, None, "cannot be read"),
        ("{}", None, "not a simulated rack"),
        ("good", "TIMESTAMP,ContextTokens\n", "GeneratedTokens is missing"),
        ("folder", None, "rack"),
    ],
)
def test_what_cannot_run_is_told_without_a_traceback(
    tmp_path: Path, scenario: str | None, trace: str | None, what: str
) -> None:
    """Exit code 2 and one sentence: no scenario, a broken one, a broken trace, a file where the folder should be."""
    made = small_rack()
    if scenario == "{}":
        (tmp_path / "scenario.json").write_text("{}", encoding="ascii")
    elif scenario is not None:
        path = tmp_path / "trace.csv"
        path.write_text(trace or "", encoding="ascii")
        text = made.to_json().replace('"trace": null', f'"trace": "{path}"') if trace else made.to_json()
        (tmp_path / "scenario.json").write_text(text, encoding="utf-8")
    if scenario == "folder":
        (tmp_path / "rack").write_text("", encoding="ascii")
    ended = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert ended.returncode == 2
    assert what in ended.stderr
    assert "simulated rack cannot run" in ended.stderr
    assert "Traceback" not in ended.stderr
