"""Lines of the safety argument that one value of the books already shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpower_common.model.device import CapControl, Device, Vendor
from rackpower_common.model.identity import DomainName, GpuId, NodeName, Term
from rackpower_controller.core.absorb import absorb
from rackpower_controller.core.exposure import exposure_w
from rackpower_controller.core.facts import MeterRead
from rackpower_controller.core.ledger import ledger
from rackpower_controller.core.state import GpuBook, RackState
from rackpower_controller.core.terms import heed_term
from rackpower_sim.world.rack import small_policy

POLICY = small_policy(nodes=1, gpus=1)
RACK = DomainName("rack")
DEVICE = Device(GpuId("GPU-1"), Vendor.NVIDIA, "Big 0", "0000:01:00.0", 200, 1000, 900, largest_draw_w=1100)
BOOK = GpuBook(DEVICE.gpu, NodeName("node-0"), DEVICE, heard=True, requested_w=300, enforced_w=300)


@pytest.mark.parametrize(
    ("control", "counts_w"),
    [
        (CapControl.OK, 300),
        (CapControl.NOT_SUPPORTED, 1100),
        (CapControl.NO_PERMISSION, 1100),
        (CapControl.VIRTUALISED, 1100),
        (CapControl.NOT_PERSISTENT, 900),
    ],
)
def test_invariant_07_a_gpu_that_cannot_be_held_counts_at_its_most(control: CapControl, counts_w: int) -> None:
    """Without a cap that holds it counts at its largest draw, without persistence at its default."""
    assert exposure_w(replace(BOOK, device=replace(DEVICE, cap_control=control)), POLICY) == counts_w


def test_invariant_09_an_unheard_gpu_counts_at_its_maximum_whatever_was_recorded() -> None:
    """A record of an earlier term is not believed for raises."""
    assert exposure_w(replace(BOOK, heard=False, recalled_w=300), POLICY) == 1100


@pytest.mark.parametrize("other", [Term(8, "b"), Term(7, "b")])
def test_invariant_08_another_instance_of_our_number_fences_us(other: Term) -> None:
    """A higher term, or our very number from another instance, asks for a term above it."""
    state = RackState(term=Term(7, "a"))
    assert heed_term(state, other).needs_term_above == other.number
    assert heed_term(state, Term(7, "a")).needs_term_above is None
    assert heed_term(state, Term(6, "b")).needs_term_above is None


def _read(state: RackState, power_w: int, at_s: float) -> RackState:
    return absorb(state, MeterRead(RACK, power_w, 0.1, at_s), POLICY).state


def test_invariant_12_a_meter_is_believed_downward_at_once_and_upward_slowly() -> None:
    """One reading above the account is booked whole; readings below it let it go only bit by bit."""
    before_w = ledger(RackState(), POLICY, 0.0)[RACK].load_w
    state = _read(RackState(), before_w + 200, 1.0)
    assert ledger(state, POLICY, 1.0)[RACK].load_w == before_w + 200
    state = _read(state, before_w - 500, 2.0)
    assert before_w + 190 < ledger(state, POLICY, 2.0)[RACK].load_w < before_w + 200


def test_invariant_12_an_implausible_reading_changes_nothing() -> None:
    """More than everything below a domain can draw is a fault of the meter, and told."""
    absorbed = absorb(RackState(), MeterRead(RACK, 1_000_000, 0.1, 1.0), POLICY)
    assert absorbed.state == RackState()
    assert [event.reason for event in absorbed.events] == ["meter_implausible"]
