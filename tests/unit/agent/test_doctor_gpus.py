"""The doctor at one GPU: every way in which a cap may not hold is named, with what to do; a fine GPU is told too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpower_agent.devices.base import CapReading, DeviceError, Sample
from rackpower_agent.doctor.finding import Finding, Level
from rackpower_agent.doctor.gpus import Examined, examine, findings_of, unlike
from rackpower_agent.doctor.write_test import STEP_W, write_test
from rackpower_common.model.device import CapControl, Device, Health, NoData, PowerReading
from support.gpu_fake import FakeGpu
from support.lease_node import DEFAULT_W, device

GPU = device("GPU-0")
FINE = Examined(GPU, Sample(PowerReading(400, 410)), CapReading(500, 500))


def only(findings: tuple[Finding, ...]) -> tuple[Level, str]:
    """Return level and code of the one finding beside a fine one."""
    rest = [one for one in findings if one.level is not Level.FINE]
    assert len(rest) == 1, findings
    return rest[0].level, rest[0].code


def test_a_fine_gpu_is_told_with_its_range_and_the_cap_in_force() -> None:
    """One line, nothing to do."""
    (finding,) = findings_of(examine(FakeGpu(GPU)))
    assert (finding.level, finding.do) == (Level.FINE, "")
    assert f"caps {GPU.min_cap_w} to {GPU.max_cap_w} W" in finding.words
    assert f"{DEFAULT_W} W in force" in finding.words


@pytest.mark.parametrize(
    ("control", "level"),
    [
        (CapControl.NOT_SUPPORTED, Level.NOTE),
        (CapControl.VIRTUALISED, Level.NOTE),
        (CapControl.NO_PERMISSION, Level.PROBLEM),
        (CapControl.NOT_PERSISTENT, Level.PROBLEM),
        (CapControl.UNKNOWN, Level.PROBLEM),
    ],
)
def test_a_gpu_that_cannot_be_capped_is_told_with_the_reason_and_the_remedy(control: CapControl, level: Level) -> None:
    """What somebody can mend on the node is a problem; what nobody can is counted at its most."""
    seen = replace(FINE, device=replace(GPU, cap_control=control, cap_control_detail="as the driver says"))
    (finding,) = (one for one in findings_of(seen) if one.code == control.value)
    assert finding.level is level
    assert "as the driver says" in finding.words
    assert finding.do


@pytest.mark.parametrize(
    ("changed", "level", "code"),
    [
        (replace(GPU, min_cap_w=GPU.max_cap_w), Level.NOTE, "fixed_range"),
        (replace(GPU, min_cap_w=GPU.default_cap_w), Level.NOTE, "narrow_range"),
        (replace(GPU, default_cap_w=5000), Level.NOTE, "default_above_range"),
        (replace(GPU, max_cap_w=None), Level.PROBLEM, "no_range"),
    ],
    ids=["fixed", "narrow", "default-above", "no-range"],
)
def test_odd_ranges_are_told(changed: Device, level: Level, code: str) -> None:
    """Firmware that lets nothing be lowered makes a node of little use, and nobody would guess why."""
    if code == "narrow_range":
        changed = replace(changed, max_cap_w=(changed.max_cap_w or 0) + 100)
    assert only(findings_of(replace(FINE, device=changed))) == (level, code)


@pytest.mark.parametrize(
    ("caps", "level", "code"),
    [
        (CapReading(700, 500), Level.NOTE, "foreign_limit"),
        (CapReading(400, 500), Level.PROBLEM, "not_followed"),
        (CapReading(400, None), Level.PROBLEM, "enforced_unknown"),
    ],
)
def test_a_cap_in_force_that_is_not_the_one_asked_for_is_told(caps: CapReading, level: Level, code: str) -> None:
    """The lower of ours and a BMC's wins; a higher one in force means that the driver does not follow."""
    assert only(findings_of(replace(FINE, caps=caps))) == (level, code)


@pytest.mark.parametrize(
    ("power", "code"),
    [
        (PowerReading(no_data=NoData.NOT_SUPPORTED), "no_power"),
        (PowerReading(average_w=2147483), "implausible_power"),
    ],
)
def test_a_power_reading_that_shows_nothing_is_a_problem(power: PowerReading, code: str) -> None:
    """Without a reading no lower ever counts as settled."""
    assert only(findings_of(replace(FINE, sample=Sample(power)))) == (Level.PROBLEM, code)


def test_a_lost_gpu_is_a_problem_with_its_detail() -> None:
    """What the backend knows of its health is passed on."""
    seen = replace(FINE, sample=Sample(PowerReading(400, 410), health=Health.LOST, health_detail="Xid 79"))
    (finding,) = findings_of(seen)
    assert (finding.level, finding.code, finding.words) == (Level.PROBLEM, "lost", "it is lost: Xid 79")


@pytest.mark.parametrize("error", [DeviceError("GPU-0: no such thing"), RuntimeError("anything")])
def test_a_call_that_fails_hides_nothing_else(error: Exception) -> None:
    """Each call's failure is told; whatever a vendor's library raises, the examination goes on."""
    gpu = FakeGpu(GPU, fails=error)
    seen = examine(gpu)
    assert len(seen.errors) == 2  # readings and caps; the list of processes came
    assert {one.code for one in findings_of(seen)} == {"read_failed"}


def test_gpus_of_one_model_with_different_ranges_are_told() -> None:
    """Two cards of one name may have different firmware: a table would lie about one of them."""
    other = replace(FINE, device=replace(GPU, gpu="GPU-1", default_cap_w=600))  # type: ignore[arg-type]
    (note,) = unlike([FINE, other])
    assert (note.level, note.code, note.subject) == (Level.NOTE, "unlike", GPU.model)
    assert unlike([FINE, FINE]) == ()


def test_a_write_test_lowers_a_little_and_puts_the_cap_back() -> None:
    """It never asks for more than was asked for before."""
    gpu = FakeGpu(GPU, requested_w=500, enforced_w=500)
    assert write_test(gpu).level is Level.FINE
    assert (gpu.writes, gpu.requested_w) == ([500 - STEP_W, 500], 500)


def test_a_write_test_at_the_smallest_cap_writes_nothing() -> None:
    """There is nothing below, and raising is not the doctor's business."""
    gpu = FakeGpu(GPU, requested_w=GPU.min_cap_w, enforced_w=GPU.min_cap_w)
    assert write_test(gpu).level is Level.NOTE
    assert gpu.begun == []


def test_a_write_test_that_is_refused_is_a_problem() -> None:
    """With the driver's words."""
    finding = write_test(FakeGpu(GPU, write_fails=DeviceError("GPU-0: no permission")))
    assert (finding.level, finding.code) == (Level.PROBLEM, "write_failed")
    assert "no permission" in finding.words


class Deaf(FakeGpu):
    """Accepts writes and does nothing, as a library does that throws the driver's answer away."""

    def write_cap(self, cap_w: int) -> None:
        """Say yes."""
        self.begun.append(cap_w)


def test_a_write_that_is_accepted_and_changes_nothing_is_a_problem() -> None:
    """Returning is no proof: the cap is read back."""
    finding = write_test(Deaf(GPU))
    assert (finding.level, finding.code) == (Level.PROBLEM, "write_failed")
    assert "read back" in finding.words
