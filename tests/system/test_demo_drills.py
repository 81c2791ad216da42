"""Drills on a running demo: controller killed and started again, budget cut; all judged on the hardware's caps."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.demo_process import END_S, Demo, demo
from support.waiting import wait_until

LEASE_S = 15.0
AROUND_S = 10.0
"""Above the lease, for agents and a busy machine."""


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[Demo]:
    """Run a demo that has started."""
    with tempfile.TemporaryDirectory(prefix="rp-") as name, demo(Path(name) / "demo", *arguments) as running:
        running.started()
        yield running


@pytest.fixture
def running() -> Iterator[Demo]:
    """Return a small demo that has started."""
    with started() as demonstration:
        yield demonstration


@pytest.fixture
def dense() -> Iterator[Demo]:
    """Return a demo with so many GPUs a node that a quarter less still lets each run at its minimum."""
    with started("--gpus-per-node", "16") as demonstration:
        yield demonstration


def gpus_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the GPUs in the hardware's order: by node, then as the node lists them."""
    return sorted(document["gpus"], key=lambda gpu: str(gpu["node"]))


def test_a_killed_controller_leaves_caps_then_fallbacks_and_recovers(running: Demo) -> None:
    """Every cap stays until its lease ends, then min(cap, fallback); the printed command brings the plan back."""
    before_w = running.caps_w()
    fallbacks_w = [int(gpu["fallback_cap_watts"]) for gpu in gpus_of(running.status())]
    wanted_w = [min(pair) for pair in zip(before_w, fallbacks_w, strict=True)]
    assert wanted_w != before_w, "the drill needs caps above their fallbacks"
    os.kill(running.controller_pid, signal.SIGKILL)
    killed_s = time.monotonic()
    running.wait_said("the controller has ended; start it again: ")
    assert running.caps_w() == before_w
    assert running.ctl("status").returncode == 3
    wait_until(lambda: sorted(running.caps_w()) == sorted(wanted_w), within_s=LEASE_S + AROUND_S, what="the fallbacks")
    assert time.monotonic() - killed_s > LEASE_S / 2  # no lease was cut short
    controller = subprocess.Popen(
        running.start_again_command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        running.wait_said(f"a controller is back: pid {controller.pid}")
        total_w = sum(before_w)
        wait_until(lambda: sum(running.caps_w()) >= 0.98 * total_w, within_s=2 * LEASE_S, what="the plan")
        assert max(entry.caps_w for entry in running.history()) <= total_w * 1.001 + 2
        running.end(signal.SIGINT)
        assert running.process.returncode == 0
        # Started by somebody else, it ends with the demo all the same.
        assert controller.wait(END_S) is not None
    finally:
        with contextlib.suppress(ProcessLookupError):
            controller.kill()
        controller.wait(END_S)


def test_a_budget_cut_by_a_quarter_is_followed_within_five_seconds_and_lowers_first(dense: Demo) -> None:
    """Edit the policy file: the caps fit the new limit within 5 s, and their sum never rises on the way."""
    text = (dense.folder / "policy.yaml").read_text()
    limit = re.search(r"rack-1: .*?limit: (\d+) W", text)
    assert limit is not None
    lower_w = int(limit[1]) * 3 // 4
    before_w = sum(dense.caps_w())
    fresh = dense.folder / "policy.new"
    fresh.write_text(text.replace(f"limit: {limit[1]} W", f"limit: {lower_w} W", 1))
    fresh.replace(dense.folder / "policy.yaml")
    edited_s = time.clock_gettime(time.CLOCK_BOOTTIME)

    def in_force() -> bool:
        domains: Any = dense.status()["domains"]
        return bool(domains[0]["limit_watts"] == lower_w and domains[0]["deficit_watts"] == 0)

    wait_until(in_force, within_s=20.0, what="the lower limit")
    entries = [entry for entry in dense.history() if entry.time_s >= edited_s]
    sums_w = [entry.caps_w for entry in entries]
    assert sums_w == sorted(sums_w, reverse=True), "a cap was raised before the lowers were done"
    final_w = sums_w[-1]
    assert final_w < before_w
    reached_s = next(entry.time_s for entry in entries if entry.caps_w == final_w)
    assert reached_s - edited_s <= 5.0
    assert entries[-1].power_w <= lower_w
