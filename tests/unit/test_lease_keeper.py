"""The lease keeper, behaviour by behaviour, on a node in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpower_agent.lease.events import Closing, DeviceBack, DeviceHung, Journalled, Reported, Welcomed
from rackpower_agent.lease.views import emergency_caps, trouble
from rackpower_agent.lease.writing import Step, _issue
from rackpower_common.errors import InvariantError
from rackpower_common.model.device import CapControl
from rackpower_common.model.identity import GpuId
from rackpower_common.model.messages import WriteFailure
from support.lease_node import DEFAULT_W, MIN_W, LeaseNode, device, grant, term

GPU = GpuId("GPU-0")


def started(**changes: object) -> LeaseNode:
    """Return a node that has started without a journal and stands at its minimum."""
    node = LeaseNode(device("GPU-0", **changes))
    node.start()
    node.settle()
    return node


def granted(cap_w: int = 500, fallback_w: int = 300, sequence: int = 1) -> LeaseNode:
    """Return a node with one grant applied."""
    node = started()
    node.send(grant(sequence, cap_w, fallback_w=fallback_w))
    node.settle()
    assert node.holding().applied_sequence == sequence
    return node


def test_a_first_start_sets_the_device_minimum_before_it_is_ready() -> None:
    """Without a journal the keeper is ready only when the minimum was read back."""
    node = LeaseNode()
    node.start()
    assert not node.keeper.ready()
    node.settle()
    assert node.keeper.ready()
    assert node.cap_w() == MIN_W
    assert not node.keeper.journal_read


def test_a_raise_waits_for_the_journal_and_its_read_back_for_the_acknowledgement() -> None:
    """A grant above what stands is on the disk before it is written, and acknowledged when read back."""
    node = started()
    node.send(grant(1, 500))
    assert not node.drivers[GPU].under_way
    node.finish_save()
    assert node.drivers[GPU].under_way
    assert node.holding().applied_sequence == 0
    node.finish_write()
    assert node.holding().applied_sequence == 0
    node.finish_read()
    assert node.holding().applied_sequence == 1
    assert node.holding().enforced_w == 500


def test_a_lower_is_journalled_written_and_acknowledged_when_read_back() -> None:
    """The disk knows of a lower before the driver does, and one save serves grant and write."""
    node = granted(500)
    node.send(grant(2, 400))
    assert not node.drivers[GPU].under_way
    node.finish_save()
    assert node.saving is None
    node.finish_write()
    assert node.holding().applied_sequence == 1
    node.finish_read()
    assert node.holding().applied_sequence == 2


def test_a_disk_that_does_not_answer_holds_up_no_lower() -> None:
    """After half a second the lower is written; its acknowledgement still waits for the journal."""
    node = granted(500)
    node.send(grant(2, 400))
    node.pass_time(0.6)
    node.finish_write()
    node.finish_read()
    assert node.holding().enforced_w == 400
    assert node.holding().applied_sequence == 1
    node.finish_save()
    assert node.holding().applied_sequence == 2


def test_a_full_disk_refuses_raises_and_still_lowers() -> None:
    """With no room for the journal, raises are told as `journal`, lowers written and not acknowledged."""
    node = granted(500)
    node.disk_full = True
    node.send(grant(2, 700))
    node.settle()
    assert [error.reason for error in node.told] == [WriteFailure.JOURNAL]
    assert node.cap_w() == 500
    node.send(grant(3, 400))
    node.settle()
    assert node.cap_w() == 400
    assert node.holding().applied_sequence == 1
    node.disk_full = False
    node.pass_time(2.0)
    node.settle()
    assert node.holding().applied_sequence == 3


def test_an_equal_grant_is_acknowledged_by_a_read_back_without_a_write() -> None:
    """A grant of the cap in force costs no driver write."""
    node = granted(500)
    writes = len(node.drivers[GPU].landed)
    node.send(grant(2, 500, fallback_w=250))
    node.settle()
    assert node.holding().applied_sequence == 2
    assert node.holding().fallback_w == 250
    assert len(node.drivers[GPU].landed) == writes


def test_a_renewal_of_the_held_grant_moves_the_lease_end() -> None:
    """The lease counts from receipt of its renewal."""
    node = granted(500)
    node.pass_time(10.0)
    node.renew(1)
    assert node.holding().lease_remaining_s == 15.0
    node.pass_time(14.9)
    node.settle()
    assert node.cap_w() == 500


def test_renewals_seldom_reach_the_disk() -> None:
    """A lease renewed once a second costs a save every few seconds only."""
    node = granted(500)
    saves = 0
    for _ in range(60):
        node.pass_time(1.0)
        node.renew(1)
        saves += node.saving is not None
        node.settle()
    assert 5 <= saves <= 15


def test_a_clean_stop_journals_the_exact_lease_end() -> None:
    """A restart after a clean stop has the whole rest of the lease."""
    node = granted(500)
    node.pass_time(3.0)
    node.renew(1)
    node.settle()
    node.feed(Closing())
    node.settle()
    assert node.disk is not None
    assert node.disk.gpus[0].deadline_s == node.now_s + 15.0


def test_the_journal_is_never_ahead_of_a_lease_that_was_cut() -> None:
    """A renewal that shortens the lease goes to the disk at once."""
    node = granted(500)
    node.renew(1, lease_s=2.0)
    node.settle()
    assert node.disk is not None
    assert node.disk.gpus[0].deadline_s == node.now_s + 2.0


def test_a_refused_write_is_told_and_closes_nothing() -> None:
    """The driver's refusal reaches the controller with what stands; the acknowledgement stays."""
    node = granted(500)
    node.send(grant(2, 600))
    node.finish_save()
    node.finish_write(failure=WriteFailure.REFUSED)
    node.settle()
    assert node.told[-1].reason is WriteFailure.REFUSED
    assert node.told[-1].sequence == 2
    assert node.holding().applied_sequence == 1


