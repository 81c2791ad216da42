"""The agent's lines of the safety argument, each on the keeper with drivers and a disk in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpower_agent.lease.events import Welcomed
from rackpower_common.model.identity import GpuId, Term
from rackpower_common.model.messages import WriteFailure
from support.lease_node import DEFAULT_W, MIN_W, LeaseNode, grant, term

GPU = GpuId("GPU-0")
CAPS_W = st.integers(min_value=MIN_W, max_value=DEFAULT_W)


def granted(cap_w: int, fallback_w: int = 300, *, sequence: int = 1, by: Term | None = None) -> LeaseNode:
    """Return a started node with one grant applied."""
    node = LeaseNode()
    node.start()
    node.settle()
    node.send(grant(sequence, cap_w, fallback_w=fallback_w), by=by)
    node.settle()
    assert node.cap_w() == cap_w
    return node


@given(cap_w=CAPS_W, fallback_w=CAPS_W)
def test_invariant_04_at_lease_end_the_lower_of_cap_and_fallback_stands(cap_w: int, fallback_w: int) -> None:
    """Alone, the agent lowers to the fallback when the cap in force is higher, and never raises to it."""
    node = granted(cap_w, fallback_w)
    node.pass_time(14.999)
    node.settle()
    assert node.cap_w() == cap_w
    node.pass_time(0.002)
    node.settle()
    assert node.cap_w() == min(cap_w, fallback_w)
    assert node.holding().lease_remaining_s == 0.0


@given(cap_w=CAPS_W, found_w=CAPS_W)
def test_invariant_04_at_lease_end_a_cap_lowered_by_others_stays(cap_w: int, found_w: int) -> None:
    """The cap in force counts, not the one once granted."""
    node = granted(cap_w, DEFAULT_W)
    node.drivers[GPU].requested_w = found_w
    node.poll()
    node.pass_time(20.0)
    node.settle()
    assert node.cap_w() == min(cap_w, found_w)


def test_invariant_04_a_raise_whose_lease_ran_out_before_it_was_written_is_never_written() -> None:
    """A grant that waited too long for the journal changes nothing."""
    node = granted(400)
    node.send(grant(2, 900, lease_s=1.0))
    node.pass_time(1.5)
    node.settle()
    assert node.cap_w() == 400


def test_invariant_04_a_lower_that_the_driver_refused_is_tried_again_while_alone() -> None:
    """At lease end nobody else would lower it, so the agent keeps trying, slowly."""
    node = granted(800, 300)
    node.pass_time(15.0)
    for _ in range(3):
        node.settle_reads()
        node.finish_write(failure=WriteFailure.REFUSED)
        node.poll_without_writes()
        node.pass_time(1.1)
    assert not node.drivers[GPU].under_way
    node.pass_time(60.0)
    node.settle()
    assert node.cap_w() == 300


@given(cap_w=CAPS_W, fallback_w=CAPS_W, gone_s=st.sampled_from([0.0, 5.0, 14.0, 16.0, 1000.0]), boot_w=CAPS_W)
def test_invariant_05_a_restart_keeps_the_lower_of_cap_in_force_and_grant(
    cap_w: int, fallback_w: int, gone_s: float, boot_w: int
) -> None:
    """In the same boot the journalled grant holds, with the fallback too when its lease has run out meanwhile."""
    node = granted(cap_w, fallback_w)
    node.drivers[GPU].requested_w = boot_w
    node.now_s += gone_s
    node.crash()
    node.settle()
    assert node.keeper.ready()
    expected_w = min(boot_w, cap_w) if gone_s < 15.0 else min(boot_w, cap_w, fallback_w)
    assert node.cap_w() == expected_w


@given(cap_w=CAPS_W)
def test_invariant_05_after_a_reboot_the_minimum_stands_until_a_grant(cap_w: int) -> None:
    """A new boot id voids leases, not the memory of terms and sequences."""
    node = granted(cap_w, 900, sequence=7, by=term(3))
    node.reboot()
    assert not node.keeper.ready()
    node.settle()
    assert node.keeper.ready()
    assert node.cap_w() == MIN_W
    assert node.keeper.highest_term == term(3)
    assert node.holding().sequence == 7
    assert node.holding().lease_remaining_s is None
    node.pass_time(100.0)
    node.settle()
    assert node.cap_w() == MIN_W
    node.send(grant(8, cap_w), by=term(3))
    node.settle()
    assert node.cap_w() == cap_w


@given(cap_w=CAPS_W)
def test_invariant_05_without_a_journal_the_minimum_stands_until_a_grant(cap_w: int) -> None:
    """A lost journal is worth nothing, in the same boot too, and the agent says so."""
    node = granted(cap_w, 900)
    node.crash(journal_lost=True)
    node.settle()
    assert node.cap_w() == MIN_W
    assert not node.keeper.journal_read
    assert node.keeper.highest_term is None


def test_invariant_05_a_raise_is_in_the_journal_before_it_is_written() -> None:
    """At the moment of the driver call the disk holds its term, sequence, cap, fallback and lease end."""
    node = granted(400)
    node.send(grant(2, 700, fallback_w=350))
    node.settle()
    write, disk = node.raises[-1].write, node.raises[-1].disk
    assert disk is not None
    record = disk.gpus[0]
    assert (record.cap_w, record.sequence, record.fallback_w, record.term) == (write.cap_w, 2, 350, term())
    assert record.deadline_s == node.now_s + 15.0


def test_invariant_05_a_write_of_the_process_before_counts_over_a_restart() -> None:
    """A raise that had not returned is pending until its process left the kernel and a read-back followed."""
    node = granted(400)
    node.send(grant(2, 700))
    node.finish_save()
    node.crash(writer_alive=True)
    node.settle_reads()
    assert [write.cap_w for write in node.holding().pending_writes] == [700]
    node.send(grant(3, 300))
    node.settle_reads()
    assert len(node.drivers[GPU].under_way) == 1, "a device with a write under way takes no second one"
    node.writer_leaves()
    node.settle()
    assert node.holding().pending_writes == ()
    assert node.cap_w() == 300


def test_invariant_05_a_restart_drops_a_raise_that_never_reached_the_driver() -> None:
    """A grant journalled but not written is no licence to raise after the restart."""
    node = granted(400)
    node.send(grant(2, 700))
    node.finish_save()
    node.drivers[GPU].under_way.clear()
    node.crash()
    node.settle()
    assert node.cap_w() == 400
    assert node.holding().sequence == 2
    assert node.holding().applied_sequence == 1


@given(found_w=st.integers(min_value=501, max_value=DEFAULT_W))
def test_invariant_06_a_cap_raised_by_others_is_put_right_counted_and_reported(found_w: int) -> None:
    """An override above ours is corrected at the next reading; its height is told."""
    node = granted(500)
    node.drivers[GPU].requested_w = found_w
    node.poll()
    gpu = node.keeper.state.gpus[GPU]
    assert node.cap_w() == 500
    assert (gpu.overrides, gpu.override_w) == (1, found_w)
    assert (node.holding().highest_enforced_w or 0) >= found_w


@given(found_w=st.integers(min_value=MIN_W, max_value=499))
def test_invariant_06_a_cap_lowered_by_others_is_reported_and_not_raised(found_w: int) -> None:
    """What others lowered stays low until a new grant, and is held there."""
    node = granted(500)
    node.drivers[GPU].requested_w = found_w
    node.poll()
    node.renew(1)
    node.settle()
    gpu = node.keeper.state.gpus[GPU]
    assert node.cap_w() == found_w
    assert (gpu.overrides, gpu.override_w) == (1, found_w)
    node.drivers[GPU].requested_w = 500
    node.poll()
    assert node.cap_w() == found_w
    node.send(grant(2, 500))
    node.settle()
    assert node.cap_w() == 500


def test_invariant_06_overrides_are_not_fought_for_ever() -> None:
    """After five corrections within ten minutes the agent stops, says so, and starts again with the next grant."""
    node = granted(500)
    for _ in range(20):
        node.drivers[GPU].requested_w = 800
        node.poll()
        node.pass_time(1.0)
        node.renew(1)
        node.settle()
    assert node.cap_w() == 800
    assert node.drivers[GPU].landed.count(500) == 1 + 5
    assert [note.word for note in node.notes].count("override_contested") == 1
    node.send(grant(2, 450))
    node.settle()
    assert node.cap_w() == 450


def test_invariant_06_a_lower_limit_of_the_board_controller_acknowledges_and_is_shown() -> None:
    """Requested and enforced are told apart: the grant was obeyed, something else binds."""
    node = granted(400)
    node.drivers[GPU].bmc_w = 350
    node.send(grant(2, 450))
    node.settle()
    held = node.holding()
    assert (held.requested_w, held.enforced_w, held.applied_sequence) == (450, 350, 2)
    assert node.keeper.state.gpus[GPU].overrides == 0


def test_invariant_06_nothing_is_acknowledged_before_the_read_back() -> None:
    """A driver that says yes and keeps the old cap gets no acknowledgement."""
    node = granted(500)
    node.send(grant(2, 700))
    node.finish_save()
    node.finish_write(lands=False)
    node.settle()
    assert node.holding().applied_sequence == 1
    node.pass_time(2.5)
    node.poll()
    node.pass_time(0.1)
    assert node.told[-1].reason is WriteFailure.CLAMPED


@given(offered=st.builds(Term, st.integers(1, 6), st.sampled_from("abc")), first=st.integers(1, 6))
def test_invariant_08_a_lower_or_equal_foreign_term_is_refused(offered: Term, first: int) -> None:
    """The fence holds on the number, and on the instance where the numbers are equal."""
    node = granted(400, by=term(first, "a"))
    node.send(grant(2, 600), by=offered)
    node.settle()
    fenced = offered.number < first or (offered.number == first and offered.instance != "a")
    assert node.cap_w() == (400 if fenced else 600)
    if fenced:
        assert node.told[-1].reason is WriteFailure.OLD_TERM
        assert node.keeper.highest_term == term(first, "a")


def test_invariant_08_the_fence_survives_a_restart_and_a_reboot() -> None:
    """The highest term is on the disk from the welcome on."""
    node = granted(400, by=term(3, "a"))
    node.feed(Welcomed(term(5, "b")))
    node.settle()
    for again in (node.crash, node.reboot):
        again()
        node.settle()
        stood_w = node.cap_w()
        node.send(grant(9, 600), by=term(3, "a"))
        node.send(grant(9, 600), by=term(5, "c"))
        node.settle()
        assert node.cap_w() == stood_w
        assert node.keeper.highest_term == term(5, "b")


@pytest.mark.parametrize("sequence", [0, 1, 4, 5])
def test_invariant_08_an_old_sequence_is_refused_over_terms(sequence: int) -> None:
    """Sequences run per GPU and over terms: not higher than the last means refused."""
    node = granted(400, sequence=5)
    node.send(grant(sequence, 600), by=term(2, "b"))
    node.settle()
    assert node.cap_w() == 400
    assert node.told[-1].reason is WriteFailure.OLD_SEQUENCE


def test_invariant_08_a_sequence_once_refused_for_the_journal_never_comes_back() -> None:
    """A late copy of a refused raise is an old one."""
    node = granted(400)
    node.disk_full = True
    node.send(grant(2, 700))
    node.settle()
    node.disk_full = False
    node.send(grant(2, 700))
    node.settle()
    assert node.told[-1].reason is WriteFailure.OLD_SEQUENCE
    assert node.cap_w() == 400


@given(sequence=st.integers(0, 4), number=st.integers(1, 3), instance=st.sampled_from("ab"))
def test_invariant_11_only_the_grants_own_term_and_sequence_renew_it(sequence: int, number: int, instance: str) -> None:
    """A renewal of another sequence, or by another controller, leaves the lease to run out."""
    node = granted(600, 300, sequence=2, by=term(2, "a"))
    node.pass_time(10.0)
    node.renew(sequence, by=term(number, instance))
    node.settle()
    node.pass_time(6.0)
    node.settle()
    own = (sequence, number, instance) == (2, 2, "a")
    assert node.cap_w() == (600 if own else 300)


def test_invariant_11_a_lease_that_ran_out_is_not_renewed() -> None:
    """Only a new grant raises again."""
    node = granted(600, 300)
    node.pass_time(15.0)
    node.settle()
    node.renew(1)
    node.settle()
    assert node.cap_w() == 300
    assert node.holding().lease_remaining_s == 0.0
    node.send(grant(2, 600))
    node.settle()
    assert node.cap_w() == 600


def test_invariant_11_a_welcome_renews_nothing() -> None:
    """Leases die with the mind that granted them, whoever else is there."""
    node = granted(600, 300)
    for _ in range(16):
        node.feed(Welcomed(term(9, "z")))
        node.pass_time(1.0)
    node.settle()
    assert node.cap_w() == 300
