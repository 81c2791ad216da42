"""The node's GPUs over several backends: one vendor's trouble hides no other's GPUs, nothing missing goes unsaid."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rackpower_agent.devices.base import BackendUnavailable, Listing
from rackpower_agent.hardware import Backends, HardwareError
from support.gpu_fake import FakeGpu
from support.lease_node import device

ONE = Listing((FakeGpu(device("GPU-1")),), complete=True, library="first 1.0")
TWO = Listing((FakeGpu(device("GPU-2")),), complete=True)


class Answers:
    """A backend that gives one answer."""

    name = "fake"

    def __init__(self, answer: Listing | BackendUnavailable) -> None:
        self.answer = answer

    def open(self, options: Mapping[str, str]) -> Listing:
        """Give it."""
        if isinstance(self.answer, BackendUnavailable):
            raise self.answer
        return self.answer

    def close(self) -> None:
        """Nothing is held."""


def backends(**answers: Listing | BackendUnavailable) -> Backends:
    """Return backends that answer so, in this order."""
    return Backends({name: {} for name in answers}, lambda name: Answers(answers[name]))


def test_all_gpus_are_listed_in_the_order_of_the_settings() -> None:
    """Both vendors in one node."""
    hardware = backends(first=ONE, second=TWO).open()
    assert [gpu.device.gpu for gpu in hardware.gpus] == ["GPU-1", "GPU-2"]
    assert (hardware.complete, hardware.detail, hardware.libraries) == (True, "", ("first 1.0",))


def test_a_vendor_that_is_not_there_hides_no_others_gpus_and_leaves_the_list_incomplete() -> None:
    """Its driver may come up late: its GPUs may draw, and are not proven gone."""
    hardware = backends(first=ONE, second=BackendUnavailable("the driver is not loaded")).open()
    assert [gpu.device.gpu for gpu in hardware.gpus] == ["GPU-1"]
    assert (hardware.complete, hardware.detail) == (False, "second: the driver is not loaded")


def test_a_vendor_without_any_gpu_on_the_bus_is_missing_nothing() -> None:
    """Naming both vendors everywhere is fine."""
    hardware = backends(first=ONE, second=BackendUnavailable("no library", absent=True)).open()
    assert (hardware.complete, hardware.detail) == (True, "")


def test_a_backend_that_lists_in_part_makes_the_whole_list_incomplete() -> None:
    """With its name and words."""
    hardware = backends(first=Listing(ONE.gpus, complete=False, detail="one fell off the bus"), second=TWO).open()
    assert (hardware.complete, hardware.detail) == (False, "first: one fell off the bus")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"first": BackendUnavailable("no library")}, "no library"),
        ({"first": BackendUnavailable("no a"), "second": BackendUnavailable("no b")}, "first: no a; second: no b"),
        ({"first": Listing((), complete=True)}, "no GPU is listed by first"),
        ({"first": Listing((), complete=True), "second": BackendUnavailable("no b")}, "second: no b; first: no GPU"),
    ],
)
def test_without_any_gpu_every_reason_is_told(answers: dict[str, Listing | BackendUnavailable], words: str) -> None:
    """And the agent tries again."""
    with pytest.raises(BackendUnavailable) as caught:
        backends(**answers).open()
    assert caught.value.message == words


def test_a_gpu_that_two_backends_list_is_refused() -> None:
    """Two hands on one cap."""
    with pytest.raises(HardwareError, match="GPU-1 is listed twice"):
        backends(first=ONE, second=ONE).open()