def test_a_failed_write_that_took_effect_is_acknowledged_by_its_read_back() -> None:
    """What counts is what the driver shows after the call returned."""
    node = granted(500)
    node.send(grant(2, 600))
    node.finish_save()
    node.finish_write(failure=WriteFailure.UNKNOWN, lands=True)
    node.settle()
    assert node.holding().applied_sequence == 2


def test_a_lower_that_is_ignored_is_tried_three_times_and_told_as_clamped() -> None:
    """A driver that says yes and does nothing is not asked for ever while a controller is there."""
    node = granted(500)
    node.send(grant(2, 400))
    writes = 0
    for _ in range(60):
        node.settle_reads()
        if node.drivers[GPU].under_way:
            writes += 1
            node.finish_write(lands=False)
        node.renew(2)
        node.pass_time(0.5)
        node.poll_without_writes()
    assert writes == 3
    assert WriteFailure.CLAMPED in [error.reason for error in node.told]
    assert "does not lower" in trouble(node.keeper.state, GPU)


def test_a_grant_outside_the_drivers_range_is_clamped_told_and_not_acknowledged() -> None:
    """Above the maximum the maximum is written; the controller is told to lower its own request."""
    node = started(max_cap_w=600)
    node.send(grant(1, 700))
    node.settle()
    assert node.cap_w() == 600
    assert node.told[-1].reason is WriteFailure.CLAMPED
    assert node.holding().applied_sequence == 0
    node.send(grant(2, 600))
    node.settle()
    assert node.holding().applied_sequence == 2


def test_a_hung_write_is_pending_until_it_returned_and_was_read_back() -> None:
    """The GPU counts at the write that has not returned, and takes no second one."""
    node = granted(500)
    node.send(grant(2, 700))
    node.finish_save()
    node.hang()
    assert node.told[-1].reason is WriteFailure.TIMEOUT
    node.send(grant(3, 400))
    node.pass_time(5.0)
    assert [write.cap_w for write in node.holding().pending_writes] == [700]
    assert node.holding().enforced_age_s is None
    node.finish_write()
    assert [write.cap_w for write in node.holding().pending_writes] == [700]
    node.feed(DeviceBack(GPU))
    node.settle()
    assert node.cap_w() == 400
    assert node.holding().pending_writes == ()
    assert node.holding().applied_sequence == 3


def test_a_hung_device_refuses_raises_and_keeps_lowers_for_later() -> None:
    """A raise to a device that does not answer is told as `timeout`; a lower is written when it is back."""
    node = granted(500)
    node.feed(DeviceHung(GPU))
    node.send(grant(2, 700))
    assert node.told[-1].reason is WriteFailure.TIMEOUT
    node.send(grant(3, 400))
    node.settle()
    assert node.cap_w() == 500
    node.feed(DeviceBack(GPU))
    node.settle()
    assert node.cap_w() == 400


def test_the_enforced_age_counts_from_the_read_back() -> None:
    """Neither the grant nor the write's return starts the age, but the first read-back after it."""
    node = granted(500)
    node.send(grant(2, 400))
    node.finish_save()
    node.now_s += 1.0
    node.finish_write()
    node.now_s += 1.0
    node.settle()
    assert node.holding().enforced_age_s == 0.0
    node.pass_time(2.5)
    node.poll()
    assert node.holding().enforced_age_s == 2.5


