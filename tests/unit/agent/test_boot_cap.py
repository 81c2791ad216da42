"""Boot caps: every GPU at its smallest, or a failure in words; one that hangs keeps no other from its cap."""

from __future__ import annotations

import pytest

from rackpower_agent.boot_cap import cap_all, cap_at_minimum, list_patiently
from rackpower_agent.devices.base import BackendUnavailable
from rackpower_agent.hardware import Hardware
from rackpower_common.clock import BootClock
from rackpower_common.model.device import CapControl
from support.gpu_fake import FakeBackend, FakeGpu, HandClock, refused
from support.lease_node import device


class Liar(FakeGpu):
    """A driver that accepts a cap and does something else."""

    shows: tuple[int | None, int | None] = (None, None)

    def write_cap(self, cap_w: int) -> None:
        """Accept it."""
        self.requested_w, self.enforced_w = self.shows


def test_a_gpu_is_set_to_its_smallest_cap_and_read_back() -> None:
    """Returning is not enough: the driver must show it."""
    gpu = FakeGpu()
    assert cap_at_minimum(gpu).words == "Test GPU GPU-0: 200 W"
    assert (gpu.writes, gpu.cap_reads) == ([200], 1)


@pytest.mark.parametrize(
    ("shows", "words"),
    [
        ((200, 900), "asked for 200 W, the driver holds 900 W"),
        ((900, 200), "asked for 200 W, the driver holds 900 W"),
        ((200, None), "asked for 200 W, the driver holds 200 W"),
        ((None, None), "asked for 200 W, the driver holds ? W"),
    ],
)
def test_a_driver_that_does_not_show_the_cap_has_failed(shows: tuple[int | None, int | None], words: str) -> None:
    """An accepted write that is not enforced is no cap."""
    gpu = Liar()
    gpu.shows = shows
    capped = cap_at_minimum(gpu)
    assert capped.failure
    assert capped.words == f"Test GPU GPU-0: {words}"


@pytest.mark.parametrize("error", [refused(), ZeroDivisionError("vendor bug")])
def test_whatever_the_driver_raises_is_a_failure_in_words(error: Exception) -> None:
    """No traceback, and no success."""
    capped = cap_at_minimum(FakeGpu(write_fails=error))
    assert capped.failure
    assert capped.words.startswith("Test GPU GPU-0: not capped: ")


@pytest.mark.parametrize(
    ("control", "failure"),
    [
        (CapControl.NOT_SUPPORTED, False),
        (CapControl.NOT_PERSISTENT, False),
        (CapControl.VIRTUALISED, False),
        (CapControl.NO_PERMISSION, True),
        (CapControl.UNKNOWN, True),
    ],
)
def test_a_gpu_that_nobody_can_cap_is_told_and_one_that_we_may_not_cap_fails(
    control: CapControl, failure: bool
) -> None:
    """What cannot be mended counts at its largest draw and lets work start; a missing right is somebody's mistake."""
    gpu = FakeGpu(device(cap_control=control))
    assert cap_at_minimum(gpu).failure is failure
    assert gpu.begun == []


def test_one_that_hangs_fails_alone() -> None:
    """All are capped at once: the hung one is told after the deadline, the others stand at their minimum."""
    hung, fine = FakeGpu(device("GPU-0")), FakeGpu(device("GPU-1"))
    hung.writing.close()
    first, second = cap_all([hung, fine], BootClock(), deadline_s=0.2)
    hung.writing.open()
    assert first.words == "Test GPU GPU-0: not capped: the driver has not returned within 0.2 s"
    assert (first.failure, second.failure, fine.writes) == (True, False, [200])


def test_a_driver_that_comes_up_late_is_waited_for() -> None:
    """Said once, and used when it is there."""
    said: list[str] = []
    backend = FakeBackend((FakeGpu(),), absent=1)

    def listing() -> Hardware:
        return Hardware(backend.open({}).gpus, complete=True)

    assert len(list_patiently(listing, BootClock(), 60.0, said.append).gpus) == 1
    assert backend.opened == 2
    assert said == ["waiting up to 60 s for the devices: the driver is not loaded"]


def test_a_driver_that_does_not_come_up_is_an_error_after_the_wait() -> None:
    """Without a wait at once."""

    def listing() -> Hardware:
        raise BackendUnavailable("no driver")

    with pytest.raises(BackendUnavailable, match="no driver"):
        list_patiently(listing, HandClock(), 0.0, print)