def test_a_read_that_began_before_the_write_returned_proves_nothing() -> None:
    """A reading is taken for a read-back only when it began after the write's return."""
    node = granted(500)
    node.reads.append((GPU, node.now_s))
    node.send(grant(2, 400))
    node.finish_save()
    node.now_s += 1.0
    node.finish_write()
    node.finish_read()
    assert node.holding().pending_writes != ()
    node.settle()
    assert node.holding().pending_writes == ()


def test_the_highest_enforced_cap_lasts_until_a_report_has_left() -> None:
    """A cap seen between two reports is not forgotten."""
    node = granted(500)
    node.feed(Reported())
    node.drivers[GPU].requested_w = 800
    node.poll()
    assert node.cap_w() == 500
    assert node.holding().highest_enforced_w == 800
    node.feed(Reported())
    assert node.holding().highest_enforced_w == 500


def test_an_uncappable_gpu_refuses_grants_and_does_not_hold_up_the_start() -> None:
    """A GPU without caps is said to be one, once for every grant."""
    node = LeaseNode(device(cap_control=CapControl.NO_PERMISSION, cap_control_detail="not root"))
    node.start()
    node.settle()
    assert node.keeper.ready()
    assert node.cap_w() == DEFAULT_W
    node.send(grant(1, 300))
    assert node.told[-1].reason is WriteFailure.NO_PERMISSION
    assert "not root" in node.told[-1].detail


def test_a_grant_for_a_gpu_of_another_node_is_told_as_lost() -> None:
    """An unknown UUID is answered, not dropped."""
    node = started()
    node.send(grant(1, 300, gpu="GPU-9"))
    assert node.told[-1].reason is WriteFailure.LOST


@pytest.mark.parametrize(("cap_w", "fallback_w", "lease_s"), [(0, 300, 15.0), (300, -1, 15.0), (300, 300, 0.0)])
def test_a_grant_of_nothing_is_refused(cap_w: int, fallback_w: int, lease_s: float) -> None:
    """Zero and negative watts or seconds change nothing."""
    node = granted(500)
    node.send(grant(2, cap_w, fallback_w=fallback_w, lease_s=lease_s))
    node.settle()
    assert node.told[-1].reason is WriteFailure.REFUSED
    assert node.cap_w() == 500


def test_implausible_caps_are_no_reading() -> None:
    """A sentinel of the driver neither raises nor lowers anything."""
    node = granted(500)
    node.feed(Reported())
    node.drivers[GPU].requested_w = 2_147_483_632
    node.poll()
    assert node.holding().requested_w == 500
    assert node.holding().highest_enforced_w == 500


def test_a_cap_that_cannot_be_read_at_start_goes_to_the_minimum_unseen() -> None:
    """Without memory the minimum is safe whatever stands, so it is written all the same."""
    node = LeaseNode()
    node.start()
    for _ in range(3):
        node.finish_read(fails=True)
        node.reads.append((GPU, node.now_s))
    node.finish_save()
    node.finish_save()
    assert node.drivers[GPU].under_way[0].cap_w == MIN_W


def test_a_welcome_is_journalled_before_the_term_is_reported() -> None:
    """The report names only a term that a restart would remember."""
    node = started()
    node.feed(Welcomed(term(4)))
    assert node.keeper.highest_term is None
    node.finish_save()
    assert node.keeper.highest_term == term(4)


def test_emergency_caps_are_the_lower_of_cap_in_force_and_fallback() -> None:
    """What a failed invariant leads to never raises."""
    node = granted(500, fallback_w=300)
    assert emergency_caps(node.keeper.state) == {GPU: 300}
    assert emergency_caps(granted(250, fallback_w=300).keeper.state) == {}


def test_a_raise_without_a_lease_is_a_failed_invariant() -> None:
    """The border where a cap is applied checks the safety argument itself."""
    node = granted(500)
    gpu = node.keeper.state.gpus[GPU]
    assert gpu.grant is not None
    work = Step(node.now_s, node.limits, saved=99, revision=0, next_number=1, former_writer_alive=False)
    with pytest.raises(InvariantError, match="invariant 4"):
        _issue(work, replace(gpu, grant=replace(gpu.grant, expired=True)), 600)
    work.saved = -1
    with pytest.raises(InvariantError, match="invariant 5"):
        _issue(work, replace(gpu, grant=replace(gpu.grant, cap_w=600)), 600)


def test_a_late_answer_of_the_journal_for_an_older_revision_frees_nothing_newer() -> None:
    """A raise waits for the revision that holds it."""
    node = started()
    node.feed(Welcomed(term(1)))
    first = node.saving
    assert first is not None
    node.send(grant(1, 500))
    node.saving = None
    node.feed(Journalled(first.revision))
    assert not node.drivers[GPU].under_way
    node.settle()
    assert node.cap_w() == 500
